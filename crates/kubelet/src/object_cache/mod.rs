//! ConfigMaps and Secrets by name, and who has to hear of their changes.
//!
//! Owns the objects that sources deliver; each source's set has one writer. Reads
//! nothing by itself: manifests come through the pod sources. Never decides what
//! a change means, and never prints a value. A follower hears only of the objects
//! it names. Upstream: pkg/kubelet/configmap, pkg/kubelet/secret,
//! pkg/kubelet/util/manager.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::{ConfigObject, ObjectKey, Source};

use crate::followers::{Followers, Following};

/// Reads objects. Cheap to clone.
#[derive(Clone, Default)]
pub struct Objects(Arc<Mutex<State>>);

/// Writes objects. Not `Clone`: exactly one writer.
pub struct ObjectsWriter(Objects);

#[derive(Default)]
struct State {
    /// By source; of the same object in two, that of the first source counts.
    by_source: BTreeMap<Source, BTreeMap<ObjectKey, Arc<ConfigObject>>>,
    followers: Followers<BTreeSet<ObjectKey>>,
}

/// Returns from `changed` once one of the objects has changed.
pub type ObjectWatch = Following<BTreeSet<ObjectKey>>;

impl State {
    fn get(&self, key: &ObjectKey) -> Option<&Arc<ConfigObject>> {
        self.by_source.values().find_map(|objects| objects.get(key))
    }

    fn hidden(&self) -> BTreeSet<(Source, ObjectKey)> {
        let all = self.by_source.iter().enumerate();
        all.flat_map(|(at, (source, objects))| {
            let before = move |key: &&ObjectKey| {
                self.by_source.values().take(at).any(|objects| objects.contains_key(*key))
            };
            objects.keys().filter(before).map(|key| (*source, key.clone()))
        })
        .collect()
    }
}

/// An empty cache and its writer.
pub fn new() -> (ObjectsWriter, Objects) {
    let objects = Objects::default();
    (ObjectsWriter(objects.clone()), objects)
}

impl Objects {
    /// An object, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<ConfigObject>> {
        self.lock().get(key).cloned()
    }

    /// Follows some objects, there or not, from now on.
    pub fn follow(&self, keys: BTreeSet<ObjectKey>) -> ObjectWatch {
        self.lock().followers.follow(keys)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("objects lock: no code panics while holding it")
    }
}

type ByKey = BTreeMap<ObjectKey, Arc<ConfigObject>>;

/// Of two objects of one name, the first counts.
fn by_key(objects: &[Arc<ConfigObject>]) -> ByKey {
    let mut all = ByKey::new();
    for object in objects {
        all.entry(object.key.clone()).or_insert_with(|| Arc::clone(object));
    }
    all
}

impl ObjectsWriter {
    /// Takes what is new or has changed in a source; what it no longer has stays.
    pub fn add(&self, source: Source, objects: &[Arc<ConfigObject>]) {
        let mut state = self.0.lock();
        let mut all = state.by_source.get(&source).cloned().unwrap_or_default();
        all.extend(by_key(objects));
        Self::put(&mut state, source, all);
    }

    /// Takes everything a source has. Returns the objects, of any source, that do not
    /// count because another source has them.
    pub fn replace(
        &self,
        source: Source,
        objects: &[Arc<ConfigObject>],
    ) -> BTreeSet<(Source, ObjectKey)> {
        let mut state = self.0.lock();
        Self::put(&mut state, source, by_key(objects));
        state.hidden()
    }

    fn put(state: &mut State, source: Source, new: ByKey) {
        let old = state.by_source.get(&source);
        let keys = new.keys().chain(old.iter().flat_map(|old| old.keys()));
        let keys: BTreeSet<ObjectKey> = keys.cloned().collect();
        let before: Vec<_> = keys.iter().map(|key| state.get(key).cloned()).collect();
        state.by_source.insert(source, new);
        let changed: BTreeSet<ObjectKey> = keys
            .into_iter()
            .zip(before)
            .filter(|(key, before)| state.get(key) != before.as_ref())
            .map(|(key, _)| key)
            .collect();
        state.followers.tell(|keys| !keys.is_disjoint(&changed));
    }
}
