//! Exponential back-off as data.
//!
//! The first failure costs nothing; each further one doubles the wait from the
//! initial delay to the maximum. A quiet stretch forgets it. Upstream: k8s.io/client-go/util/flowcontrol.

use std::time::Duration;

use crate::time::Mono;

/// Limits of a back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// First wait.
    pub initial: Duration,
    /// Longest wait.
    pub max: Duration,
    /// A quiet stretch this long forgets earlier failures.
    pub forget_after: Duration,
}

impl BackoffPolicy {
    /// Ten seconds doubling to `max`; a smaller `max` lowers the first wait too.
    pub fn up_to(max: Duration) -> Self {
        Self {
            initial: Duration::from_secs(10).min(max),
            max,
            forget_after: Duration::from_secs(600),
        }
    }
}

/// One thing's back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backoff {
    delay: Duration,
    advanced_at: Mono,
}

impl Backoff {
    /// The wait that a failure at `failed_at` must sit out; zero if there is none.
    pub fn delay(&self, policy: BackoffPolicy, failed_at: Mono) -> Duration {
        if self.is_stale(policy, failed_at) { Duration::ZERO } else { self.delay.min(policy.max) }
    }

    /// Notes that another try begins now, after a failure at `failed_at`.
    pub fn advance(&mut self, policy: BackoffPolicy, failed_at: Mono, now: Mono) {
        self.delay = if self.delay.is_zero() || self.is_stale(policy, failed_at) {
            policy.initial
        } else {
            self.delay.saturating_mul(2).min(policy.max)
        };
        self.advanced_at = now;
    }

    fn is_stale(&self, policy: BackoffPolicy, failed_at: Mono) -> bool {
        failed_at.since(self.advanced_at) > policy.forget_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_maximum_and_is_forgotten() {
        let policy = BackoffPolicy::up_to(Duration::from_secs(300));
        let mut backoff = Backoff::default();
        let mut now = Mono::default();
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.push(backoff.delay(policy, now).as_secs());
            backoff.advance(policy, now, now);
            now = now + Duration::from_secs(1);
        }
        assert_eq!(seen, [0, 10, 20, 40, 80, 160, 300, 300]);
        now = now + Duration::from_secs(601);
        assert_eq!(backoff.delay(policy, now), Duration::ZERO);
        backoff.advance(policy, now, now);
        assert_eq!(backoff.delay(policy, now).as_secs(), 10);
    }

    #[test]
    fn small_maximum_lowers_the_first_wait() {
        assert_eq!(BackoffPolicy::up_to(Duration::from_secs(1)).initial.as_secs(), 1);
    }
}
