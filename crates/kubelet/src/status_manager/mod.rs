//! What the agent tells the world about each pod.
//!
//! Owns the last status of every pod. Workers write, the server reads. Never
//! talks to the runtime. Upstream: pkg/kubelet/status, kubelet_pods.go.

mod addresses;
pub mod api;
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

pub use conditions::is_owned_condition;
pub use generate::{Ended, Facts, Resizing, Stage, generate, is_terminal, start_time};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{DesiredPod, FullName, PodUid};
use tokio::sync::watch;

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
    full_name: FullName,
    /// Nothing of the pod is left here.
    finished: bool,
    refused: Option<String>,
}

/// The statuses of all pods. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Statuses(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: Mutex<BTreeMap<PodUid, Entry>>,
    changed: watch::Sender<()>,
}

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
        let full_name = pod.full_name().clone();
        all.insert(uid, Entry { view, full_name, finished: false, refused: None });
        drop(all);
        self.0.changed.send_replace(());
    }

    /// Begins with what the pod's API server knows of it, unless more is known here.
    pub fn begin(&self, pod: &DesiredPod) {
        let Some(status) = pod.asked().status.clone().filter(|s| s.phase.is_some()) else {
            return;
        };
        self.lock().entry(pod.uid().clone()).or_insert_with(|| Entry {
            view: PodView {
                uid: pod.uid().clone(),
                pod: Arc::clone(pod.asked()),
                status: Arc::new(status),
            },
            full_name: pod.full_name().clone(),
            finished: false,
            refused: None,
        });
    }

    /// Nothing of a pod is left here; its status is the last.
    pub fn finish(&self, uid: &PodUid) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.finished = true;
        }
        self.0.changed.send_replace(());
    }

    /// Whether a pod of this name has a status.
    pub fn has(&self, full_name: &FullName) -> bool {
        self.lock().values().any(|entry| entry.full_name == *full_name)
    }

    /// Hears of every change from now on.
    pub fn follow(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Every pod, and whether nothing of it is left here.
    pub fn all_with_ends(&self) -> Vec<(PodView, bool)> {
        self.lock().values().map(|entry| (entry.view.clone(), entry.finished)).collect()
    }

    /// The last status of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.lock().get(uid).map(|old| Arc::clone(&old.view.status))
    }

    /// Forgets a pod that is no more.
    pub fn remove(&self, uid: &PodUid) {
        if self.lock().remove(uid).is_some() {
            self.0.changed.send_replace(());
        }
    }

    /// Forgets all pods but these.
    pub fn retain(&self, keep: impl Fn(&PodUid) -> bool) {
        let mut all = self.lock();
        let before = all.len();
        all.retain(|uid, _| keep(uid));
        let fewer = all.len() != before;
        drop(all);
        if fewer {
            self.0.changed.send_replace(());
        }
    }

    /// Every pod with its status.
    pub fn all(&self) -> Vec<PodView> {
        self.lock().values().map(|old| old.view.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Entry>> {
        self.0.all.lock().expect("status lock: no code panics while holding it")
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
