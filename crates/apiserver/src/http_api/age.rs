//! How long ago something was, in two units at most.
//!
//! Pure. Upstream: apimachinery pkg/util/duration.

use jiff::Timestamp;

/// The time since a moment, as `5s`, `3m20s`, `2d4h`.
pub(super) fn since(moment: &str, now: Timestamp) -> String {
    match moment.parse::<Timestamp>() {
        Ok(then) => short(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

fn short(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |unit: i64, word: char, less: i64, less_word: char| match (seconds % unit) / less {
        0 => format!("{}{word}", seconds / unit),
        rest => format!("{}{word}{rest}{less_word}", seconds / unit),
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_at_most() {
        for (seconds, expected) in [
            (-9, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3600, "60m"),
            (11_000, "3h3m"),
            (100_000, "27h"),
            (200_000, "2d7h"),
            (800_000, "9d"),
            (100_000_000, "3y62d"),
        ] {
            assert_eq!(short(seconds), expected, "{seconds}");
        }
        assert_eq!(since("1970-01-01T00:00:00Z", Timestamp::from_second(5).unwrap()), "5s");
        assert_eq!(since("", Timestamp::UNIX_EPOCH), "<unknown>");
    }
}
