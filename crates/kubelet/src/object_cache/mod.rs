//! ConfigMaps and Secrets by name, and who has to hear of their changes.
//!
//! Owns the objects that sources deliver; each source's set has one writer. Reads
//! nothing by itself: manifests come through the pod sources, objects of an API
//! server through the cluster's own task, which asks for what anybody follows. Never
//! decides what a change means, and never prints a value. A follower hears only of the
//! objects it names. Upstream: pkg/kubelet/configmap, pkg/kubelet/secret,
//! pkg/kubelet/util/manager.

mod of_pod;
#[cfg(test)]
mod tests;

pub use of_pod::pod_objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::{ConfigObject, ObjectKey, ObjectKind, Source};
use ordered_watch as watch;

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
    /// What is not known of an API server's objects, and why. On a node of its own,
    /// nothing is unknown.
    unknown: BTreeMap<ObjectKey, String>,
    /// There is an API server: what it has not answered for is unknown.
    in_cluster: bool,
    /// What it has answered for.
    answered: BTreeSet<ObjectKey>,
    /// What it said in another life of the agent, or that there was none: counts
    /// until it answers.
    kept: Kept,
    /// It has not spoken in this life, and pods run from what was kept.
    offline: bool,
    /// What it said of the node in another life: counts until it says that again.
    kept_node: Option<Arc<KeptNode>>,
    followers: Followers<BTreeSet<ObjectKey>>,
    /// How often it said something new.
    news: watch::Sender<u64>,
    /// How often it came back after pods had run from what was kept.
    returns: watch::Sender<u64>,
}

/// Objects of another life of the agent; `None` for one that was not there.
pub type Kept = BTreeMap<ObjectKey, Option<Arc<ConfigObject>>>;

/// What volumes need to know of the node, from another life of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptNode {
    /// Its labels, if any volume asks for some.
    pub labels: Option<BTreeMap<String, String>>,
    /// Volumes that were attached and in use, and at which device.
    pub attached: BTreeMap<String, String>,
}

impl KeptNode {
    /// Takes what another pod needs to know.
    pub fn add(&mut self, other: Self) {
        self.labels = self.labels.take().or(other.labels);
        self.attached.extend(other.attached);
    }
}

/// Returns from `changed` once one of the objects has changed.
pub type ObjectWatch = Following<BTreeSet<ObjectKey>>;

impl State {
    fn get(&self, key: &ObjectKey) -> Option<&Arc<ConfigObject>> {
        let found = self.by_source.values().find_map(|objects| objects.get(key));
        found.or_else(|| self.kept(key)?.as_ref())
    }

    fn kept(&self, key: &ObjectKey) -> Option<&Option<Arc<ConfigObject>>> {
        self.kept.get(key).filter(|_| !self.answered.contains(key))
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

    /// An object, or nothing if it is known that there is none.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn find(&self, key: &ObjectKey) -> Result<Option<Arc<ConfigObject>>, String> {
        let state = self.lock();
        if let Some(found) = state.get(key) {
            return Ok(Some(Arc::clone(found)));
        }
        if state.kept(key).is_some() {
            return Ok(None);
        }
        match state.unknown.get(key) {
            Some(why) => Err(why.clone()),
            None if state.in_cluster && !state.answered.contains(key) => Err(not_yet(key)),
            None => Ok(None),
        }
    }

    /// Whether the API server has yet to answer for the first time.
    pub fn is_awaited(&self, key: &ObjectKey) -> bool {
        let state = self.lock();
        let known = state.answered.contains(key) || state.unknown.contains_key(key);
        state.in_cluster && !known && state.get(key).is_none() && state.kept(key).is_none()
    }

    /// An object, or nothing if there is none, as whoever decides about it has said in
    /// this life of the agent; `None` until then.
    pub fn told(&self, key: &ObjectKey) -> Option<Option<Arc<ConfigObject>>> {
        let state = self.lock();
        let found = state.by_source.values().find_map(|objects| objects.get(key));
        (found.is_some() || state.answered.contains(key)).then(|| found.cloned())
    }

    /// Changes whenever an API server has said something new.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.lock().news.subscribe()
    }

    /// The API server is away: these count until it answers.
    pub fn fall_back(&self, kept: Kept, node: KeptNode) {
        let mut state = self.lock();
        let keys: BTreeSet<ObjectKey> = kept.keys().cloned().collect();
        (state.kept, state.offline) = (kept, true);
        state.kept_node = Some(Arc::new(node));
        state.followers.tell(|wanted| !wanted.is_disjoint(&keys));
    }

    /// Whether the API server has not spoken in this life, and pods run from what was kept.
    pub fn is_offline(&self) -> bool {
        self.lock().offline
    }

    /// What volumes need to know of the node while its API server says nothing of it.
    pub fn kept_node(&self) -> Option<Arc<KeptNode>> {
        self.lock().kept_node.clone()
    }

    /// Changes when the API server is back after pods ran from what was kept.
    pub fn returns(&self) -> watch::Receiver<u64> {
        self.lock().returns.subscribe()
    }

    /// The API server has spoken. What it has not answered for yet still counts for
    /// whoever follows it, but nobody starts without a token any more.
    pub fn end_fall_back(&self) {
        let wanted = self.wanted();
        let mut state = self.lock();
        state.offline = false;
        let stays =
            |key: &ObjectKey| key.kind != ObjectKind::ServiceAccountToken && wanted.contains(key);
        let gone = state.kept.keys().filter(|key| !stays(key)).cloned();
        let gone: BTreeSet<ObjectKey> = gone.collect();
        state.kept.retain(|key, _| stays(key));
        // What it refused or failed to say before is asked for anew.
        state.unknown.retain(|key, _| !gone.contains(key));
        state.returns.send_modify(|count| *count += 1);
        state.followers.tell(|wanted| !wanted.is_disjoint(&gone));
    }

    /// Everything that anybody follows.
    pub fn wanted(&self) -> BTreeSet<ObjectKey> {
        let mut all = BTreeSet::new();
        self.lock().followers.each(|keys| all.extend(keys.iter().cloned()));
        all
    }

    /// Changes with what is followed.
    pub fn wanted_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.lock().followers.count_changes()
    }

    /// There will be an API server: until it answers nothing is known.
    pub fn expect_cluster(&self) {
        self.lock().in_cluster = true;
    }

    /// There is an API server, and this takes its answers.
    pub fn join_cluster(&self) -> Answers {
        self.lock().in_cluster = true;
        Answers(self.clone())
    }

    /// Follows some objects, there or not, from now on.
    pub fn follow(&self, keys: BTreeSet<ObjectKey>) -> ObjectWatch {
        self.lock().followers.follow(keys)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("objects lock: no code panics while holding it")
    }
}

/// In upstream's words.
fn not_yet(key: &ObjectKey) -> String {
    match key.kind {
        ObjectKind::ClusterTrustBundle => {
            "ClusterTrustBundle informer has not yet synced".to_owned()
        }
        ObjectKind::PodCertificate => "credential bundle is not issued yet".to_owned(),
        kind => {
            let kind = kind.resource();
            format!("failed to sync {kind} cache: timed out waiting for the condition")
        }
    }
}

/// Takes what an API server says of objects. Not `Clone`: exactly one writer.
pub struct Answers(Objects);

impl Answers {
    /// This is the object, or there is none.
    pub fn know(&self, key: &ObjectKey, object: Option<Arc<ConfigObject>>) {
        self.change(key, |state| {
            state.unknown.remove(key);
            state.answered.insert(key.clone());
            state.kept.remove(key);
            let all = state.by_source.entry(Source::Api).or_default();
            match object {
                Some(object) => drop(all.insert(key.clone(), object)),
                None => drop(all.remove(key)),
            }
        });
    }

    /// It cannot be said, and why. What was known before still counts.
    pub fn fail(&self, key: &ObjectKey, why: &str) {
        self.change(key, |state| drop(state.unknown.insert(key.clone(), why.to_owned())));
    }

    /// There is none any more, for this reason, whatever was known before.
    pub fn end(&self, key: &ObjectKey, why: &str) {
        self.change(key, |state| {
            state.by_source.entry(Source::Api).or_default().remove(key);
            state.unknown.insert(key.clone(), why.to_owned());
        });
    }

    /// Nobody wants it any more.
    pub fn forget(&self, key: &ObjectKey) {
        self.change(key, |state| {
            state.unknown.remove(key);
            state.answered.remove(key);
            if !state.offline {
                state.kept.remove(key);
            }
            state.by_source.entry(Source::Api).or_default().remove(key);
        });
    }

    fn change(&self, key: &ObjectKey, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        let look = |state: &State| {
            let known = state.answered.contains(key);
            (state.get(key).cloned(), state.unknown.get(key).cloned(), known)
        };
        let before = look(&state);
        change(&mut state);
        if look(&state) != before {
            state.followers.tell(|keys| keys.contains(key));
            state.news.send_modify(|count| *count += 1);
        }
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
