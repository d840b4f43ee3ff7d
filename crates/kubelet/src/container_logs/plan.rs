//! When to look at a log, and what rotating it means. Pure.
//!
//! Upstream looks every interval only, so a log can grow without bound in
//! between. Here a log's own growth decides when it is looked at next.

use std::time::Duration;

use jiff::Timestamp;

/// Logs are never looked at more often than this.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(250);
/// A log that has just grown is looked at as often as this, however slow it is:
/// it may grow faster at any time, and only silent ones have an alarm.
pub(super) const AWAKE_LOOK: Duration = Duration::from_secs(1);
/// Until the second look, which tells how fast a log without an alarm grows.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Of a compressed log.
pub(super) const GZIPPED: &str = ".gz";
/// Of a compressed log that is still being written.
pub(super) const UNFINISHED: &str = ".tmp";

/// How long a log of `size` bytes can be left alone, `longest` at most. `rate` is
/// its growth in bytes per second, once known. Looking again after half the time
/// that is left catches a log that grows faster than it used to.
pub(super) fn next_look(size: u64, rate: Option<u64>, max: u64, longest: Duration) -> Duration {
    let wait = match rate {
        None => SECOND_LOOK,
        Some(0) => longest,
        Some(rate) => {
            let left_ms = u128::from(max.saturating_sub(size)) * 1_000 / u128::from(rate) / 2;
            Duration::from_millis(u64::try_from(left_ms).unwrap_or(u64::MAX))
        }
    };
    wait.max(LOOK_MIN).min(longest)
}

/// The next moment at which all slow logs are looked at together, after
/// `elapsed` since the first: many of them cost one wake-up a second.
pub(super) fn common_look(elapsed: Duration) -> Duration {
    let step = AWAKE_LOOK.as_millis();
    // Not so soon that a log which writes a line a second seems silent.
    let earliest = elapsed.as_millis() + step / 2;
    Duration::from_millis(u64::try_from(earliest.div_ceil(step) * step).unwrap_or(u64::MAX))
}

/// Growth in bytes per second after a log grew by `grown` in `over`. A pause
/// does not make a chatty container quiet at once.
pub(super) fn growth(previous: Option<u64>, grown: u64, over: Duration) -> u64 {
    let milliseconds = over.as_millis().max(1);
    let seen = u128::from(grown) * 1_000 / milliseconds;
    u64::try_from(seen).unwrap_or(u64::MAX).max(previous.unwrap_or(0) / 2)
}

/// What to do with the rotated files of a log before it is rotated once more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rotation {
    /// Removed, in this order: oldest first, so that readers are not cut short.
    pub remove: Vec<String>,
    /// Compressed.
    pub compress: Vec<String>,
}

/// Splits the rotated files of one log, given by name.
pub(super) fn rotation(mut rotated: Vec<String>, max_files: usize) -> Rotation {
    rotated.sort();
    let (mut kept, mut remove): (Vec<String>, Vec<String>) =
        rotated.iter().cloned().partition(|name| is_in_use(name, &rotated));
    // Besides these there will be the file about to be rotated, and a new one.
    let excess = kept.len().saturating_sub(max_files.saturating_sub(2));
    remove.extend(kept.drain(..excess));
    kept.retain(|name| !name.ends_with(GZIPPED));
    Rotation { remove, compress: kept }
}

/// Not in use: unfinished files, and those that have been compressed already.
pub(super) fn is_in_use(name: &str, sorted: &[String]) -> bool {
    if name.ends_with(UNFINISHED) {
        return false;
    }
    name.ends_with(GZIPPED) || sorted.binary_search(&format!("{name}{GZIPPED}")).is_err()
}

/// The name a log is moved to. In UTC, so that no change of the clock for
/// summer time makes a newer log look older.
pub(super) fn rotated_name(log: &str, now: Timestamp) -> String {
    format!("{log}.{}", now.strftime("%Y%m%d-%H%M%S"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);
    const MI: u64 = 1 << 20;

    #[test]
    fn growth_decides_the_next_look() {
        let cases: &[(u64, Option<u64>, u64)] = &[
            // A new log is looked at again soon, an idle one at the interval.
            (0, None, 1_000),
            (5 * MI, Some(0), 10_000),
            // 10 MiB at 1 MiB/s: half of ten seconds, then half of the rest.
            (0, Some(MI), 5_000),
            (5 * MI, Some(MI), 2_500),
            // As good as full, or growing as fast as a disk takes it.
            (10 * MI - 1, Some(MI), 250),
            (0, Some(1_000 * MI), 250),
            (20 * MI, Some(1), 250),
            // Slow growth is left to the interval.
            (0, Some(1), 10_000),
        ];
        for (size, rate, expected) in cases {
            let wait = next_look(*size, *rate, 10 * MI, INTERVAL);
            assert_eq!(wait, Duration::from_millis(*expected), "{size} {rate:?}");
        }
    }

    #[test]
    fn growth_fades_slowly() {
        let second = Duration::from_secs(1);
        assert_eq!(growth(None, 500, second / 2), 1_000);
        assert_eq!(growth(Some(1_000), 0, second), 500);
        assert_eq!(growth(Some(1_000), 3_000, second), 3_000);
        assert_eq!(growth(None, 0, second), 0);
        assert_eq!(growth(None, 7, Duration::ZERO), 7_000);
    }

    #[test]
    fn slow_logs_are_looked_at_together() {
        for (elapsed, expected) in [(0, 1), (500, 1), (501, 2), (1_000, 2), (59_400, 60)] {
            let found = common_look(Duration::from_millis(elapsed));
            assert_eq!(found, Duration::from_secs(expected), "{elapsed}");
        }
    }

    fn check(names: &[&str], max_files: usize, remove: &[&str], compress: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let expected = Rotation { remove: owned(remove), compress: owned(compress) };
        assert_eq!(rotation(owned(names), max_files), expected, "{names:?}");
    }

    #[test]
    fn rotated_files_are_cleaned_trimmed_and_compressed() {
        check(&[], 5, &[], &[]);
        check(&["l.2", "l.1.gz"], 5, &[], &["l.2"]);
        // Leftovers of a rotation that was cut short.
        check(&["l.1", "l.1.gz", "l.2.tmp", "l.2"], 5, &["l.1", "l.2.tmp"], &["l.2"]);
        // Oldest first, down to two fewer than may be.
        check(&["l.3", "l.2.gz", "l.1.gz", "l.0.gz"], 4, &["l.0.gz", "l.1.gz"], &["l.3"]);
        check(&["l.3", "l.2.gz"], 2, &["l.2.gz", "l.3"], &[]);
    }

    #[test]
    fn the_name_carries_the_time() {
        let now: Timestamp = "2026-11-15T23:07:09.5Z".parse().expect("a time");
        assert_eq!(rotated_name("0.log", now), "0.log.20261115-230709");
    }

    proptest! {
        #[test]
        fn looks_stay_between_their_bounds(
            size: u64, rate: Option<u64>, max in 1..u64::MAX, secs in 3_u64..3_600,
        ) {
            let interval = Duration::from_secs(secs);
            let wait = next_look(size, rate, max, interval);
            prop_assert!((LOOK_MIN..=interval).contains(&wait));
        }

        #[test]
        fn never_more_files_than_allowed(
            names in proptest::collection::btree_set("l\\.[0-9]{1,3}(\\.gz|\\.tmp)?", 0..12),
            max_files in 2_usize..6,
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let plan = rotation(names.clone(), max_files);
            prop_assert!(names.len() - plan.remove.len() <= max_files - 2);
            for name in &plan.compress {
                prop_assert!(names.contains(name) && !plan.remove.contains(name));
            }
        }
    }
}
