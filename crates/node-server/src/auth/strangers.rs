//! How often somebody may show tokens that mean nothing.
//!
//! Each peer has an allowance of questions to the API server about tokens that nobody
//! has vouched for; it grows back with time. A question whose token proves good costs
//! nothing, and a token that was good not long ago is always asked about again: whoever
//! floods an address from which honest clients come too keeps none of them out for long.
//! Upstream has one rate for all calls of the node, its own included.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Questions at once.
const BURST: u32 = 20;
/// One more after this time.
const EVERY: Duration = Duration::from_secs(1);
/// Peers that are remembered; who has a full allowance need not be.
const PEERS_MAX: usize = 4096;

/// What peers have used.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<BTreeMap<IpAddr, Used>>);

#[derive(Debug, Clone, Copy)]
struct Used {
    count: u32,
    /// Until when it was counted.
    at: Instant,
}

impl Used {
    /// With what has grown back until now.
    fn by(self, now: Instant) -> Self {
        let periods = now.saturating_duration_since(self.at).as_secs() / EVERY.as_secs();
        let back = u32::try_from(periods).unwrap_or(u32::MAX).min(self.count);
        let count = self.count - back;
        // What is left of a period counts for the next one.
        let at = if count == 0 { now } else { self.at + EVERY * back };
        Self { count, at }
    }
}

impl Strangers {
    fn used(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Used>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one of a peer's questions; false if it has none left.
    pub(super) fn take(&self, peer: IpAddr, now: Instant) -> bool {
        let mut used = self.used();
        if used.len() >= PEERS_MAX && !used.contains_key(&peer) {
            used.retain(|_, used| used.by(now).count > 0);
            // Too many peers with little left: the mildest of them is forgotten.
            let mildest = used.iter().min_by_key(|(_, used)| used.by(now).count);
            let mildest = mildest.map(|(peer, _)| *peer).filter(|_| used.len() >= PEERS_MAX);
            if let Some(mildest) = mildest {
                used.remove(&mildest);
            }
        }
        let mut of = used.get(&peer).map_or(Used { count: 0, at: now }, |used| used.by(now));
        let may = of.count < BURST;
        of.count += u32::from(may);
        used.insert(peer, of);
        may
    }

    /// Gives one back: its token was good, or nobody could say.
    pub(super) fn give_back(&self, peer: IpAddr) {
        let mut used = self.used();
        if let Some(of) = used.get_mut(&peer) {
            of.count = of.count.saturating_sub(1);
            if of.count == 0 {
                used.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[tokio::test(start_paused = true)]
    async fn an_allowance_is_used_up_and_grows_back() {
        let strangers = Strangers::default();
        let begun = Instant::now();
        let taken = (0..100).filter(|_| strangers.take(peer(1), begun)).count();
        assert_eq!(taken, 20);
        assert!(strangers.take(peer(2), begun), "another peer has its own");
        assert!(!strangers.take(peer(1), begun + EVERY / 2));
        assert!(strangers.take(peer(1), begun + EVERY * 3 / 2));
        // Half a period was left over.
        assert!(strangers.take(peer(1), begun + EVERY * 2));
        assert!(!strangers.take(peer(1), begun + EVERY * 2));
        strangers.give_back(peer(1));
        assert!(strangers.take(peer(1), begun + EVERY * 2));
        let much_later = begun + EVERY * 1000;
        let taken = (0..100).filter(|_| strangers.take(peer(1), much_later)).count();
        assert_eq!(taken, 20);
        // Clocks that stand still or go back do no harm.
        assert!(!strangers.take(peer(1), begun));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_were_many_are_forgotten() {
        let strangers = Strangers::default();
        let now = Instant::now();
        let size = u32::try_from(PEERS_MAX).unwrap();
        for n in 0..size + 100 {
            assert!(strangers.take(peer(n), now));
        }
        assert_eq!(strangers.used().len(), PEERS_MAX);
        for _ in 0..BURST {
            strangers.take(peer(size), now);
        }
        // The greedy one is not the first to be forgotten.
        for n in 4 * size..4 * size + 200 {
            strangers.take(peer(n), now);
        }
        assert!(!strangers.take(peer(size), now));
        assert!(strangers.take(peer(1), now + EVERY * 2));
        assert!(strangers.used().len() <= PEERS_MAX);
        strangers.give_back(peer(1));
        assert!(!strangers.used().contains_key(&peer(1)));
    }
}
