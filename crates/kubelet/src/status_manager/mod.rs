//! What the agent tells the world about each pod.
//!
//! Owns the last status of every pod. Workers write, the server reads. Never
//! talks to the runtime. Upstream: pkg/kubelet/status, kubelet_pods.go.

mod addresses;
mod conditions;
mod containers;
mod details;
mod finish;
mod generate;
mod instance;
mod messages;
mod phase;
mod readiness;
mod resources;
mod restart;
mod restart_all;
#[cfg(test)]
mod tests;
mod transitions;

pub use generate::{Ended, Facts, Resizing, Stage, generate, is_terminal, start_time};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{DesiredPod, PodUid};

/// A pod as the agent knows it.
#[derive(Debug, Clone)]
pub struct PodView {
    /// Uid.
    pub uid: PodUid,
    /// The pod as it was asked for, whatever it was given.
    pub pod: Arc<Pod>,
    /// How it is doing.
    pub status: Arc<PodStatus>,
}

/// A pod with the change of its status that was last refused, so that it is told once.
#[derive(Debug)]
struct Entry {
    view: PodView,
    refused: Option<String>,
}

/// The statuses of all pods. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Statuses(Arc<Mutex<BTreeMap<PodUid, Entry>>>);

impl Statuses {
    /// Takes over a pod's new version or status; logs a change of phase. A status
    /// in which a container comes back that has ended for good is refused: the
    /// old one stays, and the error is logged once.
    pub fn set(&self, pod: &DesiredPod, status: PodStatus) {
        let uid = pod.uid().clone();
        let mut all = self.lock();
        let old = all.get_mut(&uid);
        if let Some(old) = old {
            let view = &old.view;
            if *view.status == status && Arc::ptr_eq(&view.pod, pod.asked()) {
                old.refused = None;
                return;
            }
            if let Some(revived) = transitions::illegal(pod.spec(), &view.status, &status) {
                let container = revived.name.clone();
                old.view.pod = Arc::clone(pod.asked());
                old.refuse(pod, container);
                return;
            }
        }
        let before = all.get(&uid).map(|old| &old.view.status.phase);
        if before.is_none_or(|before| *before != status.phase) {
            let phase = status.phase.as_deref().unwrap_or_default();
            tracing::info!(pod = %pod.full_name(), uid = %uid, phase, "pod phase changed");
        }
        let view =
            PodView { uid: uid.clone(), pod: Arc::clone(pod.asked()), status: Arc::new(status) };
        all.insert(uid, Entry { view, refused: None });
    }

    /// The last status of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.lock().get(uid).map(|old| Arc::clone(&old.view.status))
    }

    /// Forgets a pod that is no more.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// Forgets all pods but these.
    pub fn retain(&self, keep: impl Fn(&PodUid) -> bool) {
        self.lock().retain(|uid, _| keep(uid));
    }

    /// Every pod with its status.
    pub fn all(&self) -> Vec<PodView> {
        self.lock().values().map(|old| old.view.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Entry>> {
        self.0.lock().expect("status lock: no code panics while holding it")
    }
}

impl Entry {
    fn refuse(&mut self, pod: &DesiredPod, container: String) {
        if self.refused.as_ref() == Some(&container) {
            return;
        }
        tracing::error!(
            pod = %pod.full_name(),
            uid = %pod.uid(),
            container,
            "status refused: a container that ended for good came back; the earlier status stays until it ends again"
        );
        self.refused = Some(container);
    }
}
