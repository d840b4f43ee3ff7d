//! Which pods may run, what they are given of what they ask for, and what of that is
//! in force.
//!
//! Owns the verdicts of this life of the agent, and two records that outlive it:
//! *allocated*, which decides what a pod may use, and *actuated*, what its containers and
//! its control group were last told. A pod is judged once, by the words of `admission`,
//! against all pods that were admitted before it; one that is refused gets no record.
//! A pod whose manifest changes under the same uid asks for a resize; it is
//! allocated here, in the one place that knows all pods, and put in force by the
//! pod's worker, which plans with the allocated size alone. Never touches the
//! runtime. Upstream: pkg/kubelet/allocation, actuatedState in pkg/kubelet/kuberuntime.

mod format;
mod judge;
mod message;
mod metrics;
mod plan;
mod policy;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};
use kubelet_model::resources::{tidy, with_limits_of};
use kubelet_model::{DesiredPod, Mono, PodResources, PodSet, PodUid, Sizes};
use tokio::sync::Notify;

pub use judge::Judging;
pub use message::resize_message;
pub use metrics::ResizeMetrics;
pub use policy::{PendingReason, Refusal};

use crate::admission::{Rejection, Verdict, Wait};
use crate::container_manager::allocatable::Allocatable;
use crate::ports::Fs;
use metrics::Requested;
use plan::Known;
use store::Store;

/// File of what pods are given.
pub const ALLOCATED: &str = "allocated_pods_state";
/// File of what is in force.
pub const ACTUATED: &str = "actuated_pods_state";

/// The records. Cheap to clone.
#[derive(Clone)]
pub struct Allocations {
    records: Arc<Mutex<Records>>,
    changed: Arc<Notify>,
    metrics: ResizeMetrics,
}

struct Records {
    allocated: Store,
    actuated: Store,
    pods: BTreeMap<PodUid, Entry>,
    /// What was last reviewed, and its answer: asking again costs nothing.
    reviewed: Option<(Arc<PodSet>, Arc<PodSet>)>,
    /// Pods that were active then.
    active: BTreeSet<PodUid>,
    /// Pods whose resize is being put in force.
    in_progress: BTreeSet<PodUid>,
}

/// What this life of the agent knows of a pod.
struct Entry {
    asked: Arc<Pod>,
    given: DesiredPod,
    resize: Resize,
    /// When its resize began to wait.
    since: Option<Timestamp>,
    /// Whether it may run; `None` until it was judged.
    verdict: Option<Verdict>,
    /// What it waits for before it can be judged or started.
    wait: Option<Wait>,
    /// The question about the Node that was asked for its sake.
    asked_node: Option<u64>,
}

/// What a pod's worker must know of its resizes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resize {
    /// How many were allocated in this life of the agent.
    pub allocated: u64,
    /// Why the one that its manifest asks for is not.
    pub pending: Option<Refusal>,
}

/// Something to tell users and to count.
#[derive(Debug, Clone)]
pub enum News {
    /// A pod may not run here.
    Rejected {
        /// Which.
        pod: DesiredPod,
        /// Why.
        rejection: Rejection,
    },
    /// Pods have to go for a critical one.
    Preempt {
        /// For which.
        pod: DesiredPod,
        /// Who has to go.
        victims: Vec<DesiredPod>,
        /// What the node lacks first.
        signal: String,
    },
    /// A resize was allocated.
    Started {
        /// The pod as it asks to be.
        pod: DesiredPod,
        /// If it had been deferred: what made room for it, in upstream's words.
        deferred_until: Option<&'static str>,
    },
    /// A resize waits, or for another reason than before.
    Pending {
        /// The pod as it asks to be.
        pod: DesiredPod,
        /// Why.
        refusal: Refusal,
    },
}

impl Allocations {
    /// Reads what an earlier life of the agent, or upstream's kubelet, left in `dir`.
    pub fn load(fs: &Arc<dyn Fs>, dir: &Path, metrics: ResizeMetrics) -> Self {
        let store = |name| Store::load(Arc::clone(fs), dir.join(name));
        let records = Records {
            allocated: store(ALLOCATED),
            actuated: store(ACTUATED),
            pods: BTreeMap::new(),
            reviewed: None,
            active: BTreeSet::new(),
            in_progress: BTreeSet::new(),
        };
        Self { records: Arc::new(Mutex::new(records)), changed: Arc::default(), metrics }
    }

    /// Judges new pods, unless it is too early for that, and gives every pod what it may
    /// have: the answer holds the same pods with the resources they are given. Pods that
    /// `is_active` denies hold nothing.
    pub fn review(
        &self,
        desired: &Arc<PodSet>,
        is_active: impl Fn(&PodUid) -> bool,
        judging: Option<&Judging<'_>>,
        node: Option<Allocatable>,
        wall: Timestamp,
    ) -> (Arc<PodSet>, Vec<News>) {
        let mut records = self.lock();
        if let Some((last, answer)) = &records.reviewed
            && Arc::ptr_eq(last, desired)
            && !records.has_pending()
            && !records.has_open()
        {
            return (Arc::clone(answer), Vec::new());
        }
        let active = desired.pods.keys().filter(|uid| is_active(uid)).cloned().collect();
        let before = std::mem::replace(&mut records.active, active);
        let trigger = trigger(&before, &records.active, desired);
        records.pods.retain(|uid, _| desired.pods.contains_key(uid));
        for (uid, pod) in &desired.pods {
            records.pods.entry(uid.clone()).or_insert_with(|| Entry::new(pod));
        }
        let mut news = match judging {
            Some(judging) => records.judge(desired, &is_active, judging),
            None => Vec::new(),
        };
        let review = {
            let known = |pod| records.known(pod, &is_active);
            let is_given = |pod: &&DesiredPod| records.is_given(pod.uid());
            let pods: Vec<Known<'_>> = desired.pods.values().filter(is_given).map(known).collect();
            plan::review(&pods, desired.sources_ready, node)
        };
        news.extend(records.take_over(review, desired, wall, trigger, &self.metrics));
        for reason in [PendingReason::Deferred, PendingReason::Infeasible] {
            self.metrics.set_pending(reason.as_label(), records.count_pending(reason));
        }
        let answer = Arc::new(records.given(desired));
        records.reviewed = Some((Arc::clone(desired), Arc::clone(&answer)));
        (answer, news)
    }

    /// Why a pod may not run here, if it may not.
    pub fn rejection_of(&self, uid: &PodUid) -> Option<Rejection> {
        match &self.lock().pods.get(uid)?.verdict {
            Some(Verdict::Rejected(rejection)) => Some(rejection.clone()),
            _ => None,
        }
    }

    /// Pods that cannot be started yet, and what they wait for.
    pub fn held_back(&self) -> BTreeMap<PodUid, Option<Wait>> {
        let records = self.lock();
        let open = records.pods.iter().filter(|(_, entry)| entry.is_open());
        open.map(|(uid, entry)| (uid.clone(), entry.wait.clone())).collect()
    }

    /// When a pod waits no longer for others to make room.
    pub fn next_look(&self) -> Option<Mono> {
        let records = self.lock();
        let ends = records.pods.values().filter_map(|entry| match entry.verdict {
            Some(Verdict::Preempting { until, .. }) => Some(until),
            _ => None,
        });
        ends.min()
    }

    /// What a worker must know.
    pub fn resize_of(&self, uid: &PodUid) -> Resize {
        self.lock().pods.get(uid).map(|entry| entry.resize.clone()).unwrap_or_default()
    }

    /// What is counted of resizes.
    pub fn metrics(&self) -> &ResizeMetrics {
        &self.metrics
    }

    /// A pod's resize is being put in force, or is not any more.
    pub fn note_in_progress(&self, uid: &PodUid, is_in_progress: bool) {
        let mut records = self.lock();
        let changed = match is_in_progress {
            true => records.in_progress.insert(uid.clone()),
            false => records.in_progress.remove(uid),
        };
        if changed {
            self.metrics.set_in_progress(records.in_progress.len());
        }
    }

    /// Completes when something came into force that may make room for others.
    /// For one waiter only; what happens between two calls is not lost.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is in force for a pod; nothing if nobody kept a record.
    pub fn actuated(&self, uid: &PodUid) -> Option<PodResources> {
        self.lock().actuated.get(uid).cloned()
    }

    /// A pod's control group is about to be made: its containers will be as it says.
    pub fn note_pod(&self, pod: &DesiredPod) {
        let mut records = self.lock();
        if records.actuated.get(pod.uid()).is_none() {
            records.actuated.set(pod.uid(), PodResources::in_force(pod.spec()));
            records.actuated.save();
        }
    }

    /// A container was told its size, or is about to be made with it.
    pub fn note_container(&self, pod: &DesiredPod, name: &str, resources: &ResourceRequirements) {
        let resources = with_limits_of(resources, pod.spec().resources.as_ref());
        self.note(pod, |known| {
            known.containers.insert(name.to_owned(), resources);
        });
    }

    /// A container is about to be told another size: until it answers, it may have
    /// either.
    pub fn note_unknown(&self, pod: &DesiredPod, name: &str) {
        self.note(pod, |known| {
            known.containers.remove(name);
        });
    }

    /// The control group of the pod as a whole is as it says.
    pub fn note_whole(&self, pod: &DesiredPod) {
        let whole = pod.spec().resources.as_ref().map(tidy);
        self.note(pod, |known| known.whole = whole);
    }

    fn note(&self, pod: &DesiredPod, change: impl FnOnce(&mut PodResources)) {
        let mut records = self.lock();
        records.actuated.change(pod.uid(), change);
        records.actuated.save();
        if records.has_pending() {
            self.changed.notify_one();
        }
    }

    /// Forgets a pod that is no more.
    pub fn remove(&self, uid: &PodUid) {
        let mut records = self.lock();
        records.pods.remove(uid);
        if records.in_progress.remove(uid) {
            self.metrics.set_in_progress(records.in_progress.len());
        }
        records.allocated.remove(uid);
        records.actuated.remove(uid);
        records.reviewed = None;
    }

    /// Forgets all pods but these.
    pub fn retain(&self, keep: impl Fn(&PodUid) -> bool) {
        let mut records = self.lock();
        records.allocated.retain(&keep);
        records.actuated.retain(&keep);
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("allocation lock: no code panics while holding it")
    }
}

/// What changed since the last review, in the words of upstream's metric. What is
/// left is a pod that has shrunk.
fn trigger(before: &BTreeSet<PodUid>, active: &BTreeSet<PodUid>, desired: &PodSet) -> &'static str {
    let mut gone = before.difference(active);
    if gone.clone().any(|uid| !desired.pods.contains_key(uid)) {
        "pods_removed"
    } else if gone.next().is_some() {
        "pod_terminated"
    } else if active.difference(before).next().is_some() {
        "pods_added"
    } else {
        "pod_resized"
    }
}

/// Which amounts of which containers an edit changes.
fn edits(old: &PodSpec, new: &PodSpec) -> Vec<Requested> {
    let (old, new) = (PodResources::of(old), PodResources::of(new));
    let mut found = Vec::new();
    for (name, new) in &new.containers {
        let Some(old) = old.containers.get(name).map(|old| Sizes::of(old, None)) else { continue };
        let new = Sizes::of(new, None);
        for (resource, requirement, old, new) in [
            ("memory", "requests", old.memory_request, new.memory_request),
            ("memory", "limits", old.memory_limit, new.memory_limit),
            ("cpu", "requests", old.cpu_request, new.cpu_request),
            ("cpu", "limits", old.cpu_limit, new.cpu_limit),
        ] {
            let operation = match (old, new) {
                (old, new) if old == new => continue,
                (0, _) => "add",
                (_, 0) => "remove",
                (old, new) if new < old => "decrease",
                _ => "increase",
            };
            found.push(Requested { resource, requirement, operation });
        }
    }
    found
}

impl Records {
    fn count_pending(&self, reason: PendingReason) -> usize {
        let pending = self.pods.values().filter_map(|entry| entry.resize.pending.as_ref());
        pending.filter(|refusal| refusal.reason == reason).count()
    }

    /// Some pod is not judged, or waits for others to make room.
    fn has_open(&self) -> bool {
        self.pods.values().any(Entry::is_open)
    }

    fn has_pending(&self) -> bool {
        self.pods.values().any(|entry| entry.resize.pending.is_some())
    }

    fn known<'a>(&'a self, pod: &'a DesiredPod, is_active: &impl Fn(&PodUid) -> bool) -> Known<'a> {
        Known {
            asked: pod,
            allocated: self.allocated.get(pod.uid()),
            actuated: self.actuated.get(pod.uid()),
            active: is_active(pod.uid()) && self.holds(pod.uid()),
            pending_since: self.pods.get(pod.uid()).and_then(|entry| entry.since),
        }
    }

    /// Keeps what was decided, first in the file, then in memory.
    fn take_over(
        &mut self,
        review: plan::Review,
        desired: &PodSet,
        wall: Timestamp,
        trigger: &'static str,
        metrics: &ResizeMetrics,
    ) -> Vec<News> {
        for uid in review.admit.iter().chain(&review.resize) {
            if let Some(pod) = desired.pods.get(uid) {
                self.allocated.set(uid, PodResources::of(pod.spec()));
            }
        }
        if !review.admit.is_empty() || !review.resize.is_empty() {
            self.allocated.save();
        }
        let mut news = Vec::new();
        for (uid, pod) in &desired.pods {
            let Some(entry) = self.pods.get_mut(uid) else { continue };
            let before = entry.resize.pending.take();
            let edited = !Arc::ptr_eq(&entry.asked, pod.asked());
            if let (true, Some(old)) = (edited, &entry.asked.spec) {
                edits(old, pod.spec()).iter().for_each(|edit| metrics.count_requested(edit));
            }
            if review.resize.contains(uid) {
                entry.resize.allocated += 1;
                let deferred = |refusal: &Refusal| refusal.reason == PendingReason::Deferred;
                let was_deferred = before.as_ref().is_some_and(deferred);
                let why = if edited { "pod_updated" } else { trigger };
                let deferred_until = was_deferred.then_some(why);
                deferred_until.iter().for_each(|trigger| metrics.count_accepted(trigger));
                news.push(News::Started { pod: pod.clone(), deferred_until });
            }
            let refusal = review.pending.get(uid).cloned();
            entry.since = refusal.as_ref().map(|_| entry.since.unwrap_or(wall));
            if let Some(refusal) = &refusal {
                let other_reason = before.is_none_or(|before| before.reason != refusal.reason);
                if other_reason || edited {
                    if refusal.reason == PendingReason::Infeasible {
                        metrics.count_infeasible();
                    }
                    news.push(News::Pending { pod: pod.clone(), refusal: refusal.clone() });
                }
            }
            entry.resize.pending = refusal;
        }
        news
    }

    /// The pods with what they are given. One that did not change stays the same
    /// object, by which others know that it did not.
    fn given(&mut self, desired: &PodSet) -> PodSet {
        let mut pods = BTreeMap::new();
        for (uid, pod) in &desired.pods {
            let Some(entry) = self.pods.get_mut(uid) else { continue };
            let allocated = self.allocated.get(uid);
            let given = allocated.and_then(|allocated| allocated.give(pod));
            let given = given.unwrap_or_else(|| pod.clone());
            let same_text = Arc::ptr_eq(&entry.asked, pod.asked());
            if !same_text || entry.given.spec() != given.spec() {
                entry.given = given;
            }
            entry.asked = Arc::clone(pod.asked());
            pods.insert(uid.clone(), entry.given.clone());
        }
        PodSet { pods, sources_ready: desired.sources_ready }
    }
}

impl Entry {
    fn new(pod: &DesiredPod) -> Self {
        Self {
            asked: Arc::clone(pod.asked()),
            given: pod.clone(),
            resize: Resize::default(),
            since: None,
            verdict: None,
            wait: None,
            asked_node: None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.verdict, None | Some(Verdict::Preempting { .. }))
    }
}
