//! A bounded memory of answers, each for its time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A key that tells nothing about what it stands for.
pub(super) type Key = [u8; 32];

/// Answers by key. When it is full, what expires first goes.
pub(super) struct Memory<T> {
    size: usize,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    answers: HashMap<Key, (Instant, u64, T)>,
    /// By when they expire.
    order: BTreeMap<(Instant, u64), Key>,
    next: u64,
}

impl<T: Clone> Memory<T> {
    pub(super) fn new(size: usize) -> Self {
        let held = Held { answers: HashMap::new(), order: BTreeMap::new(), next: 0 };
        Self { size, held: Mutex::new(held) }
    }

    pub(super) fn get(&self, key: &Key) -> Option<T> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, _, answer) = held.answers.get(key)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    /// Remembers; for no time at all is not at all.
    pub(super) fn put(&self, key: Key, answer: T, lasts: Duration) {
        if lasts.is_zero() {
            return;
        }
        let now = Instant::now();
        let Some(until) = now.checked_add(lasts) else { return };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let number = held.next;
        held.next += 1;
        if let Some((until, number, _)) = held.answers.insert(key, (until, number, answer)) {
            held.order.remove(&(until, number));
        }
        held.order.insert((until, number), key);
        while let Some((&(until, number), &key)) = held.order.first_key_value() {
            if until > now && held.order.len() <= self.size {
                break;
            }
            held.order.remove(&(until, number));
            held.answers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_expire_and_are_few() {
        let memory = Memory::new(3);
        let key = |n: u8| [n; 32];
        for n in 0..5 {
            memory.put(key(n), n, Duration::from_secs(10 + u64::from(n)));
        }
        assert_eq!((memory.get(&key(1)), memory.get(&key(2))), (None, Some(2)));
        memory.put(key(4), 9, Duration::from_secs(1));
        assert_eq!(memory.get(&key(4)), Some(9));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(memory.get(&key(4)), None);
        memory.put(key(7), 7, Duration::ZERO);
        assert_eq!(memory.get(&key(7)), None);
        tokio::time::advance(Duration::from_secs(60)).await;
        memory.put(key(8), 8, Duration::from_secs(1));
        assert_eq!(memory.held.lock().unwrap().answers.len(), 1);
    }
}
