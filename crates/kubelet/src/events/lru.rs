//! A map that forgets what was used longest ago.
//!
//! Keeps no keys, only their hashes: keys are whole events, and two that share a
//! hash by mischief are merely taken for one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// At most `max` entries, in the order they were last put.
#[derive(Debug)]
pub(super) struct Lru<V> {
    max: usize,
    uses: u64,
    by_key: BTreeMap<Key, (u64, V)>,
    by_use: BTreeMap<u64, Key>,
}

/// Hash of what an entry is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn of(parts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Self(hasher.finish())
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }
}

impl<V> Lru<V> {
    pub(super) fn new(max: usize) -> Self {
        Self { max, uses: 0, by_key: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// Takes an entry out.
    pub(super) fn take(&mut self, key: Key) -> Option<V> {
        let (used, value) = self.by_key.remove(&key)?;
        self.by_use.remove(&used);
        Some(value)
    }

    /// Puts an entry in, as the newest.
    pub(super) fn put(&mut self, key: Key, value: V) {
        self.take(key);
        while self.by_key.len() >= self.max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.by_key.insert(key, (self.uses, value));
    }

    /// Looks at every entry, from the one put longest ago to the newest.
    pub(super) fn each(&self, mut look: impl FnMut(Key, &V)) {
        for key in self.by_use.values() {
            if let Some((_, value)) = self.by_key.get(key) {
                look(*key, value);
            }
        }
    }

    /// Values from the one put longest ago to the newest.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.by_use.values().filter_map(|key| self.by_key.get(key)).map(|(_, value)| value)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.by_key.len(), self.by_use.len());
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut lru = Lru::new(2);
        let [a, b, c] = ["a", "b", "c"].map(Key::of);
        lru.put(a, 1);
        lru.put(b, 2);
        lru.put(a, 3);
        lru.put(c, 4);
        assert_eq!(lru.values().copied().collect::<Vec<_>>(), [3, 4]);
        assert_eq!(lru.take(b), None);
        assert_eq!(lru.take(a), Some(3));
        assert_eq!(lru.len(), 1);
    }
}
