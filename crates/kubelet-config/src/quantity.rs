//! Resource quantities: `500m`, `100Mi`, `1e3`.
//!
//! Owns syntax, sign and magnitude, which is what checking a configuration
//! needs; keeps the text as written. Upstream: apimachinery/pkg/api/resource.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest accepted text: the largest meaningful quantity has some 40 characters.
const MAX_LEN: usize = 128;
/// Upstream caps magnitudes at 2^63-1 units; ours are counted in billionths.
const MAX_NANOS: i128 = (i64::MAX as i128) * 1_000_000_000;

/// A decimal number with a unit suffix. Parts below a billionth are rounded up, as upstream does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    nanos: i128,
}

/// Text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a quantity; write a number with an optional suffix such as 500m, 2, 100Mi or 10G"
)]
pub struct QuantityError(String);

impl Quantity {
    /// Below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }
    /// Exactly zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }
    /// Whole units, rounded away from zero, capped at the range of `i64`.
    pub fn value(&self) -> i64 {
        let unit = 1_000_000_000;
        let whole = if self.nanos >= 0 {
            (self.nanos + unit - 1) / unit
        } else {
            (self.nanos - unit + 1) / unit
        };
        i64::try_from(whole).unwrap_or(if whole > 0 { i64::MAX } else { i64::MIN })
    }
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || QuantityError(text.to_owned());
        if text.is_empty() || text.len() > MAX_LEN {
            return Err(bad());
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = unsigned
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(bad());
        }
        let scale = parse_suffix(suffix).ok_or_else(bad)?;
        let magnitude = magnitude_nanos(whole, fraction, scale);
        let nanos = if negative { -magnitude } else { magnitude };
        Ok(Self {
            text: text.to_owned(),
            nanos,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Scale {
    /// A power of ten.
    Ten(i32),
    /// A power of two.
    Two(u32),
}

fn parse_suffix(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "" => Scale::Ten(0),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit())
            {
                return None;
            }
            Scale::Ten(exponent.trim_start_matches('+').parse().ok()?)
        }
    })
}

/// Billionths of a unit, rounded up, capped.
fn magnitude_nanos(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let digits = whole
        .bytes()
        .chain(fraction.bytes())
        .skip_while(|b| *b == b'0');
    let mut mantissa: i128 = 0;
    let mut dropped = 0_i32;
    for digit in digits {
        // 30 digits leave room for the largest binary suffix to be told from the cap.
        if mantissa < 10_i128.pow(30) {
            mantissa = mantissa * 10 + i128::from(digit - b'0');
        } else {
            dropped += 1;
        }
    }
    let ten = dropped
        .saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX))
        .saturating_add(9);
    let (ten, shift) = match scale {
        Scale::Ten(power) => (ten.saturating_add(power), 0),
        Scale::Two(shift) => (ten, shift),
    };
    if mantissa == 0 {
        return 0;
    }
    let Some(shifted) = mantissa.checked_mul(1_i128 << shift) else {
        return MAX_NANOS;
    };
    let scaled = if ten >= 0 {
        10_i128
            .checked_pow(ten.unsigned_abs())
            .and_then(|p| shifted.checked_mul(p))
            .unwrap_or(MAX_NANOS)
    } else {
        match 10_i128.checked_pow(ten.unsigned_abs()) {
            Some(p) => shifted / p + i128::from(shifted % p != 0),
            None => 1,
        }
    };
    scaled.min(MAX_NANOS)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Quantities are strings on the wire; plain numbers are accepted too.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"100Mi\" or a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_values() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("500m", 1),
            ("1500m", 2),
            ("-1500m", -2),
            ("100Mi", 104_857_600),
            ("1.5Gi", 1_610_612_736),
            ("10k", 10_000),
            ("2e3", 2_000),
            ("2E3", 2_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e-1", 1),
            (".5", 1),
            ("1.", 1),
            ("+3", 3),
            ("8Ei", i64::MAX),
            ("99999999999999999999", i64::MAX),
            ("1e999999", i64::MAX),
            ("0e999999", 0),
            ("1n", 1),
        ] {
            let quantity: Quantity = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(quantity.value(), value, "{text}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for text in [
            "", "-", ".", "1.2.3", "1mi", "1KiB", " 1", "1 ", "x", "1e", "1e+", "5%", "--1",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?} was accepted");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC*") {
            let _ = text.parse::<Quantity>();
        }
        #[test]
        fn numbers_with_any_suffix_do_not_panic(
            text in "[+-]?[0-9]{0,60}\\.?[0-9]{0,60}([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,10})?"
        ) {
            let _ = text.parse::<Quantity>();
        }
    }
}
