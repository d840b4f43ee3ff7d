//! Rates from two samples of a counter.
//!
//! Owns the last sample of each counter, for ten minutes at the longest. Upstream:
//! the cache of pkg/kubelet/stats/cri_stats_provider.go.

use std::collections::BTreeMap;

/// A sample lives this long, as upstream.
const KEEP_NANOS: i64 = 600 * NANOS;
/// A rate over less would jump about when several clients ask in turn.
const SPAN_NANOS_MIN: i64 = 5 * NANOS;
/// The first rate of a counter may be rougher: better than none.
const FIRST_SPAN_NANOS_MIN: i64 = NANOS / 10;
/// Counters remembered: those of a thousand pods of many containers.
const COUNTERS_MAX: usize = 16_384;
const NANOS: i64 = 1_000_000_000;

/// The last sample of a counter and the rate up to then.
#[derive(Debug, Clone, Copy)]
struct Record {
    at: i64,
    value: u64,
    rate: Option<u64>,
}

/// Remembers counters of nanoseconds to tell how many pass per second.
#[derive(Debug, Default)]
pub struct Sampler {
    records: BTreeMap<String, Record>,
}

impl Sampler {
    /// Takes a sample and tells the rate per second. `at` is in nanoseconds since
    /// the epoch. No rate yet: `None`.
    pub fn rate(&mut self, key: &str, at: i64, value: u64) -> Option<u64> {
        let Some(last) = self.records.get_mut(key) else {
            self.start(key, at, value);
            return None;
        };
        let span = at.saturating_sub(last.at);
        // A smaller value is another counter; a clock set back, another time.
        if value < last.value || span < -SPAN_NANOS_MIN {
            *last = Record { at, value, rate: None };
            return None;
        }
        let least = if last.rate.is_some() { SPAN_NANOS_MIN } else { FIRST_SPAN_NANOS_MIN };
        if span < least {
            return last.rate;
        }
        let rate = u128::from(value - last.value) * NANOS as u128 / u128::from(span.unsigned_abs());
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        *last = Record { at, value, rate: Some(rate) };
        Some(rate)
    }

    fn start(&mut self, key: &str, at: i64, value: u64) {
        if self.records.len() >= COUNTERS_MAX {
            self.forget(at);
        }
        // Still full: what is measured more often goes first come, first served.
        if self.records.len() < COUNTERS_MAX {
            self.records.insert(key.to_owned(), Record { at, value, rate: None });
        }
    }

    /// Forgets counters that were not sampled lately.
    pub fn forget(&mut self, now: i64) {
        self.records.retain(|_, record| now.saturating_sub(record.at).abs() <= KEEP_NANOS);
    }

    /// How many counters are remembered.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Is none remembered?
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTERS_MAX, KEEP_NANOS, NANOS, Sampler};

    #[test]
    fn rates_of_a_series() {
        let second = |n: i64| 1_700_000_000 * NANOS + n * NANOS;
        // (seconds, counter, rate)
        let table: [(i64, u64, Option<u64>); 8] = [
            (0, 1_000, None),
            // The first rate comes after a second already.
            (1, 1_000 + 500_000_000, Some(500_000_000)),
            // Too soon: the rate stays, and so does its sample.
            (2, 1_000 + 999_000_000, Some(500_000_000)),
            (11, 1_000 + 20_500_000_000, Some(2_000_000_000)),
            // Started anew.
            (21, 10, None),
            (31, 10_000_000_010, Some(1_000_000_000)),
            // The clock was set back.
            (-600, 10_000_000_020, None),
            (-590, 10_000_000_020, Some(0)),
        ];
        let mut sampler = Sampler::default();
        for (at, value, expected) in table {
            assert_eq!(sampler.rate("a", second(at), value), expected, "at {at}");
        }
        assert_eq!(sampler.rate("b", second(0), 5), None, "another counter");
    }

    #[test]
    fn wild_samples_do_no_harm() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.rate("a", i64::MIN, 0), None);
        assert_eq!(sampler.rate("a", i64::MAX, u64::MAX), Some(2_000_000_000));
        assert_eq!(sampler.rate("a", i64::MIN, u64::MAX), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sampler = Sampler::default();
        for n in 0..COUNTERS_MAX + 10 {
            sampler.rate(&n.to_string(), 0, 1);
        }
        assert_eq!(sampler.len(), COUNTERS_MAX);
        assert_eq!(sampler.rate("late", KEEP_NANOS + 1, 1), None);
        assert_eq!(sampler.len(), 1, "old ones gave way");
        sampler.forget(3 * KEEP_NANOS);
        assert!(sampler.is_empty());
    }
}
