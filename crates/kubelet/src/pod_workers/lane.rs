//! A turn at the runtime.
//!
//! A runtime that works on a hundred pods at once is slower than one that works
//! on sixteen. A lane is held for a while at the most, so calls that hang delay
//! others by that while, once, and never stop them. A pull holds none: it keeps
//! the registry busy, not the runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Longest hold: a sandbox takes a second or two, even on a busy node.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// At most one turn at a time.
#[derive(Default)]
pub(super) struct Lane(Mutex<Option<Turn>>);

struct Turn {
    /// Given back when dropped.
    _permit: OwnedSemaphorePermit,
    until: Instant,
}

impl Lane {
    /// No turn is held.
    pub(super) fn is_free(&self) -> bool {
        self.lock().is_none()
    }

    /// Waits for a turn.
    pub(super) async fn take(&self, lanes: &Arc<Semaphore>) {
        // The semaphore is never closed; without it there are simply no turns.
        let permit = Arc::clone(lanes).acquire_owned().await.ok();
        let turn = permit.map(|_permit| Turn { _permit, until: Instant::now() + HOLD_MAX });
        *self.lock() = turn;
    }

    /// Gives the turn back, if one is held.
    pub(super) fn give_back(&self) {
        *self.lock() = None;
    }

    /// Does the work; gives the turn back if it takes too long. The work may
    /// give it back sooner, but takes none.
    pub(super) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let until = self.lock().as_ref().map(|turn| turn.until);
        if let Some(until) = until {
            tokio::select! { biased;
                done = &mut work => return done,
                () = sleep_until(until) => self.give_back(),
            }
        }
        work.await
    }

    fn lock(&self) -> MutexGuard<'_, Option<Turn>> {
        self.0.lock().expect("lane lock: no code panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hung_call_gives_its_turn_back() {
        let lanes = Arc::new(Semaphore::new(1));
        let (hung, next) = (Lane::default(), Lane::default());
        hung.take(&lanes).await;
        let began = Instant::now();
        tokio::select! { biased;
            () = hung.during(std::future::pending()) => unreachable!("it hangs"),
            () = next.take(&lanes) => {}
        }
        assert_eq!(began.elapsed(), HOLD_MAX);
        assert!(!next.is_free());
    }

    #[tokio::test(start_paused = true)]
    async fn work_may_give_its_turn_back() {
        let lanes = Arc::new(Semaphore::new(1));
        let (pulls, next) = (Lane::default(), Lane::default());
        pulls.take(&lanes).await;
        let began = Instant::now();
        let pull = async {
            pulls.give_back();
            std::future::pending::<()>().await;
        };
        tokio::select! { biased;
            () = pulls.during(pull) => unreachable!("it hangs"),
            () = next.take(&lanes) => {}
        }
        assert!(began.elapsed().is_zero() && pulls.is_free());
    }
}
