//! What the agent tells the world about each pod.
//!
//! Owns the last status of every pod. Workers write, the server reads. Never
//! talks to the runtime. Upstream: pkg/kubelet/status, kubelet_pods.go.

mod conditions;
mod containers;
mod generate;
mod phase;
#[cfg(test)]
mod tests;

pub use generate::{Facts, Stage, generate, is_terminal};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{DesiredPod, PodUid};

/// A pod as the agent knows it.
#[derive(Debug, Clone)]
pub struct PodView {
    /// Uid.
    pub uid: PodUid,
    /// The pod as it was asked for.
    pub pod: Arc<Pod>,
    /// How it is doing.
    pub status: Arc<PodStatus>,
}

/// The statuses of all pods. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Statuses(Arc<Mutex<BTreeMap<PodUid, PodView>>>);

impl Statuses {
    /// Takes over a pod's new version or status; logs a change of phase.
    pub fn set(&self, pod: &DesiredPod, status: PodStatus) {
        let uid = pod.uid().clone();
        let mut all = self.lock();
        let old = all.get(&uid);
        if old.is_some_and(|old| *old.status == status && Arc::ptr_eq(&old.pod, pod.pod())) {
            return;
        }
        if old.is_none_or(|old| old.status.phase != status.phase) {
            let phase = status.phase.as_deref().unwrap_or_default();
            tracing::info!(pod = %pod.full_name(), uid = %uid, phase, "pod phase changed");
        }
        all.insert(
            uid.clone(),
            PodView { uid, pod: Arc::clone(pod.pod()), status: Arc::new(status) },
        );
    }

    /// The last status of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.lock().get(uid).map(|view| Arc::clone(&view.status))
    }

    /// Forgets a pod that is no more.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// Every pod with its status.
    pub fn all(&self) -> Vec<PodView> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, PodView>> {
        self.0.lock().expect("status lock: no code panics while holding it")
    }
}
