//! Which probes run and what they have found, pod by pod.
//!
//! Owned by the probe manager behind its lock. Results of a probe that was
//! stopped or replaced are refused, however late they come.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_model::{ContainerName, PodUid, ProbeKind, ProbeResult, ProbeResults};
use tokio::sync::{Notify, oneshot};

use super::metrics::{Tally, Whose};
use super::plan::Change;

/// One probe of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub container: ContainerName,
    pub kind: ProbeKind,
}

/// Proof of being registered: tells a worker from those before and after it.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub uid: PodUid,
    pub key: Key,
    number: u64,
}

/// How to reach a worker. Dropping it stops the worker.
pub(super) struct Handle {
    _stop: oneshot::Sender<()>,
    trigger: Arc<Notify>,
    sidecar: bool,
    number: u64,
    /// Whose probe it is, and what it has found.
    tally: (Whose, Tally),
}

impl Handle {
    pub(super) fn new(
        stop: oneshot::Sender<()>,
        trigger: Arc<Notify>,
        sidecar: bool,
        whose: Whose,
    ) -> Self {
        Self { _stop: stop, trigger, sidecar, number: 0, tally: (whose, Tally::default()) }
    }

    /// Makes the worker try once, now.
    pub(super) fn trigger(&self) {
        self.trigger.notify_one();
    }
}

/// Everything known.
#[derive(Default)]
pub(super) struct Table {
    last_number: u64,
    pods: BTreeMap<PodUid, PodProbes>,
}

#[derive(Default)]
struct PodProbes {
    results: ProbeResults,
    changed: Arc<Notify>,
    workers: BTreeMap<Key, Handle>,
    /// The pod ends: no liveness or startup probe starts again.
    ending: bool,
}

/// Tells when a pod's results have changed.
pub struct ProbeWatch(Arc<Notify>);

impl ProbeWatch {
    /// Waits for a change since the last call that matters to the pod's worker.
    pub async fn changed(&self) {
        self.0.notified().await;
    }
}

impl Table {
    /// Takes a worker in; `None` if there is one already or must be none.
    pub(super) fn register(&mut self, uid: &PodUid, key: Key, handle: Handle) -> Option<Ticket> {
        let pod = self.pods.entry(uid.clone()).or_default();
        let refused = pod.ending && !handle.sidecar && key.kind != ProbeKind::Readiness;
        if refused || pod.workers.contains_key(&key) {
            return None;
        }
        self.last_number += 1;
        let number = self.last_number;
        pod.workers.insert(key.clone(), Handle { number, ..handle });
        Some(Ticket { uid: uid.clone(), key, number })
    }

    /// Makes a worker's changes, and tells the pod's own worker of those that matter.
    pub(super) fn apply(&mut self, ticket: &Ticket, changes: Vec<Change>) {
        let kind = ticket.key.kind;
        let Some(pod) = self.pod_of(ticket) else { return };
        let mut news = false;
        for change in changes {
            news |= match change {
                Change::Forget(id) => {
                    pod.results.forget(&id, kind);
                    false
                }
                // A container that stays alive is nothing to act on.
                Change::Set(id, result) => {
                    pod.results.set(&id, kind, result)
                        && !(kind == ProbeKind::Liveness && result != ProbeResult::Failure)
                }
            };
        }
        if news {
            pod.changed.notify_one();
        }
    }

    /// Counts what a worker found.
    pub(super) fn count(&mut self, ticket: &Ticket, count: impl FnOnce(&mut Tally)) {
        let pod = self.pod_of(ticket);
        if let Some(handle) = pod.and_then(|pod| pod.workers.get_mut(&ticket.key)) {
            count(&mut handle.tally.1);
        }
    }

    /// What every probe has found so far.
    pub(super) fn tallies(&self) -> Vec<(Whose, PodUid, Tally)> {
        let all =
            self.pods.iter().flat_map(|(uid, pod)| pod.workers.values().map(move |w| (uid, w)));
        all.map(|(uid, Handle { tally: (whose, tally), .. })| (whose.clone(), uid.clone(), *tally))
            .collect()
    }

    /// A worker has ended, with this left to undo.
    pub(super) fn retire(&mut self, ticket: &Ticket, change: Option<Change>) {
        self.apply(ticket, change.into_iter().collect());
        if let Some(pod) = self.pod_of(ticket) {
            pod.workers.remove(&ticket.key);
        }
    }

    pub(super) fn stop_liveness_and_startup(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.ending = true;
        pod.workers.retain(|key, handle| handle.sidecar || key.kind == ProbeKind::Readiness);
    }

    pub(super) fn remove(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    pub(super) fn results(&self, uid: &PodUid) -> ProbeResults {
        self.pods.get(uid).map(|pod| pod.results.clone()).unwrap_or_default()
    }

    pub(super) fn handle(&self, uid: &PodUid, key: &Key) -> Option<&Handle> {
        self.pods.get(uid)?.workers.get(key)
    }

    pub(super) fn follow(&mut self, uid: &PodUid) -> ProbeWatch {
        ProbeWatch(Arc::clone(&self.pods.entry(uid.clone()).or_default().changed))
    }

    /// The pod, if the ticket still holds.
    fn pod_of(&mut self, ticket: &Ticket) -> Option<&mut PodProbes> {
        let pod = self.pods.get_mut(&ticket.uid)?;
        let holds = pod.workers.get(&ticket.key)?.number == ticket.number;
        holds.then_some(pod)
    }
}
