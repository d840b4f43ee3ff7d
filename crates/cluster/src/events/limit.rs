//! So many requests a second, and so many at once. Pure: the time is an argument.
//!
//! Upstream: client-go util/flowcontrol.

use std::time::Duration;

use tokio::time::Instant;

/// At once, if nothing is said, as upstream's client.
const BURST: u32 = 10;

/// A bucket of tokens, kept as the time at which it is full.
#[derive(Debug)]
pub(super) struct Limit {
    /// Time for one token; `None` without a limit.
    each: Option<Duration>,
    burst: u32,
    full: Option<Instant>,
}

impl Limit {
    /// No limit if `qps` is 0.
    pub(super) fn new(qps: u32, burst: u32) -> Self {
        let each = (qps > 0).then(|| Duration::from_secs(1) / qps);
        Self { each, burst: if burst == 0 { BURST } else { burst }, full: None }
    }

    /// Takes a token that will be there at the returned time.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        let Some(each) = self.each else { return now };
        let full = self.full.map_or(now, |full| full.max(now)) + each;
        self.full = Some(full);
        let whole = each.saturating_mul(self.burst);
        full.checked_sub(whole).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_and_then_a_steady_flow() {
        let now = Instant::now() + Duration::from_secs(1_000);
        let after = |limit: &mut Limit, now: Instant| (limit.take(now) - now).as_millis();
        let mut limit = Limit::new(50, 3);
        let waits: Vec<u128> = (0..6).map(|_| after(&mut limit, now)).collect();
        assert_eq!(waits, [0, 0, 0, 20, 40, 60]);
        // All taken tokens are back after 120 ms, and no more than the burst.
        let later = now + Duration::from_secs(60);
        let waits: Vec<u128> = (0..4).map(|_| after(&mut limit, later)).collect();
        assert_eq!(waits, [0, 0, 0, 20]);
        let mut none = Limit::new(0, 5);
        assert!((0..10_000).all(|_| none.take(now) == now));
        let mut plain = Limit::new(5, 0);
        assert_eq!((0..11).map(|_| after(&mut plain, now)).max(), Some(200));
    }
}
