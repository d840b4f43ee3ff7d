//! What the API server holds of this node's pods, and copies of static pods there.
//!
//! Owns the newest known version of each: its status, whether it is being deleted,
//! and of which static pod it is the mirror. The API source writes what it is told,
//! the status writer what its own changes were answered with. Never decides what
//! should run. Upstream: pkg/kubelet/pod.

mod mirror_plan;
mod mirrors;
#[cfg(test)]
mod tests;

pub use mirrors::{Mirrors, NodeIdentity};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::pod::CONFIG_MIRROR;
use kubelet_model::{FullName, PodUid};
use tokio::sync::watch;

/// A pod as the API server holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiCopy {
    /// Its uid there.
    pub uid: PodUid,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its status there.
    pub status: Arc<PodStatus>,
    /// It is being deleted.
    pub deleted: bool,
    /// The hash of the static pod it stands for, if it does.
    pub mirror: Option<String>,
    /// Which version this is.
    pub revision: String,
}

impl ApiCopy {
    /// What is kept of a pod; `None` if it has no name.
    pub fn of(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let annotations = meta.annotations.as_ref();
        Some(Self {
            uid: PodUid::new(meta.uid.as_deref()?),
            name: meta.name.clone()?,
            namespace: meta.namespace.clone()?,
            status: Arc::new(pod.status.clone().unwrap_or_default()),
            deleted: meta.deletion_timestamp.is_some(),
            mirror: annotations.and_then(|all| all.get(CONFIG_MIRROR)).cloned(),
            revision: meta.resource_version.clone().unwrap_or_default(),
        })
    }

    /// `<name>_<namespace>`.
    pub fn full_name(&self) -> FullName {
        FullName::of(&self.name, &self.namespace)
    }

    /// Whether this is a later version of the same pod than the other.
    fn is_newer(&self, other: &Self) -> bool {
        let number = |copy: &Self| copy.revision.parse::<u64>();
        match (number(self), number(other)) {
            (Ok(own), Ok(others)) => own > others,
            // Revisions that are no numbers have no order: what came last counts.
            _ => self.revision != other.revision,
        }
    }
}

/// Everything the API server holds of this node's pods. Cheap to clone.
#[derive(Clone)]
pub struct ApiCopies(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// `None` until everything was listed once.
    pods: Option<BTreeMap<PodUid, ApiCopy>>,
}

impl Default for ApiCopies {
    fn default() -> Self {
        let changed = watch::channel(()).0;
        Self(Arc::new(Inner { state: Mutex::default(), changed }))
    }
}

impl ApiCopies {
    /// These are all there are.
    pub fn replace(&self, all: impl IntoIterator<Item = ApiCopy>) {
        let mut pods = BTreeMap::new();
        for copy in all {
            pods.insert(copy.uid.clone(), copy);
        }
        self.lock().pods = Some(pods);
        self.0.changed.send_replace(());
    }

    /// Takes a version of a pod, unless a later one is known. One that was never
    /// listed, or is gone already, does not come back by that.
    pub fn update(&self, copy: ApiCopy) {
        let mut state = self.lock();
        let known = state.pods.as_mut().and_then(|pods| pods.get_mut(&copy.uid));
        if let Some(known) = known.filter(|known| copy.is_newer(known)) {
            *known = copy;
            self.0.changed.send_replace(());
        }
    }

    /// Takes a pod that is new, or a version of it.
    pub fn put(&self, copy: ApiCopy) {
        let mut state = self.lock();
        let pods = state.pods.get_or_insert_default();
        if pods.get(&copy.uid).is_none_or(|known| copy.is_newer(known)) {
            pods.insert(copy.uid.clone(), copy);
            self.0.changed.send_replace(());
        }
    }

    /// A pod is gone.
    pub fn remove(&self, uid: &PodUid) {
        let mut state = self.lock();
        if state.pods.as_mut().and_then(|pods| pods.remove(uid)).is_some() {
            self.0.changed.send_replace(());
        }
    }

    /// Whether everything was listed once.
    pub fn is_known(&self) -> bool {
        self.lock().pods.is_some()
    }

    /// A pod by its uid there.
    pub fn get(&self, uid: &PodUid) -> Option<ApiCopy> {
        self.lock().pods.as_ref()?.get(uid).cloned()
    }

    /// All copies of static pods.
    pub fn mirrors(&self) -> Vec<ApiCopy> {
        let state = self.lock();
        let all = state.pods.iter().flat_map(BTreeMap::values);
        all.filter(|copy| copy.mirror.is_some()).cloned().collect()
    }

    /// Hears of every change from now on.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("API copies lock: no code panics while holding it")
    }
}
