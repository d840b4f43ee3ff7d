//! What asks came to, for a while: whoever asks the same gets the same, in the same
//! order. Pure: the time is an argument.
//!
//! Upstream: LRUExpireCache in apimachinery pkg/util/cache.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_model::ObjectKey;
use tokio::time::Instant;

/// The least recently used go first when there are too many, and all go in time.
pub(super) struct Cache {
    max: usize,
    ttl: Duration,
    entries: BTreeMap<ObjectKey, Entry>,
    /// Uses so far: tells which was used last.
    uses: u64,
}

struct Entry {
    anchors: Vec<u8>,
    expires: Instant,
    used: u64,
}

impl Cache {
    pub(super) fn new(max: usize, ttl: Duration) -> Self {
        Self { max, ttl, entries: BTreeMap::new(), uses: 0 }
    }

    pub(super) fn get(&mut self, key: &ObjectKey, now: Instant) -> Option<Vec<u8>> {
        if self.entries.get(key)?.expires < now {
            self.entries.remove(key);
            return None;
        }
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.uses;
        Some(entry.anchors.clone())
    }

    pub(super) fn add(&mut self, key: &ObjectKey, anchors: Vec<u8>, now: Instant) {
        self.uses += 1;
        let entry = Entry { anchors, expires: now + self.ttl, used: self.uses };
        self.entries.insert(key.clone(), entry);
        while self.entries.len() > self.max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.entries.remove(&oldest);
        }
    }

    /// Forgets those that something has become of.
    pub(super) fn drop_where(&mut self, concerned: impl Fn(&ObjectKey) -> bool) {
        self.entries.retain(|key, _| !concerned(key));
    }
}

#[cfg(test)]
mod tests {
    use kubelet_model::ObjectKind;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::ClusterTrustBundle, "", name)
    }

    #[test]
    fn few_are_kept_and_none_for_long() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut cache = Cache::new(2, Duration::from_secs(300));
        cache.add(&key("a"), b"a".to_vec(), at(0));
        cache.add(&key("b"), b"b".to_vec(), at(0));
        assert_eq!(cache.get(&key("a"), at(1)), Some(b"a".to_vec()));
        cache.add(&key("c"), b"c".to_vec(), at(2));
        let mut known = |seconds: u64| {
            let all = ["a", "b", "c"].into_iter();
            all.filter(|name| cache.get(&key(name), at(seconds)).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(known(3), ["a", "c"], "b was not used for longest");
        assert_eq!(known(300), ["a", "c"]);
        assert_eq!(known(301), ["c"]);
        assert_eq!(known(303), [""; 0]);
        cache.add(&key("a"), b"a".to_vec(), at(400));
        cache.add(&key("b"), b"b".to_vec(), at(400));
        cache.drop_where(|key| key.name == "a");
        assert_eq!(cache.get(&key("a"), at(400)), None);
        assert_eq!(cache.get(&key("b"), at(400)), Some(b"b".to_vec()));
        let mut none = Cache::new(0, Duration::from_secs(300));
        none.add(&key("a"), b"a".to_vec(), at(0));
        assert_eq!(none.get(&key("a"), at(0)), None);
    }
}
