//! Stored objects, one revision for all of them, and what changed lately.
//!
//! Owns every object as the JSON bytes that clients get, the newest changes and
//! the watchers' queues. One lock inside; nothing is awaited while it is held.
//! Never looks into an object except to write `metadata.resourceVersion`, and
//! knows nothing of kinds. In memory: what is here ends with the process.
//! Upstream: staging/src/k8s.io/apiserver/pkg/storage (etcd3, cacher).

mod change;
mod history;
mod watcher;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;

use crate::json;
use history::History;

pub use change::{Change, ChangeKind};
pub use watcher::{Signal, Start, Watcher};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Resource with its group, for example `leases.coordination.k8s.io`.
    pub resource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// An object as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Revision of its last change; also in `metadata.resourceVersion`.
    pub revision: u64,
    /// JSON, without white space.
    pub bytes: Bytes,
}

impl Stored {
    /// The object, decoded.
    pub fn value(&self) -> Value {
        // Every byte here was written by `serialise` below.
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// Some objects of one resource at one revision.
#[derive(Debug)]
pub struct Listing {
    /// Objects by namespace and name.
    pub items: Vec<((String, String), Stored)>,
    /// The revision they are of.
    pub revision: u64,
}

/// Why the store did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The name is taken.
    #[error("the object exists")]
    Exists,
    /// Nothing has that name.
    #[error("the object does not exist")]
    Absent,
    /// The object has another revision than expected.
    #[error("the object is at revision {0}")]
    Stale(u64),
    /// The revision is older than what is remembered.
    #[error("too old resource version: {asked} ({oldest})")]
    Expired {
        /// What was asked for.
        asked: u64,
        /// The oldest revision that can be asked for.
        oldest: u64,
    },
    /// The revision does not exist yet.
    #[error("revision {asked} is ahead of {current}")]
    Ahead {
        /// What was asked for.
        asked: u64,
        /// The newest revision.
        current: u64,
    },
}

type Objects = BTreeMap<(String, String), Stored>;

/// The store. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Store(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    revision: u64,
    objects: BTreeMap<String, Objects>,
    /// Revision of the last change of each resource.
    changed: BTreeMap<String, u64>,
    history: History,
    watchers: Vec<watcher::Queue>,
    next_watcher: u64,
}

impl Store {
    /// An empty store that remembers this many changes.
    pub fn new(remembered_changes: usize) -> Self {
        Self(Mutex::new(Inner {
            // As a fresh etcd: revision 0 has a meaning of its own in requests.
            revision: 1,
            objects: BTreeMap::new(),
            changed: BTreeMap::new(),
            history: History::new(remembered_changes, 1),
            watchers: Vec::new(),
            next_watcher: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Revision of the last change of a resource; 0 if it never changed.
    pub fn changed(&self, resource: &str) -> u64 {
        self.lock().changed.get(resource).copied().unwrap_or_default()
    }

    /// Reads an object.
    pub fn get(&self, key: &Key) -> Option<Stored> {
        self.lock().get(key).cloned()
    }

    /// Stores a new object.
    ///
    /// # Errors
    /// [`StoreError::Exists`].
    pub fn create(&self, key: &Key, value: Value) -> Result<Stored, StoreError> {
        let mut inner = self.lock();
        if inner.get(key).is_some() {
            return Err(StoreError::Exists);
        }
        Ok(inner.put(key, value, None, ChangeKind::Created))
    }

    /// Replaces an object that has the expected revision.
    ///
    /// # Errors
    /// [`StoreError::Absent`] and [`StoreError::Stale`].
    pub fn update(&self, key: &Key, expected: u64, value: Value) -> Result<Stored, StoreError> {
        let mut inner = self.lock();
        let before = inner.expect(key, expected)?;
        Ok(inner.put(key, value, Some(before), ChangeKind::Updated))
    }

    /// Removes an object that has the expected revision; returns its last state.
    ///
    /// # Errors
    /// [`StoreError::Absent`] and [`StoreError::Stale`].
    pub fn delete(&self, key: &Key, expected: u64) -> Result<Stored, StoreError> {
        let mut inner = self.lock();
        let before = inner.expect(key, expected)?;
        let value = before.value();
        Ok(inner.put(key, value, Some(before), ChangeKind::Deleted))
    }

    /// All objects of a resource, as they are now.
    pub fn list(&self, resource: &str, namespace: &str) -> Listing {
        let inner = self.lock();
        let items = inner.range(resource, namespace);
        Listing {
            items: items.map(|(key, stored)| (key.clone(), stored.clone())).collect(),
            revision: inner.revision,
        }
    }

    /// All objects of a resource, as they were at a revision.
    ///
    /// # Errors
    /// [`StoreError::Expired`] and [`StoreError::Ahead`].
    pub fn list_at(&self, resource: &str, namespace: &str, at: u64) -> Result<Listing, StoreError> {
        let inner = self.lock();
        inner.check_revision(at)?;
        let mut objects: Objects =
            inner.range(resource, namespace).map(|(k, s)| (k.clone(), s.clone())).collect();
        for change in inner.history.newest_first(at) {
            if !change.concerns(resource, namespace) {
                continue;
            }
            let key = (change.key.namespace.clone(), change.key.name.clone());
            match &change.before {
                Some(before) => drop(objects.insert(key, before.clone())),
                None => drop(objects.remove(&key)),
            }
        }
        Ok(Listing { items: objects.into_iter().collect(), revision: at })
    }

    /// Follows the changes of a resource, in one namespace or, if it is empty, in all.
    /// Who starts after a revision that does not exist yet hears nothing until then, as
    /// upstream's watch cache has it.
    ///
    /// # Errors
    /// [`StoreError::Expired`].
    pub fn watch(
        self: &Arc<Self>,
        resource: &str,
        namespace: &str,
        start: Start,
    ) -> Result<Watcher, StoreError> {
        let mut inner = self.lock();
        let (mut first, mut after) = (Vec::new(), inner.revision);
        match start {
            Start::WithObjects => {
                let objects = inner.range(resource, namespace);
                first.extend(objects.map(|(key, stored)| {
                    Arc::new(Change::existing(resource, key, stored.clone()))
                }));
            }
            Start::Now => {}
            Start::After(revision) => {
                inner.check_revision(revision.min(inner.revision))?;
                after = revision;
                let missed = inner.history.oldest_first(revision);
                first.extend(missed.filter(|c| c.concerns(resource, namespace)).cloned());
            }
        }
        let id = inner.next_watcher;
        inner.next_watcher += 1;
        let (queue, receiver) = watcher::queue(id, resource, namespace);
        inner.watchers.push(queue);
        let revision = inner.revision;
        Ok(Watcher::new(Arc::clone(self), id, revision, after, first, receiver))
    }

    /// Forgets changes up to a revision: who asks for them gets `Expired`.
    pub fn forget(&self, revision: u64) {
        let mut inner = self.lock();
        let revision = revision.min(inner.revision);
        inner.history.forget(revision);
    }

    /// Goes back to what was stored at a revision, as when etcd is restored from a
    /// snapshot. Ends every watch. Revisions go on from there, which makes another history
    /// of the same numbers, or so many later: then all before is forgotten, as
    /// `etcdutl snapshot restore --bump-revision --mark-compacted` does.
    ///
    /// # Errors
    /// [`StoreError::Expired`] and [`StoreError::Ahead`].
    pub fn roll_back(&self, to: u64, bump: u64) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check_revision(to)?;
        for change in inner.history.take_newer(to) {
            let objects = inner.objects.entry(change.key.resource.clone()).or_default();
            let place = (change.key.namespace.clone(), change.key.name.clone());
            match &change.before {
                Some(before) => drop(objects.insert(place, before.clone())),
                None => drop(objects.remove(&place)),
            }
        }
        inner.revision = to + bump;
        if bump > 0 {
            inner.history.forget(to + bump);
        }
        inner.changed.values_mut().for_each(|changed| *changed = (*changed).min(to));
        inner.watchers.clear();
        Ok(())
    }

    /// Ends every watch, as when the process is about to end.
    pub fn cut_off(&self) {
        self.lock().watchers.clear();
    }

    fn ask_for_progress(&self, watcher: u64) {
        let mut inner = self.lock();
        let revision = inner.revision;
        inner
            .watchers
            .retain(|queue| queue.id != watcher || queue.send(Signal::Progress(revision)));
    }

    fn unsubscribe(&self, watcher: u64) {
        self.lock().watchers.retain(|queue| queue.id != watcher);
    }
}

impl Inner {
    fn get(&self, key: &Key) -> Option<&Stored> {
        self.objects.get(&key.resource)?.get(&(key.namespace.clone(), key.name.clone()))
    }

    fn expect(&self, key: &Key, revision: u64) -> Result<Stored, StoreError> {
        let stored = self.get(key).ok_or(StoreError::Absent)?;
        if stored.revision == revision {
            return Ok(stored.clone());
        }
        Err(StoreError::Stale(stored.revision))
    }

    fn check_revision(&self, asked: u64) -> Result<(), StoreError> {
        let (oldest, current) = (self.history.oldest(), self.revision);
        if asked > current {
            return Err(StoreError::Ahead { asked, current });
        }
        if asked < oldest {
            return Err(StoreError::Expired { asked, oldest });
        }
        Ok(())
    }

    fn range(
        &self,
        resource: &str,
        namespace: &str,
    ) -> impl Iterator<Item = (&(String, String), &Stored)> {
        let from = Bound::Included((namespace.to_owned(), String::new()));
        let namespace = namespace.to_owned();
        let objects = self.objects.get(resource).into_iter();
        objects
            .flat_map(move |objects| objects.range((from.clone(), Bound::Unbounded)))
            .take_while(move |((ns, _), _)| namespace.is_empty() || *ns == namespace)
    }

    fn put(
        &mut self,
        key: &Key,
        mut value: Value,
        before: Option<Stored>,
        kind: ChangeKind,
    ) -> Stored {
        self.revision += 1;
        let revision = self.revision;
        json::set(&mut value, "metadata.resourceVersion", revision.to_string());
        let stored = Stored { revision, bytes: value.to_string().into() };
        let objects = self.objects.entry(key.resource.clone()).or_default();
        let place = (key.namespace.clone(), key.name.clone());
        match kind {
            ChangeKind::Deleted => drop(objects.remove(&place)),
            _ => drop(objects.insert(place, stored.clone())),
        }
        self.changed.insert(key.resource.clone(), revision);
        let change = Arc::new(Change { kind, key: key.clone(), object: stored.clone(), before });
        self.history.push(Arc::clone(&change));
        // A watcher that cannot keep up is cut off; it starts over from a revision.
        self.watchers.retain(|queue| {
            !change.concerns(&queue.resource, &queue.namespace)
                || queue.send(Signal::Change(Arc::clone(&change)))
        });
        stored
    }
}

#[cfg(test)]
mod tests;
