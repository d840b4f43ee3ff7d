//! The observation table: the newest observation of every pod.
//!
//! Written only by the PLEG; read by anyone. Publishing keeps the newer of two
//! observations, so answers that overtake each other do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::{ContainerId, FullName, Mono, ObservedPod, PodUid};
use tokio::sync::{mpsc, watch};

/// Requests for inspection that may wait: one per pod and a few more.
const REQUESTS_MAX: usize = 1024;

/// Cheap handle to the table.
#[derive(Clone)]
pub struct Observations {
    table: Arc<Mutex<Table>>,
    requests: mpsc::Sender<PodUid>,
    known: watch::Sender<u64>,
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
}

struct Entry {
    seen: watch::Sender<Arc<ObservedPod>>,
    /// A listing that began then found the same; kept apart so that a quiet
    /// node copies nothing and wakes nobody.
    confirmed: Mono,
    /// Its worker is acting: events wait for the worker's own inspection.
    held: bool,
    /// An event came while held.
    dirty: bool,
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
        (Self { table: Arc::default(), requests, known }, receiver)
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
        let looked_at = table.pods.values().map(|entry| Arc::clone(&entry.seen.borrow()));
        let looked_at = looked_at.filter(|pod| !pod.is_gone()).map(|pod| Existing {
            uid: pod.uid.clone(),
            full_name: FullName::of(&pod.name, &pod.namespace),
            may_run: pod.may_run(),
        });
        let pending = table.pending.iter().map(|(uid, full_name)| Existing {
            uid: uid.clone(),
            full_name: full_name.clone(),
            may_run: true,
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

    /// Publishes an observation unless a newer one is there already.
    pub(super) fn publish(&self, pod: ObservedPod) {
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
        let was_pending = self.pending.remove(&uid).is_some();
        let changed = was_pending || !same_content(&old, &pod);
        entry.seen.send_replace(Arc::new(pod));
        changed
    }

    fn forget_unfollowed(&mut self) {
        self.pods
            .retain(|_, entry| entry.seen.receiver_count() > 0 || !entry.seen.borrow().is_gone());
    }
}

fn same_content(a: &ObservedPod, b: &ObservedPod) -> bool {
    a.sandboxes == b.sandboxes && a.containers == b.containers
}

impl Entry {
    fn absent(uid: &PodUid, began: Mono) -> Self {
        let (seen, _) = watch::channel(Arc::new(ObservedPod::absent(uid.clone(), began)));
        Self { seen, confirmed: began, held: false, dirty: false }
    }
}

impl PodWatch {
    /// The newest observation.
    pub fn current(&mut self) -> Arc<ObservedPod> {
        Arc::clone(&self.seen.borrow_and_update())
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
mod tests {
    use super::*;
    use jiff::Timestamp;
    use kubelet_model::{ObservedSandbox, SandboxId};
    use std::time::Duration;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    /// A pod `<uid>` with a sandbox, seen by a listing that began then.
    fn pod(uid: &str, ready: bool, began: u64) -> ObservedPod {
        let sandbox = ObservedSandbox {
            id: SandboxId::new(format!("sandbox-{uid}")),
            attempt: 0,
            ready,
            created_at: Timestamp::UNIX_EPOCH,
            host_network: false,
            ips: Vec::new(),
        };
        ObservedPod {
            name: uid.to_owned(),
            namespace: "ns".to_owned(),
            sandboxes: vec![sandbox],
            ..ObservedPod::absent(PodUid::new(uid), at(began))
        }
    }

    fn list(all: &Observations, began: u64, present: &[&str], unchanged: &[&str]) {
        let named = |uid: &&str| (PodUid::new(*uid), FullName::of(uid, "ns"));
        let unchanged = unchanged.iter().map(|uid| PodUid::new(*uid)).collect();
        all.listed_all(at(began), &present.iter().map(named).collect(), &unchanged);
    }

    fn existing(all: &Observations) -> Vec<String> {
        let text = |pod: &Existing| {
            format!("{} {}", pod.full_name, if pod.may_run { "may run" } else { "is dead" })
        };
        all.existing().iter().map(text).collect()
    }

    #[test]
    fn the_newer_observation_wins() {
        let (all, _requests) = Observations::new();
        all.publish(pod("a", true, 5));
        all.publish(pod("a", false, 4));
        assert!(all.get(&"a".into()).expect("known").sandboxes[0].ready);
        all.publish(pod("a", false, 6));
        assert!(!all.get(&"a".into()).expect("known").sandboxes[0].ready);
    }

    #[test]
    fn a_listing_that_found_the_same_outdates_what_began_before_it() {
        let (all, _requests) = Observations::new();
        let mut watch = all.follow(&"a".into());
        all.publish(pod("a", true, 5));
        list(&all, 9, &["a"], &["a"]);
        all.publish(pod("a", false, 7));
        assert!(watch.current().sandboxes[0].ready);
    }

    #[test]
    fn nothing_is_known_before_the_first_listing() {
        let (all, _requests) = Observations::new();
        let watch = all.follow(&"a".into());
        assert_eq!((all.listed(), watch.began()), (None, None));
        all.publish(pod("a", true, 1));
        assert_eq!(watch.began(), None);
        list(&all, 2, &[], &[]);
        assert_eq!((all.listed(), watch.began()), (Some(at(2)), Some(at(2))));
    }

    #[test]
    fn a_listed_pod_is_unknown_until_somebody_looks() {
        let (all, _requests) = Observations::new();
        let mut watch = all.follow(&"a".into());
        list(&all, 3, &["a", "b"], &[]);
        assert_eq!(watch.began(), None);
        assert_eq!(existing(&all), ["a_ns may run", "b_ns may run"]);
        all.publish(pod("a", false, 4));
        assert_eq!(watch.began(), Some(at(4)));
        assert!(!watch.current().may_run());
        assert_eq!(existing(&all), ["a_ns is dead", "b_ns may run"]);
    }

    #[test]
    fn what_a_listing_does_not_mention_is_gone() {
        let (all, _requests) = Observations::new();
        let mut watch = all.follow(&"a".into());
        list(&all, 1, &["a", "b"], &[]);
        all.publish(pod("a", true, 2));
        all.publish(pod("b", true, 2));
        list(&all, 3, &[], &[]);
        assert!(watch.current().is_gone());
        assert_eq!(watch.began(), Some(at(3)));
        assert!(existing(&all).is_empty());
        assert!(all.get(&"b".into()).is_none(), "nobody follows it");
        assert!(all.get(&"a".into()).is_some(), "somebody follows it");
    }

    #[test]
    fn an_old_listing_does_not_remove_what_was_seen_since() {
        let (all, _requests) = Observations::new();
        let mut watch = all.follow(&"a".into());
        list(&all, 1, &[], &[]);
        all.publish(pod("a", true, 5));
        list(&all, 4, &[], &[]);
        assert!(watch.current().may_run());
    }

    #[test]
    fn a_pod_followed_after_a_listing_that_lacked_it_is_absent() {
        let (all, _requests) = Observations::new();
        list(&all, 3, &[], &[]);
        let mut watch = all.follow(&"a".into());
        assert_eq!(watch.began(), Some(at(3)));
        assert!(watch.current().is_gone());
    }

    #[test]
    fn a_listing_without_news_wakes_nobody() {
        let (all, _requests) = Observations::new();
        list(&all, 1, &["a"], &[]);
        all.publish(pod("a", true, 2));
        let mut watch = all.follow(&"a".into());
        watch.current();
        list(&all, 3, &["a"], &["a"]);
        assert!(!watch.seen.has_changed().expect("the table lives"));
        assert_eq!(watch.began(), Some(at(3)));
    }

    #[test]
    fn a_pod_that_stays_absent_wakes_nobody() {
        let (all, _requests) = Observations::new();
        list(&all, 1, &[], &[]);
        let mut watch = all.follow(&"a".into());
        watch.current();
        list(&all, 2, &[], &[]);
        assert!(!watch.seen.has_changed().expect("the table lives"));
        assert_eq!(watch.began(), Some(at(2)));
    }

    #[test]
    fn owners_follow_the_newest_observation() {
        let (all, _requests) = Observations::new();
        all.publish(pod("a", true, 1));
        assert_eq!(all.owner(&"sandbox-a".into()), Some("a".into()));
        all.publish(ObservedPod::absent("a".into(), at(2)));
        assert_eq!(all.owner(&"sandbox-a".into()), None);
    }

    #[tokio::test]
    async fn events_wait_while_a_worker_acts() {
        let (all, mut requests) = Observations::new();
        let watch = all.follow(&"a".into());
        assert!(all.touch(&"a".into()));
        let hold = watch.hold();
        assert!(!all.touch(&"a".into()));
        assert!(all.touch(&"b".into()), "other pods are not held");
        hold.settle();
        assert!(all.touch(&"a".into()));
        assert!(requests.try_recv().is_err(), "the worker's own look covers every event");
    }

    #[tokio::test]
    async fn a_hold_that_is_dropped_passes_on_what_it_held_back() {
        let (all, mut requests) = Observations::new();
        let watch = all.follow(&"a".into());
        drop(watch.hold());
        assert!(requests.try_recv().is_err(), "nothing was held back");
        let hold = watch.hold();
        all.touch(&"a".into());
        drop(hold);
        assert_eq!(requests.recv().await, Some("a".into()));
    }

    #[tokio::test]
    async fn a_request_names_the_pod() {
        let (all, mut requests) = Observations::new();
        all.follow(&"a".into()).request().await;
        assert_eq!(requests.recv().await, Some("a".into()));
    }

    #[test]
    fn news_is_announced() {
        let (all, _requests) = Observations::new();
        let mut known = all.known_changes();
        let mut news = || {
            let changed = known.has_changed().expect("the table lives");
            known.borrow_and_update();
            changed
        };
        list(&all, 1, &[], &[]);
        assert!(news(), "a listing");
        all.publish(pod("a", true, 2));
        assert!(news(), "a new pod");
        all.publish(pod("a", true, 3));
        assert!(!news(), "the same again");
        all.publish(pod("a", false, 4));
        assert!(news(), "a change");
    }
}
