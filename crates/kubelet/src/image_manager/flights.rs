//! Work that several callers want done once.
//!
//! Owns the list of what is under way. Whoever asks for the same key joins the
//! work instead of starting it again. Nothing is spawned: the callers drive it,
//! it ends with the last of them, and a caller that goes away takes nothing
//! from the others.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, Shared, WeakShared};

type Work<T> = BoxFuture<'static, T>;

/// Work under way by key. Cheap to clone.
pub struct Flights<K, T: Clone>(Arc<Mutex<BTreeMap<K, WeakShared<Work<T>>>>>);

impl<K, T: Clone> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone, T: Clone> Flights<K, T> {
    /// Joins the work of this key, or begins it.
    pub fn join<F>(&self, key: &K, begin: impl FnOnce() -> F) -> Shared<Work<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut flights = self.0.lock().expect("flight lock: no code panics while holding it");
        if let Some(work) = flights.get(key).and_then(WeakShared::upgrade)
            // What has ended is of yesterday, though a caller may still hold it.
            && work.peek().is_none()
        {
            return work;
        }
        flights.retain(|_, work| work.upgrade().is_some_and(|work| work.peek().is_none()));
        let work = begin().boxed().shared();
        if let Some(weak) = work.downgrade() {
            flights.insert(key.clone(), weak);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_share_and_survive_each_other() {
        let flights: Flights<&str, u32> = Flights::default();
        let begun = Arc::new(AtomicU32::new(0));
        let begin = || {
            let begun = Arc::clone(&begun);
            async move {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(5)).await;
                number
            }
        };
        let mut first = flights.join(&"a", begin);
        let second = flights.join(&"a", begin);
        let other = flights.join(&"b", begin);
        // The first starts the work and goes away.
        assert!(futures_util::poll!(&mut first).is_pending());
        drop(first);
        assert_eq!((second.clone().await, other.await), (0, 1));
        // The second still holds what has ended; a newcomer begins anew.
        assert_eq!(flights.join(&"a", begin).await, 2);
        drop(second);
        // Nobody left: the work ends unfinished.
        let mut lonely = flights.join(&"a", begin);
        assert!(futures_util::poll!(&mut lonely).is_pending());
        drop(lonely);
        assert_eq!(flights.join(&"a", begin).await, 4);
    }
}
