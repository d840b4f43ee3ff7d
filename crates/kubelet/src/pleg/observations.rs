//! The observation table: the newest observation of every pod.
//!
//! Written only by the PLEG; read by anyone. Publishing keeps the newer of two
//! observations, so answers that overtake each other do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::{
    ContainerId, ContainerState, FullName, Mono, ObservedContainer, ObservedPod, ObservedSandbox,
    PodUid,
};
use tokio::sync::{Notify, mpsc, watch};

/// Requests for inspection that may wait: one per pod and a few more.
const REQUESTS_MAX: usize = 1024;

/// Cheap handle to the table.
#[derive(Clone)]
pub struct Observations {
    table: Arc<Mutex<Table>>,
    requests: mpsc::Sender<PodUid>,
    known: watch::Sender<u64>,
    started: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    pods: BTreeMap<PodUid, Entry>,
    owners: BTreeMap<ContainerId, PodUid>,
    /// When the last full listing began; a pod it did not mention was absent then.
    listed: Option<Mono>,
    /// Pods that a listing mentioned but nobody has looked at yet.
    pending: BTreeMap<PodUid, FullName>,
}

/// A pod that the runtime holds something of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Uid.
    pub uid: PodUid,
    /// Full name by its labels.
    pub full_name: FullName,
    /// Something of it runs, or might.
    pub may_run: bool,
    /// It was listed, but nobody has looked at it yet: it may run or not.
    pub pending: bool,
}

struct Entry {
    seen: watch::Sender<Arc<ObservedPod>>,
    /// By its labels, as first seen.
    full_name: FullName,
    /// Why the last look failed, until one succeeds.
    problem: Option<String>,
    /// A listing that began then found the same; kept apart so that a quiet
    /// node copies nothing and wakes nobody.
    confirmed: Mono,
    /// Its worker is acting: events wait for the worker's own inspection.
    held: bool,
    /// An event came while held.
    dirty: bool,
    /// Details of running containers from before this time are out of date.
    resized: Option<Mono>,
    /// The newest sandbox, which the pod's worker has seen before the next look does.
    sandbox: Option<ObservedSandbox>,
}

/// Follows one pod.
pub struct PodWatch {
    uid: PodUid,
    seen: watch::Receiver<Arc<ObservedPod>>,
    all: Observations,
}

/// While it lives, events of the pod do not trigger inspections.
pub struct Hold {
    uid: PodUid,
    all: Observations,
}

impl Observations {
    pub(super) fn new() -> (Self, mpsc::Receiver<PodUid>) {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let (known, _) = watch::channel(0);
        (Self { table: Arc::default(), requests, known, started: Arc::default() }, receiver)
    }

    /// Follows a pod, known to the runtime or not.
    pub fn follow(&self, uid: &PodUid) -> PodWatch {
        let mut table = self.lock();
        // Before the first listing nothing is known, not even absence.
        let began = table.listed.unwrap_or_default();
        let entry = table.pods.entry(uid.clone()).or_insert_with(|| Entry::absent(uid, began));
        PodWatch { uid: uid.clone(), seen: entry.seen.subscribe(), all: self.clone() }
    }

    /// When the last complete listing began; `None` before the first.
    pub fn listed(&self) -> Option<Mono> {
        self.lock().listed
    }

    /// Every pod that exists in the runtime.
    pub fn existing(&self) -> Vec<Existing> {
        let table = self.lock();
        let looked_at = table.pods.values().filter_map(|entry| {
            let pod = entry.seen.borrow();
            (!pod.is_gone()).then(|| Existing {
                uid: pod.uid.clone(),
                full_name: entry.full_name.clone(),
                may_run: pod.may_run(),
                pending: false,
            })
        });
        let pending = table.pending.iter().map(|(uid, full_name)| Existing {
            uid: uid.clone(),
            full_name: full_name.clone(),
            may_run: true,
            pending: true,
        });
        looked_at.chain(pending).collect()
    }

    /// Changes whenever the set of pods in the runtime may have changed.
    pub fn known_changes(&self) -> watch::Receiver<u64> {
        self.known.subscribe()
    }

    /// Asks for an inspection of one pod, begun after this call.
    pub async fn request(&self, uid: &PodUid) {
        // A closed channel means the agent is shutting down.
        let _ = self.requests.send(uid.clone()).await;
    }

    pub(super) fn owner(&self, id: &ContainerId) -> Option<PodUid> {
        self.lock().owners.get(id).cloned()
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<Arc<ObservedPod>> {
        self.lock().pods.get(uid).map(|entry| Arc::clone(&entry.seen.borrow()))
    }

    /// What is known of a pod and need not be asked for again.
    pub(super) fn details(&self, uid: &PodUid) -> Option<Arc<ObservedPod>> {
        let table = self.lock();
        let entry = table.pods.get(uid)?;
        let pod = Arc::clone(&entry.seen.borrow());
        let fresh = entry.resized.is_none_or(|resized| pod.began >= resized);
        let is_new = |new: &&ObservedSandbox| pod.sandboxes.iter().all(|old| old.id != new.id);
        let sandbox = entry.sandbox.as_ref().filter(is_new);
        if fresh && sandbox.is_none() {
            return Some(pod);
        }
        let mut lasting = ObservedPod::clone(&pod);
        if !fresh {
            lasting.containers.retain(|c| !matches!(c.state, ContainerState::Running { .. }));
        }
        lasting.sandboxes.extend(sandbox.cloned());
        Some(Arc::new(lasting))
    }

    /// Notes an event for a pod; true if it should be inspected now.
    pub(super) fn touch(&self, uid: &PodUid) -> bool {
        match self.lock().pods.get_mut(uid) {
            Some(entry) if entry.held => {
                entry.dirty = true;
                false
            }
            _ => true,
        }
    }

    /// A look at a pod failed: says so once per change, and tells its worker.
    pub(super) fn set_problem(&self, uid: &PodUid, why: String) {
        let mut table = self.lock();
        let new = || Entry::absent(uid, Mono::default());
        let entry = table.pods.entry(uid.clone()).or_insert_with(new);
        if entry.problem.as_ref() != Some(&why) {
            tracing::warn!(pod = %uid, why, "pod cannot be inspected; trying again");
            entry.problem = Some(why);
            entry.seen.send_modify(|_| {});
        }
    }

    /// Sandboxes that are ready, and containers by state.
    pub fn counts(&self) -> (usize, BTreeMap<&'static str, usize>) {
        let table = self.lock();
        let mut ready = 0;
        let mut containers = BTreeMap::new();
        for entry in table.pods.values() {
            let pod = entry.seen.borrow();
            ready += pod.sandboxes.iter().filter(|s| s.ready).count();
            for container in &pod.containers {
                *containers.entry(container.state.name()).or_default() += 1;
            }
        }
        (ready, containers)
    }

    /// Containers that run, by what was seen last, and where their output goes.
    pub fn running(&self) -> BTreeMap<ContainerId, String> {
        let table = self.lock();
        let mut found = BTreeMap::new();
        for entry in table.pods.values() {
            let pod = entry.seen.borrow();
            found.extend(running(&pod).map(|own| (own.id.clone(), own.log_path.clone())));
        }
        found
    }

    /// Does this container run, by what was seen last?
    pub fn is_running(&self, id: &ContainerId) -> bool {
        let pod = self.owner(id).and_then(|uid| self.get(&uid));
        pod.is_some_and(|pod| running(&pod).any(|running| running.id == *id))
    }

    /// Completes when containers were seen that did not run before. For one
    /// waiter only; what happens between two calls is not lost.
    pub async fn container_started(&self) {
        self.started.notified().await;
    }

    /// Publishes an observation unless a newer one is there already.
    pub(super) fn publish(&self, pod: ObservedPod) {
        if running(&pod).any(|container| !self.is_running(&container.id)) {
            self.started.notify_one();
        }
        let changed = self.lock().publish(pod);
        if changed {
            self.known.send_modify(|version| *version += 1);
        }
    }

    /// A full listing that began at `began` found exactly `present`: everything
    /// else was absent, and what is `unchanged` has been seen again.
    pub(super) fn listed_all(
        &self,
        began: Mono,
        present: &BTreeMap<PodUid, FullName>,
        unchanged: &BTreeSet<PodUid>,
    ) {
        let mut table = self.lock();
        let first = table.listed.replace(began).is_none();
        let mut changed = first;
        table.pending.retain(|uid, _| present.contains_key(uid));
        for (uid, full_name) in present {
            // Before the first listing a followed pod counts as unknown, not as absent.
            if first || !table.pods.contains_key(uid) {
                changed |= table.pending.insert(uid.clone(), full_name.clone()).is_none();
            }
        }
        let absent: Vec<_> =
            table.pods.keys().filter(|uid| !present.contains_key(*uid)).cloned().collect();
        for uid in absent {
            match table.pods.get_mut(&uid) {
                // A pod that stays absent wakes nobody, but for the first time that is known.
                Some(entry) if !first && entry.seen.borrow().is_gone() => {
                    entry.confirmed = entry.confirmed.max(began);
                }
                _ => changed |= table.publish(ObservedPod::absent(uid, began)),
            }
        }
        for uid in unchanged {
            if let Some(entry) = table.pods.get_mut(uid) {
                entry.confirmed = entry.confirmed.max(began);
            }
        }
        table.forget_unfollowed();
        drop(table);
        if changed {
            self.known.send_modify(|version| *version += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("observation lock: no code panics while holding it")
    }
}

fn running(pod: &ObservedPod) -> impl Iterator<Item = &ObservedContainer> {
    pod.containers.iter().filter(|c| matches!(c.state, ContainerState::Running { .. }))
}

impl Table {
    fn publish(&mut self, pod: ObservedPod) -> bool {
        let uid = pod.uid.clone();
        let entry =
            self.pods.entry(uid.clone()).or_insert_with(|| Entry::absent(&uid, Mono::default()));
        let old = Arc::clone(&entry.seen.borrow());
        if old.began.max(entry.confirmed) > pod.began {
            // Too old to tell anything, but somebody may wait for any look at
            // all, and what is there is newer still.
            entry.seen.send_modify(|_| {});
            return false;
        }
        for id in old.ids() {
            self.owners.remove(&id);
        }
        for id in pod.ids() {
            self.owners.insert(id, uid.clone());
        }
        (entry.problem, entry.sandbox) = (None, None);
        let was_pending = self.pending.remove(&uid).is_some();
        // Who exists and who may run is all that the set of workers depends on.
        let changed =
            was_pending || old.is_gone() != pod.is_gone() || old.may_run() != pod.may_run();
        if entry.full_name.as_str().is_empty() && !pod.is_gone() {
            entry.full_name = FullName::of(&pod.name, &pod.namespace);
        }
        entry.seen.send_replace(Arc::new(pod));
        changed
    }

    fn forget_unfollowed(&mut self) {
        self.pods
            .retain(|_, entry| entry.seen.receiver_count() > 0 || !entry.seen.borrow().is_gone());
    }
}

impl Entry {
    fn absent(uid: &PodUid, began: Mono) -> Self {
        let (seen, _) = watch::channel(Arc::new(ObservedPod::absent(uid.clone(), began)));
        Self {
            seen,
            full_name: FullName::new(""),
            problem: None,
            confirmed: began,
            held: false,
            dirty: false,
            resized: None,
            sandbox: None,
        }
    }
}

impl PodWatch {
    /// The newest observation.
    pub fn current(&mut self) -> Arc<ObservedPod> {
        Arc::clone(&self.seen.borrow_and_update())
    }
    /// Why the pod cannot be looked at, if so.
    pub fn problem(&self) -> Option<String> {
        self.all.lock().pods.get(&self.uid)?.problem.clone()
    }
    /// When the listing behind the newest observation, or one that found the
    /// same, began. `None` before anything was listed.
    pub fn began(&self) -> Option<Mono> {
        let table = self.all.lock();
        table.listed?;
        if table.pending.contains_key(&self.uid) {
            return None;
        }
        let entry = table.pods.get(&self.uid)?;
        Some(entry.confirmed.max(entry.seen.borrow().began))
    }
    /// Waits for a newer observation; never returns once the agent shuts down.
    pub async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
    /// Asks for a fresh look at this pod.
    pub async fn request(&self) {
        self.all.request(&self.uid).await;
    }
    /// The next look asks for the details of running containers anew.
    pub fn note_resized(&self, now: Mono) {
        if let Some(entry) = self.all.lock().pods.get_mut(&self.uid) {
            entry.resized = Some(now);
        }
    }
    /// The next look need not ask about this sandbox, should it still be ready.
    pub fn note_sandbox(&self, sandbox: &ObservedSandbox) {
        if let Some(entry) = self.all.lock().pods.get_mut(&self.uid) {
            entry.sandbox = Some(sandbox.clone());
        }
    }
    /// Keeps events from triggering inspections while the worker acts.
    pub fn hold(&self) -> Hold {
        if let Some(entry) = self.all.lock().pods.get_mut(&self.uid) {
            entry.held = true;
            entry.dirty = false;
        }
        Hold { uid: self.uid.clone(), all: self.all.clone() }
    }
}

impl Hold {
    /// Ends the hold when a fresh look is on its way anyway: it covers every
    /// event held back.
    pub fn settle(self) {
        self.release();
    }

    /// True if an event was held back.
    fn release(&self) -> bool {
        match self.all.lock().pods.get_mut(&self.uid) {
            Some(entry) => {
                entry.held = false;
                std::mem::take(&mut entry.dirty)
            }
            None => false,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.release() {
            // A full queue means inspections are coming anyway, and the next listing is a net.
            let _ = self.all.requests.try_send(self.uid.clone());
        }
    }
}

#[cfg(test)]
mod tests;
