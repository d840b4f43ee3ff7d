//! Durations as Go writes and reads them: `1m30s`, `300ms`, `-1.5h`.
//!
//! Owns the text form only; nanoseconds in an `i64`, as in Go. The kubelet's
//! configuration, its flags and every tool that reads them back rely on the
//! exact spelling. Upstream: Go's `time.Duration`, metav1.Duration.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000 * MICRO;
const SECOND: u64 = 1_000 * MILLI;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A signed duration in nanoseconds that reads and prints as in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(i64);

/// Text that is not a Go duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not digits followed by a unit.
    #[error("{0:?} is not a duration; write numbers with units such as 300ms, 1m30s or 2h45m")]
    Malformed(String),
    /// A number without a unit.
    #[error("{0:?} has a number without a unit; add one of ns, us, ms, s, m, h")]
    MissingUnit(String),
    /// A unit Go does not know.
    #[error("{text:?} has the unknown unit {unit:?}; use one of ns, us, ms, s, m, h")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The unit in it.
        unit: String,
    },
    /// More than 64 bits of nanoseconds.
    #[error("{0:?} is longer than about 292 years")]
    OutOfRange(String),
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// From nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }
    /// From milliseconds; saturates.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(MILLI as i64))
    }
    /// From seconds; saturates.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(SECOND as i64))
    }
    /// Nanoseconds, possibly negative.
    pub const fn nanos(self) -> i64 {
        self.0
    }
    /// Below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
    /// The standard library's duration; a negative one becomes zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(DurationError::Malformed(text.to_owned()));
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (nanos, after) = parse_term(text, rest)?;
            total = total
                .checked_add(nanos)
                .ok_or_else(|| DurationError::OutOfRange(text.to_owned()))?;
            rest = after;
        }
        // The most negative value has no positive counterpart, so the sign is applied in i128.
        let signed = if negative { -i128::from(total) } else { i128::from(total) };
        i64::try_from(signed).map(Self).map_err(|_| DurationError::OutOfRange(text.to_owned()))
    }
}

/// One `number unit` term: its nanoseconds and what follows it.
fn parse_term<'a>(text: &str, term: &'a str) -> Result<(u64, &'a str), DurationError> {
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let whole_len = digits(term);
    let (whole, mut rest) = term.split_at(whole_len);
    let mut fraction = "";
    if let Some(after_dot) = rest.strip_prefix('.') {
        let len = digits(after_dot);
        fraction = &after_dot[..len];
        rest = &after_dot[len..];
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Malformed(text.to_owned()));
    }
    let unit_len = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => MICRO,
        "ms" => MILLI,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        other => {
            return Err(DurationError::UnknownUnit {
                text: text.to_owned(),
                unit: other.to_owned(),
            });
        }
    };
    let out_of_range = || DurationError::OutOfRange(text.to_owned());
    let whole: u64 =
        if whole.is_empty() { 0 } else { whole.parse().map_err(|_| out_of_range())? };
    let nanos = whole.checked_mul(scale).ok_or_else(out_of_range)?;
    let nanos = nanos.checked_add(fraction_nanos(fraction, scale)).ok_or_else(out_of_range)?;
    if nanos > 1 << 63 {
        return Err(out_of_range());
    }
    Ok((nanos, rest))
}

/// `0.fraction × scale`, truncated, as Go computes it: digits that no longer fit are dropped.
fn fraction_nanos(fraction: &str, scale: u64) -> u64 {
    let (mut value, mut divisor) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        if value > (i64::MAX as u64) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > 1 << 63 {
            break;
        }
        value = next;
        divisor *= 10.0;
    }
    (value as f64 * (scale as f64 / divisor)) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if nanos < SECOND {
            let (scale, unit) = match nanos {
                n if n < MICRO => (1, "ns"),
                n if n < MILLI => (MICRO, "µs"),
                _ => (MILLI, "ms"),
            };
            write_decimal(f, nanos / scale, nanos % scale, scale)?;
            return f.write_str(unit);
        }
        let (hours, minutes) = (nanos / HOUR, nanos % HOUR / MINUTE);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        let rest = nanos % MINUTE;
        write_decimal(f, rest / SECOND, rest % SECOND, SECOND)?;
        f.write_str("s")
    }
}

/// `whole.fraction` without trailing zeros, where the fraction counts parts of `scale`.
fn write_decimal(f: &mut fmt::Formatter<'_>, whole: u64, part: u64, scale: u64) -> fmt::Result {
    if part == 0 {
        return write!(f, "{whole}");
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{part:0width$}");
    write!(f, "{whole}.{}", digits.trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_as_go_does() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("+0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1ns", 1, "1ns"),
            ("1.5us", 1_500, "1.5µs"),
            ("2µs", 2_000, "2µs"),
            ("300ms", 300_000_000, "300ms"),
            ("60s", 60_000_000_000, "1m0s"),
            ("300s", 300_000_000_000, "5m0s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("4h", 14_400_000_000_000, "4h0m0s"),
            ("2h45m", 9_900_000_000_000, "2h45m0s"),
            ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("1s500ms", 1_500_000_000, "1.5s"),
            ("3.000000001s", 3_000_000_001, "3.000000001s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            let parsed: GoDuration = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(parsed.nanos(), nanos, "{text}");
            assert_eq!(parsed.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "-",
            "3",
            "s",
            ".s",
            "1x",
            "1 s",
            " 1s",
            "1s ",
            "1e3s",
            "9223372036854775808ns",
            "3000000h",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?} was accepted");
        }
    }

    proptest::proptest! {
        #[test]
        fn printing_then_reading_gives_the_same(nanos: i64) {
            let duration = GoDuration::from_nanos(nanos);
            proptest::prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC*") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
