//! So many requests a second, and so many at once.
//!
//! [`Limit`] is pure: the time is an argument. [`Pace`] is one that several clients share:
//! whoever came first goes first, and one that no longer waits takes nothing.
//! Upstream: client-go util/flowcontrol.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// At once, if nothing is said, as upstream's client.
const BURST: u32 = 10;

/// A bucket of tokens, kept as the time at which it is full.
#[derive(Debug)]
pub struct Limit {
    /// Time for one token; `None` without a limit.
    each: Option<Duration>,
    burst: u32,
    full: Option<Instant>,
}

impl Limit {
    /// No limit if `qps` is 0.
    pub fn new(qps: u32, burst: u32) -> Self {
        let each = (qps > 0).then(|| Duration::from_secs(1) / qps);
        Self { each, burst: if burst == 0 { BURST } else { burst }, full: None }
    }

    /// When the next token is there. Takes none.
    pub fn next(&self, now: Instant) -> Instant {
        let Some(each) = self.each else { return now };
        let full = self.full.map_or(now, |full| full.max(now)) + each;
        let whole = each.saturating_mul(self.burst);
        full.checked_sub(whole).map_or(now, |at| at.max(now))
    }

    /// Takes a token that will be there at the returned time.
    pub fn take(&mut self, now: Instant) -> Instant {
        let at = self.next(now);
        if let Some(each) = self.each {
            self.full = Some(self.full.map_or(now, |full| full.max(now)) + each);
        }
        at
    }
}

/// A limit that clients share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pace(Arc<Mutex<Limit>>);

impl Pace {
    /// All clones together keep within the limit.
    pub fn new(limit: Limit) -> Self {
        Self(Arc::new(Mutex::new(limit)))
    }

    /// Waits for a token, and takes it. Locked while it waits: those who come later wait
    /// for the lock, in the order they came.
    pub async fn turn(&self) {
        let mut limit = self.0.lock().await;
        sleep_until(limit.next(Instant::now())).await;
        limit.take(Instant::now());
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests are no part of the agent")]
mod tests {
    use super::*;
    use crate::{Access, Api as _, ApiClient, ApiError, Call};

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

    #[tokio::test(start_paused = true)]
    async fn two_hundred_at_once_go_ten_and_then_five_a_second() {
        let pace = Pace::new(Limit::new(5, 10));
        let begun = Instant::now();
        let turn = |pace: Pace| async move {
            pace.turn().await;
            begun.elapsed()
        };
        let waiting: Vec<_> = (0..200).map(|_| tokio::spawn(turn(pace.clone()))).collect();
        let mut went = Vec::new();
        for one in waiting {
            went.push(one.await.unwrap());
        }
        assert!(went.is_sorted(), "whoever came first goes first: {went:?}");
        for second in 0..=38 {
            let until = went.iter().filter(|at| **at <= Duration::from_secs(second)).count();
            let second = usize::try_from(second).unwrap();
            // A timer may be a millisecond late, and never early.
            assert!((10 + 5 * second.saturating_sub(1)..=10 + 5 * second).contains(&until));
        }
        assert!(went[199] >= Duration::from_secs(38) && went[199] < Duration::from_secs(39));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_no_longer_waits_takes_nothing() {
        let pace = Pace::new(Limit::new(1, 1));
        pace.turn().await;
        let begun = Instant::now();
        for _ in 0..100 {
            let soon = tokio::time::timeout(Duration::from_millis(5), pace.turn()).await;
            assert!(soon.is_err(), "there is no token yet");
        }
        pace.turn().await;
        assert!(begun.elapsed() < Duration::from_millis(1_010), "{:?}", begun.elapsed());
    }

    /// No server is asked: its address cannot be, so that an answer comes at once.
    #[tokio::test(start_paused = true)]
    async fn clients_share_a_pace_and_heartbeats_have_none() {
        let access = Access {
            server: "http://no server".to_owned(),
            authority: None,
            server_name: None,
            insecure: false,
            certificate: None,
            token: None,
            exec: None,
        };
        let client = || {
            let clock: crate::Clock = Arc::new(jiff::Timestamp::now);
            ApiClient::new(access.clone(), "test", clock).expect("a client")
        };
        let pace = Some(Pace::new(Limit::new(5, 10)));
        let both = [client().at_pace(pace.clone()), client().at_pace(pace)];
        let begun = Instant::now();
        let calls: Vec<_> = (0..200)
            .map(|number: usize| {
                let client = both[number % 2].clone();
                tokio::spawn(async move { client.call(Call::get("/")).await })
            })
            .collect();
        for call in calls {
            let answer = call.await.expect("no panic");
            assert!(matches!(answer, Err(ApiError::Unusable(_))), "{answer:?}");
        }
        assert_eq!(begun.elapsed().as_secs(), 38, "10 at once, and 190 by five a second");
        // A watch and a heartbeat wait for nobody.
        let begun = Instant::now();
        for _ in 0..100 {
            assert!(both[0].watch("/").await.is_err());
            assert!(both[0].at_pace(None).call(Call::get("/")).await.is_err());
        }
        assert!(begun.elapsed() < Duration::from_millis(1), "{:?}", begun.elapsed());
    }
}
