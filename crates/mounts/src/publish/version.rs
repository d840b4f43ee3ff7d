//! Names of the directories that each hold one version of a volume's content:
//! `..YYYY_MM_DD_HH_MM_SS.<digits>`, in UTC. No I/O.

use std::time::{SystemTime, UNIX_EPOCH};

/// Digits, as anything else would be a letter.
const SHAPE: &str = "..0000_00_00_00_00_00.";
/// More digits than any publisher writes.
const DIGITS_MAX: usize = 20;
/// The last second of the year 9999, which fits the shape.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A name for a version written at a time.
pub(super) fn name(now: SystemTime, suffix: u32) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().min(SECONDS_MAX);
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("..{year:04}_{month:02}_{day:02}_{hour:02}_{minute:02}_{second:02}.{suffix}")
}

/// Whether a publisher could have written this name.
pub(super) fn is_name(name: &[u8]) -> bool {
    let Some((front, digits)) = name.split_at_checked(SHAPE.len()) else { return false };
    let fits = |(byte, shape): (&u8, u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        other => *byte == other,
    };
    front.iter().zip(SHAPE.bytes()).all(fits)
        && (1..=DIGITS_MAX).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
}

/// Year, month and day of a number of days since 1970 began.
fn date(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that a leap day ends one; 719,468 days
    // before 1970 began the first March of a cycle of 400 years.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_are_times_in_utc() {
        for (seconds, wanted) in [
            (0, "..1970_01_01_00_00_00.7"),
            (951_782_400, "..2000_02_29_00_00_00.7"),
            (951_868_799, "..2000_02_29_23_59_59.7"),
            (1_454_338_999, "..2016_02_01_15_03_19.7"),
            (1_798_761_599, "..2026_12_31_23_59_59.7"),
            (4_107_542_400, "..2100_03_01_00_00_00.7"),
            (u64::from(u32::MAX) * 100, "..9999_12_31_23_59_59.7"),
        ] {
            let name = name(UNIX_EPOCH + Duration::from_secs(seconds), 7);
            assert_eq!(name, wanted);
            assert!(is_name(name.as_bytes()));
        }
        assert_eq!(name(UNIX_EPOCH - Duration::from_secs(1), 0), "..1970_01_01_00_00_00.0");
    }

    #[test]
    fn other_names_are_not_taken_for_versions() {
        for name in [
            "",
            "..data",
            "..",
            "/etc",
            "../../etc",
            "..2016_02_01_15_03_19.",
            "..2016_02_01_15_03_19",
            "..2016_02_01_15_03_19.12a",
            "..2016_02_01_15_03_19.1/../..",
            "..2016-02-01_15_03_19.1",
            "..2016_02_01_15_03_19.111111111111111111111",
        ] {
            assert!(!is_name(name.as_bytes()), "{name}");
        }
    }
}
