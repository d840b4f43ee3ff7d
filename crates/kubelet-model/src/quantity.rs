//! Quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! Exact fixed-point numbers, never floating point, and their canonical text.
//! Upstream: apimachinery/pkg/api/resource.

/// Nano-units per unit: upstream's finest scale.
const NANO: i128 = 1_000_000_000;
/// Upstream caps at this many units.
const UNITS_MAX: i128 = i64::MAX as i128;

/// A quantity in nano-units; finer parts are rounded up, larger ones capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

impl Quantity {
    /// Parses a quantity; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end =
            unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let nano = scaled(whole, fraction, scale_of(suffix)?);
        Some(Self(if negative { -nano } else { nano }))
    }

    /// Whole units, rounded up.
    pub fn units(self) -> i64 {
        ceil_div(self.0, NANO)
    }

    /// Thousandths, rounded up and capped.
    pub fn milli(self) -> i64 {
        ceil_div(self.0, NANO / 1_000)
    }

    /// Is it exactly zero?
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Is it below zero?
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The text of so many thousandths: `500m`, `2`.
    pub fn milli_text(milli: i64) -> String {
        Self(i128::from(milli) * (NANO / 1_000)).decimal(false)
    }

    /// The text of so many bytes: `64Mi`.
    pub fn bytes_text(bytes: i64) -> String {
        Self(i128::from(bytes) * NANO).binary()
    }

    /// The fewest digits before a suffix whose power is a multiple of three.
    fn decimal(self, exponent_form: bool) -> String {
        if self.0 == 0 {
            return "0".to_owned();
        }
        let (mut number, mut power) = (self.0, -9_i32);
        while number % 10 == 0 {
            number /= 10;
            power += 1;
        }
        while power.rem_euclid(3) != 0 {
            number *= 10;
            power -= 1;
        }
        let suffix = match power {
            0 => String::new(),
            power if exponent_form => format!("e{power}"),
            power => {
                let at = usize::try_from(power / 3 + 3).unwrap_or(0);
                ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(at).unwrap_or(&"").to_string()
            }
        };
        format!("{number}{suffix}")
    }

    /// Whole units before a suffix of 1024s; what that would round, or is small
    /// anyway, is written in tens.
    fn binary(self) -> String {
        if self.0.abs() < 1024 * NANO || self.0 % NANO != 0 {
            return self.decimal(false);
        }
        let (mut number, mut power) = (self.0 / NANO, 0);
        while number % 1024 == 0 {
            number /= 1024;
            power += 1;
        }
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power).unwrap_or(&"");
        format!("{number}{suffix}")
    }
}

/// A quantity as upstream writes it back, whatever form it was given in: `0.5`
/// is `500m`, `1024Mi` is `1Gi`. `None` if the text is not one.
pub fn canonical(text: &str) -> Option<String> {
    let quantity = Quantity::parse(text)?;
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    Some(match suffix.as_bytes() {
        [.., b'i'] => quantity.binary(),
        [b'e' | b'E', _, ..] => quantity.decimal(true),
        _ => quantity.decimal(false),
    })
}

/// Rounds away from zero, as upstream does.
fn ceil_div(value: i128, by: i128) -> i64 {
    let whole = value / by + i128::from(value % by != 0) * value.signum();
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

/// What a suffix multiplies by.
enum Scale {
    /// A power of ten.
    Ten(i32),
    /// A power of two.
    Two(u32),
}

fn scale_of(suffix: &str) -> Option<Scale> {
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
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // Anything this far out is capped or rounded up to one nano-unit.
            let value: i32 = digits.parse().unwrap_or(10_000).min(10_000);
            Scale::Ten(if exponent.starts_with('-') { -value } else { value })
        }
    })
}

/// `whole.fraction` × scale in nano-units, rounded up, capped.
fn scaled(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let cap = UNITS_MAX * NANO;
    let (factor, shift) = match scale {
        Scale::Ten(power) => (1_i128, power + 9),
        Scale::Two(power) => ((1_i128 << power) * NANO, 0),
    };
    // Digit by digit, most significant first: value × 10^(places right of here).
    let places = i32::try_from(whole.len()).unwrap_or(i32::MAX);
    let mut total = 0_i128;
    let mut rounds_up = false;
    for (at, digit) in (0_i32..).zip(whole.bytes().chain(fraction.bytes())) {
        let digit = i128::from(digit - b'0');
        let power = places.saturating_sub(1).saturating_sub(at).saturating_add(shift);
        if digit == 0 {
            continue;
        }
        match u32::try_from(power) {
            Ok(power) => {
                let add = 10_i128
                    .checked_pow(power)
                    .and_then(|ten| ten.checked_mul(digit))
                    .and_then(|value| value.checked_mul(factor));
                total = total.saturating_add(add.unwrap_or(cap)).min(cap);
            }
            Err(_) => {
                let ten = 10_i128.checked_pow(power.unsigned_abs());
                let scaled = digit * factor;
                let part = ten.map_or(0, |ten| scaled / ten);
                rounds_up |= ten.is_none_or(|ten| scaled % ten != 0);
                total = total.saturating_add(part).min(cap);
            }
        }
    }
    (total + i128::from(rounds_up)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        let milli = |text: &str| Quantity::parse(text).map(Quantity::milli);
        assert_eq!(milli("100m"), Some(100));
        assert_eq!(milli("0.1"), Some(100));
        assert_eq!(milli(".5"), Some(500));
        assert_eq!(milli("2."), Some(2_000));
        assert_eq!(milli("+1e3"), Some(1_000_000));
        assert_eq!(milli("15e-1"), Some(1_500));
        assert_eq!(milli("1n"), Some(1));
        assert_eq!(milli("-1"), Some(-1_000));
        assert_eq!(Quantity::parse("1.5Gi").map(Quantity::units), Some(1_610_612_736));
        assert_eq!(Quantity::parse("9999999999E").map(Quantity::units), Some(i64::MAX));
        assert_eq!(Quantity::parse("1e999999999999").map(Quantity::units), Some(i64::MAX));
        assert_eq!(Quantity::parse("1e-999999999999").map(Quantity::units), Some(1));
        for text in ["", "m", ".", "1.2.3", "1 Gi", "1gi", "--1", "1e", "1e+", "abc", "1Kim", "١"]
        {
            assert_eq!(milli(text), None, "{text:?}");
        }
    }

    #[test]
    fn orders_across_units() {
        assert!(Quantity::parse("1000m") == Quantity::parse("1"));
        assert!(Quantity::parse("1023Mi") < Quantity::parse("1Gi"));
        assert!(Quantity::parse("1G") < Quantity::parse("1Gi"));
    }

    #[test]
    fn writes_what_upstream_writes() {
        for (text, expected) in [
            ("0", "0"),
            ("0Mi", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("100u", "100u"),
            ("2000", "2k"),
            ("1500", "1500"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.3Ki", "307200m"),
            ("64M", "64M"),
            ("134217728", "134217728"),
            ("1e3", "1e3"),
            ("12E2", "1200"),
            ("1E", "1E"),
            ("-1500m", "-1500m"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(canonical("much"), None);
        assert_eq!(
            (Quantity::milli_text(0), Quantity::milli_text(2_500)),
            ("0".into(), "2500m".into())
        );
        assert_eq!(
            (Quantity::bytes_text(1 << 26), Quantity::bytes_text(1000)),
            ("64Mi".into(), "1k".into())
        );
    }
}
