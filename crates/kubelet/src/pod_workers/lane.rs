//! A turn at the runtime.
//!
//! A runtime that works on a hundred pods at once is slower than one that works
//! on sixteen. A lane is held for a while at the most, so calls that hang delay
//! others by that while, once, and never stop them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Longest hold: a sandbox takes a second or two, even on a busy node.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// At most one turn at a time.
#[derive(Default)]
pub(super) struct Lane(Option<(OwnedSemaphorePermit, Instant)>);

impl Lane {
    /// No turn is held.
    pub(super) fn is_free(&self) -> bool {
        self.0.is_none()
    }

    /// Waits for a turn.
    pub(super) async fn take(&mut self, lanes: &Arc<Semaphore>) {
        // The semaphore is never closed; without it there are simply no turns.
        let permit = Arc::clone(lanes).acquire_owned().await.ok();
        self.0 = permit.map(|permit| (permit, Instant::now() + HOLD_MAX));
    }

    /// Does the work; gives the turn back if it takes too long.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Some((_, until)) = &self.0 {
            tokio::select! { biased;
                done = &mut work => return done,
                () = sleep_until(*until) => self.0 = None,
            }
        }
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hung_call_gives_its_turn_back() {
        let lanes = Arc::new(Semaphore::new(1));
        let (mut hung, mut next) = (Lane::default(), Lane::default());
        hung.take(&lanes).await;
        let began = Instant::now();
        tokio::select! { biased;
            () = hung.during(std::future::pending()) => unreachable!("it hangs"),
            () = next.take(&lanes) => {}
        }
        assert_eq!(began.elapsed(), HOLD_MAX);
        assert!(!next.is_free());
    }
}
