//! Who has to hear of changes to something.
//!
//! Every follower has a watch of its own: they wake in the order they came, so
//! that simulation can replay it. Never says what has changed: followers look.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

/// Followers, each with what it cares for. Cheap to clone.
pub struct Followers<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    all: BTreeMap<u64, (T, watch::Sender<()>)>,
    /// How many there were, ever.
    count: u64,
    /// How often one came or went.
    changes: watch::Sender<u64>,
}

/// Follows until it is dropped.
pub struct Following<T> {
    number: u64,
    changed: watch::Receiver<()>,
    followers: Followers<T>,
}

impl<T> Followers<T> {
    /// Follows what concerns `interest` from now on.
    pub fn follow(&self, interest: T) -> Following<T> {
        let (news, changed) = watch::channel(());
        let mut state = self.lock();
        state.count += 1;
        let number = state.count;
        state.all.insert(number, (interest, news));
        state.changes.send_modify(|count| *count += 1);
        Following { number, changed, followers: self.clone() }
    }

    /// Wakes all whose interest is concerned.
    pub fn tell(&self, is_concerned: impl Fn(&T) -> bool) {
        for (interest, news) in self.lock().all.values() {
            if is_concerned(interest) {
                news.send_replace(());
            }
        }
    }

    /// What anybody cares for.
    pub fn each(&self, mut look: impl FnMut(&T)) {
        self.lock().all.values().for_each(|(interest, _)| look(interest));
    }

    /// Changes with every follower that comes or goes.
    pub fn count_changes(&self) -> watch::Receiver<u64> {
        self.lock().changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().expect("followers lock: no code panics while holding it")
    }
}

impl<T> Following<T> {
    /// Returns once there is a change that concerns this one.
    pub async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // The sender is with the followers, which this holds on to.
            std::future::pending::<()>().await;
        }
    }
}

impl<T> Drop for Following<T> {
    fn drop(&mut self) {
        let mut state = self.followers.lock();
        state.all.remove(&self.number);
        state.changes.send_modify(|count| *count += 1);
    }
}

impl<T> Clone for Followers<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Followers<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            all: BTreeMap::new(),
            count: 0,
            changes: watch::Sender::new(0),
        })))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn only_those_concerned_wake_and_only_while_they_follow() {
        let followers = Followers::default();
        let (mut one, mut two) = (followers.follow(1), followers.follow(2));
        followers.tell(|interest| *interest == 2);
        assert!(one.changed().now_or_never().is_none());
        assert!(two.changed().now_or_never().is_some());
        assert!(two.changed().now_or_never().is_none(), "told once");
        drop(two);
        assert_eq!(followers.lock().all.len(), 1);
    }
}
