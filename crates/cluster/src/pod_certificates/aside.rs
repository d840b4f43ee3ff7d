//! Keys that take seconds, made while the agent goes on.
//!
//! They are made on a thread of their own, one after the other: a node that comes back asks
//! for many at once, and its processors are for its pods. Work that nobody waits for any more
//! ends within the test of one number, so none is left over, neither by pods that go nor when
//! the agent stops.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::keys::{self, KeyError, NewKey};

/// Makes keys. Whoever lets go of what it waits for wants no key any more.
#[async_trait]
pub trait KeyMaker: Send + Sync {
    /// A new key of this type.
    async fn make(&self, key_type: &str) -> Result<NewKey, KeyError>;
}

/// Makes a key, and asks now and then whether to stop.
type Work = fn(&str, &dyn Fn() -> bool) -> Result<NewKey, KeyError>;

/// Makes keys that take long on a thread, all others at once.
pub struct ThreadedKeys {
    turn: Arc<Semaphore>,
    work: Work,
}

impl Default for ThreadedKeys {
    fn default() -> Self {
        Self::new(keys::make)
    }
}

impl ThreadedKeys {
    fn new(work: Work) -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), work }
    }
}

#[async_trait]
impl KeyMaker for ThreadedKeys {
    async fn make(&self, key_type: &str) -> Result<NewKey, KeyError> {
        if !keys::is_slow(key_type) {
            return (self.work)(key_type, &|| false);
        }
        let turn = Arc::clone(&self.turn).acquire_owned().await.map_err(|_| KeyError::Crashed)?;
        // Lives for as long as somebody waits here.
        let wanted = Arc::new(());
        let wish = Arc::downgrade(&wanted);
        let (work, key_type) = (self.work, key_type.to_owned());
        // Not a task: it touches nothing of the agent's.
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&key_type, &|| wish.strong_count() == 0)
        });
        let made = made.await;
        drop(wanted);
        made.unwrap_or(Err(KeyError::Crashed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    /// Works until it is to stop, or, for the smaller keys, a moment.
    fn until_unwanted(key_type: &str, is_unwanted: &dyn Fn() -> bool) -> Result<NewKey, KeyError> {
        static AT_WORK: AtomicUsize = AtomicUsize::new(0);
        if !keys::is_slow(key_type) {
            return keys::make(key_type, is_unwanted);
        }
        assert_eq!(AT_WORK.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
        thread::sleep(10 * SOON);
        while key_type == "RSA4096" && !is_unwanted() {
            thread::sleep(SOON);
        }
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
        if is_unwanted() { Err(KeyError::Unwanted) } else { keys::make("ED25519", is_unwanted) }
    }

    #[tokio::test]
    async fn slow_keys_hold_nobody_up_and_are_made_in_turn() {
        let keys = ThreadedKeys::new(until_unwanted);
        let mut endless: Vec<_> = (0..5).map(|_| keys.make("RSA4096")).collect();
        for one in &mut endless {
            assert!(one.now_or_never().is_none());
        }
        let mut last = keys.make("RSA3072");
        assert!((&mut last).now_or_never().is_none());
        assert!(keys.make("ED25519").now_or_never().unwrap().is_ok(), "it need not wait");
        tokio::time::sleep(20 * SOON).await;
        assert!((&mut last).now_or_never().is_none(), "another is being made");
        drop(endless);
        assert!(last.await.is_ok(), "what nobody wants is in nobody's way");
    }

    #[tokio::test]
    async fn a_crash_is_told_and_gives_the_turn_back() {
        fn crash(_: &str, _: &dyn Fn() -> bool) -> Result<NewKey, KeyError> {
            panic!("on purpose")
        }
        let keys = ThreadedKeys::new(crash);
        for _ in 0..2 {
            assert_eq!(keys.make("RSA3072").await.unwrap_err(), KeyError::Crashed);
        }
    }
}
