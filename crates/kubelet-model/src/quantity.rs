//! Quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! Exact fixed-point numbers, never floating point.
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
}
