//! A turn at what only some can use at once without slowing each other down.
//!
//! A lane is held for a while at the most, so calls that hang delay others by that
//! while, once, and never stop them.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// At most one turn at a time.
pub(crate) struct Lane {
    turn: Mutex<Option<Turn>>,
    hold_max: Duration,
}

struct Turn {
    /// Given back when dropped.
    _permit: OwnedSemaphorePermit,
    until: Instant,
}

impl Lane {
    /// Turns that are held this long at the most.
    pub(crate) fn new(hold_max: Duration) -> Self {
        Self { turn: Mutex::default(), hold_max }
    }

    /// No turn is held.
    pub(crate) fn is_free(&self) -> bool {
        self.lock().is_none()
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, lanes: &Arc<Semaphore>) {
        // The semaphore is never closed; without it there are simply no turns.
        let permit = Arc::clone(lanes).acquire_owned().await.ok();
        let turn = permit.map(|_permit| Turn { _permit, until: Instant::now() + self.hold_max });
        *self.lock() = turn;
    }

    /// Gives the turn back, if one is held.
    pub(crate) fn give_back(&self) {
        *self.lock() = None;
    }

    /// Does the work; gives the turn back if it takes too long. The work may
    /// give it back sooner, but takes none.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
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
        self.turn.lock().expect("lane lock: no code panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD_MAX: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_hung_call_gives_its_turn_back() {
        let lanes = Arc::new(Semaphore::new(1));
        let (hung, next) = (Lane::new(HOLD_MAX), Lane::new(HOLD_MAX));
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
        let (pulls, next) = (Lane::new(HOLD_MAX), Lane::new(HOLD_MAX));
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
