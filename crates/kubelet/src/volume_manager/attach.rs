//! Volumes that a cluster attaches to the node before they can be mounted.
//!
//! Owns which volumes pods of this node hold, by pod and volume: each pod's task adds its
//! own, and takes one out when it is undone. All together are what the Node object calls
//! in use. Reads what the cluster says of the node: labels, which volumes it knows to be
//! in use, which are attached. Never attaches anything. What an earlier life of the agent
//! left is looked for before anything is told or undone. Upstream: the attachable part of
//! volumemanager/cache, reconciler/reconstruct.go, GetVolumesInUse.

mod affinity;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::PodUid;
use ordered_watch as watch;

pub(crate) use view::{Attachment, NodeView, Unattached};

use super::ingredients::{Contents, Ingredients};
use super::layout::VolumeName;

/// The volumes of one pod, by the names under which they lie: how the cluster calls each.
pub(super) type Held = BTreeMap<VolumeName, String>;

/// What is held, and what the cluster says. Cheap to clone.
#[derive(Clone)]
pub struct Attachments(Arc<Shared>);

struct Shared {
    table: Mutex<Table>,
    view: watch::Sender<Arc<NodeView>>,
    /// Changes with what is in use.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    held: BTreeMap<PodUid, Held>,
    /// What lies on the disk, until the cluster says what of it is attached; and whose
    /// could not be read.
    found: Option<(BTreeMap<PodUid, Held>, BTreeSet<PodUid>)>,
    /// Both are known: from then on it can be said what is in use.
    settled: bool,
    /// What was attached then, and is of no pod that could be read: it may be of one that
    /// could not.
    suspects: BTreeSet<String>,
    /// Disks that the node has without a controller, and for which pods.
    own: BTreeMap<String, BTreeSet<PodUid>>,
}

impl Attachments {
    /// Of a node of its own, with these labels: nothing is attached by anybody.
    pub fn alone(labels: BTreeMap<String, String>) -> Self {
        Self::new(NodeView { labels: Some(labels), ..NodeView::default() })
    }

    /// Of a node of a cluster that has not said anything yet; who attaches volumes?
    pub fn in_cluster(controller_attaches: bool) -> Self {
        Self::new(NodeView { in_cluster: true, controller_attaches, ..NodeView::default() })
    }

    fn new(view: NodeView) -> Self {
        Self(Arc::new(Shared {
            table: Mutex::default(),
            view: watch::Sender::new(Arc::new(view)),
            changes: watch::Sender::new(0),
        }))
    }

    /// What the cluster says, from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<NodeView>> {
        self.0.view.subscribe()
    }

    /// What the cluster says now.
    pub(crate) fn view(&self) -> Arc<NodeView> {
        Arc::clone(&self.0.view.borrow())
    }

    /// Every volume in use, by the cluster's names; `None` until those of an earlier life
    /// of the agent are known.
    pub fn in_use(&self) -> Option<Vec<String>> {
        let table = self.lock();
        let all = table.held.values().flat_map(BTreeMap::values).chain(&table.suspects).cloned();
        table.settled.then(|| all.collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// Changes with what is in use.
    pub fn in_use_changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The cluster knows exactly these to be in use.
    pub fn reported(&self, volumes: &[String]) {
        let reported: BTreeSet<String> = volumes.iter().cloned().collect();
        self.change_view(|view| view.reported = reported);
    }

    /// What the Node object says: labels, and attached volumes with their devices.
    pub fn node_says(&self, labels: &[(&str, &str)], attached: &[(&str, &str)]) {
        let own = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            pairs.collect::<BTreeMap<String, String>>()
        };
        let (labels, attached) = (own(labels), own(attached));
        self.change_view(|view| (view.labels, view.attached) = (Some(labels), Some(attached)));
        self.settle();
    }

    /// What an earlier life of the agent left on the disk, and of which pods that cannot
    /// be read.
    pub(super) fn found(&self, found: BTreeMap<PodUid, Held>, unread: BTreeSet<PodUid>) {
        self.lock().found = Some((found, unread));
        self.settle();
    }

    /// What a pod has left, which could not be read before.
    pub(super) fn read(&self, uid: &PodUid, mut volumes: Held) {
        let attached = self.view().attached.clone();
        self.change(|table| {
            // The cluster has not said yet what is attached: that is settled then.
            if let Some((found, unread)) = &mut table.found {
                unread.remove(uid);
                found.insert(uid.clone(), volumes);
                return false;
            }
            volumes.retain(|_, name| {
                table.suspects.contains(name)
                    || attached.as_ref().is_some_and(|attached| attached.contains_key(name))
            });
            if !volumes.is_empty() {
                table.held.entry(uid.clone()).or_default().append(&mut volumes);
            }
            true
        });
        self.change_view(|view| {
            view.unread.remove(uid);
        });
        if self.view().settled && self.view().unread.is_empty() {
            self.change(|table| !std::mem::take(&mut table.suspects).is_empty());
        }
    }

    /// The disks that a node takes with a pod, where no controller attaches any: what no
    /// pod of it has had.
    pub(super) fn take(
        &self,
        uid: &PodUid,
        node: &NodeView,
        contents: &Contents,
    ) -> Vec<VolumeName> {
        if !node.in_cluster || node.controller_attaches {
            return Vec::new();
        }
        let disks = contents.values().filter_map(|found| match found {
            Ok(Ingredients::Disk(spec)) => Some(spec),
            _ => None,
        });
        let mut table = self.lock();
        let mut new = Vec::new();
        for spec in disks {
            let pods = table.own.entry(spec.unique_name.clone()).or_default();
            if pods.is_empty() {
                new.push(spec.volume.clone());
            }
            pods.insert(uid.clone());
        }
        new
    }

    /// A pod holds these, besides what it held.
    pub(super) fn hold(&self, uid: &PodUid, volumes: Held) {
        if volumes.is_empty() {
            return;
        }
        self.change(|table| {
            let held = table.held.entry(uid.clone()).or_default();
            let news = volumes.iter().any(|(place, name)| held.get(place) != Some(name));
            held.extend(volumes);
            news
        });
    }

    /// A volume of a pod is undone.
    pub(super) fn undone(&self, uid: &PodUid, place: &VolumeName) {
        self.change(|table| {
            table.held.get_mut(uid).is_some_and(|held| held.remove(place).is_some())
        });
    }

    /// Nothing of a pod's volumes is left.
    pub(super) fn gone(&self, uid: &PodUid) {
        self.change(|table| {
            table.own.retain(|_, pods| {
                pods.remove(uid);
                !pods.is_empty()
            });
            table.held.remove(uid).is_some()
        });
    }

    /// Once disk and cluster have both spoken: what is on both is in use.
    fn settle(&self) {
        let attached = self.view().attached.clone();
        let mut unread = BTreeSet::new();
        let settled = self.change(|table| {
            let Some(attached) = attached.filter(|_| !table.settled) else { return false };
            let Some((found, not_read)) = table.found.take() else { return false };
            unread = not_read;
            if !unread.is_empty() {
                let known: BTreeSet<&String> = found.values().flat_map(BTreeMap::values).collect();
                let others = attached.keys().filter(|name| !known.contains(name));
                table.suspects = others.cloned().collect();
            }
            for (uid, mut volumes) in found {
                volumes.retain(|_, name| attached.contains_key(name));
                if !volumes.is_empty() {
                    table.held.entry(uid).or_default().append(&mut volumes);
                }
            }
            table.settled = true;
            true
        });
        if settled {
            self.change_view(|view| (view.settled, view.unread) = (true, unread));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Table) -> bool) -> bool {
        let news = change(&mut self.lock());
        if news {
            self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
        news
    }

    fn change_view(&self, change: impl FnOnce(&mut NodeView)) {
        self.0.view.send_if_modified(|view| {
            let mut new = NodeView::clone(view);
            change(&mut new);
            let news = new != **view;
            if news {
                *view = Arc::new(new);
            }
            news
        });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().expect("attachments lock: no code panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn held(pairs: &[(&str, &str)]) -> Held {
        let name = |text: &str| VolumeName::new(text).expect("a good name");
        pairs.iter().map(|(place, volume)| (name(place), (*volume).to_owned())).collect()
    }

    #[test]
    fn a_volume_is_in_use_from_when_it_is_wanted_until_it_is_undone_for_all() {
        let all = Attachments::in_cluster(true);
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        let mut changes = all.in_use_changes();
        all.hold(&a, held(&[("pv", "x^1"), ("pw", "x^2")]));
        assert_eq!(all.in_use(), None, "nothing is known of an earlier life");
        all.found(BTreeMap::new(), BTreeSet::new());
        all.node_says(&[], &[]);
        assert!(changes.changed().now_or_never().is_some() && all.view().settled);
        assert_eq!(all.in_use().unwrap(), ["x^1", "x^2"]);
        all.hold(&b, held(&[("pv", "x^1")]));
        changes.borrow_and_update();
        all.hold(&b, held(&[("pv", "x^1")]));
        assert!(changes.changed().now_or_never().is_none(), "nothing new");
        all.undone(&a, &VolumeName::new("pv").unwrap());
        all.gone(&a);
        assert_eq!(all.in_use().unwrap(), ["x^1"], "the other pod has it");
        all.gone(&b);
        assert_eq!(all.in_use().unwrap(), [""; 0]);
    }

    #[test]
    fn what_an_earlier_life_left_counts_if_it_is_attached() {
        for disk_first in [true, false] {
            let all = Attachments::in_cluster(true);
            let found = held(&[("pv", "x^1"), ("odd", "x^3")]);
            let found = BTreeMap::from([(PodUid::new("a"), found)]);
            if disk_first {
                all.found(found.clone(), BTreeSet::new());
                assert!(!all.view().settled);
            }
            all.node_says(&[("zone", "z")], &[("x^1", "/dev/x"), ("x^9", "")]);
            if !disk_first {
                assert_eq!(all.in_use(), None);
                all.found(found, BTreeSet::new());
            }
            assert_eq!(all.in_use().unwrap(), ["x^1"], "disk first: {disk_first}");
            assert!(all.view().settled);
            // What the cluster detaches later is still in use here.
            all.node_says(&[], &[]);
            assert_eq!(all.in_use().unwrap(), ["x^1"]);
        }
    }

    #[test]
    fn a_pod_that_cannot_be_read_keeps_its_own_volumes_alone() {
        for read_first in [true, false] {
            let all = Attachments::in_cluster(true);
            let (good, bad) = (PodUid::new("good"), PodUid::new("bad"));
            let found = BTreeMap::from([(good.clone(), held(&[("pv", "x^1")]))]);
            all.found(found, BTreeSet::from([bad.clone()]));
            let attached = [("x^1", ""), ("x^2", ""), ("x^3", "")];
            if !read_first {
                all.node_says(&[], &attached);
                assert!(all.view().may_undo(&good) && !all.view().may_undo(&bad));
                all.gone(&good);
                let why = "any that is attached may be the pod's, but for another's";
                assert_eq!(all.in_use().unwrap(), ["x^2", "x^3"], "{why}");
            }
            all.read(&bad, held(&[("pw", "x^2"), ("odd", "x^4")]));
            if read_first {
                all.node_says(&[], &attached);
                all.gone(&good);
            }
            assert!(all.view().may_undo(&bad), "{read_first}");
            assert_eq!(all.in_use().unwrap(), ["x^2"], "{read_first}");
            all.gone(&bad);
            assert_eq!(all.in_use().unwrap(), [""; 0]);
        }
    }
}
