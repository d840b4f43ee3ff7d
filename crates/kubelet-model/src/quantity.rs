//! Kubernetes quantities: `500m`, `1.5Gi`, `2e3`.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/resource.

/// The quantity in thousandths, rounded up; `None` if it is no quantity or does not fit.
pub fn milli(text: &str) -> Option<i64> {
    scaled(text, 1000)
}

/// The quantity in whole units, rounded up; `None` if it is no quantity or does not fit.
pub fn whole(text: &str) -> Option<i64> {
    scaled(text, 1)
}

fn scaled(text: &str, factor: i128) -> Option<i64> {
    let digits_end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (numerator, denominator) = decimal(number)?;
    let (up, down) = suffix_factor(suffix)?;
    let top = numerator.checked_mul(up)?.checked_mul(factor)?;
    let bottom = denominator.checked_mul(down)?;
    let rounded = top.div_euclid(bottom) + i128::from(top.rem_euclid(bottom) != 0);
    i64::try_from(rounded).ok()
}

/// A decimal number as a fraction.
fn decimal(text: &str) -> Option<(i128, i128)> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let joined = format!("{whole}{fraction}");
    if joined.is_empty() || !joined.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: i128 = joined.parse().ok()?;
    let denominator = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some((if negative { -value } else { value }, denominator))
}

/// Multiplier and divisor of a suffix.
fn suffix_factor(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1i128 << (10 * power), 1));
    let thousand = |power: u32| Some((1000i128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1_000)),
        "k" => thousand(1),
        "M" => thousand(2),
        "G" => thousand(3),
        "T" => thousand(4),
        "P" => thousand(5),
        "E" => thousand(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, in_milli, in_whole) in [
            ("1", Some(1000), Some(1)),
            ("500m", Some(500), Some(1)),
            ("0.1", Some(100), Some(1)),
            ("1.5Gi", Some(1_610_612_736_000), Some(1_610_612_736)),
            ("2e3", Some(2_000_000), Some(2000)),
            ("100M", Some(100_000_000_000), Some(100_000_000)),
            ("1E", None, Some(1_000_000_000_000_000_000)),
            ("-1", Some(-1000), Some(-1)),
            ("12u", Some(1), Some(1)),
            ("", None, None),
            ("x", None, None),
            ("1.2.3", None, None),
            ("1Q", None, None),
            ("1e99999", None, None),
        ] {
            assert_eq!((milli(text), whole(text)), (in_milli, in_whole), "{text}");
        }
    }
}
