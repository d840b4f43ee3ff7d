//! Disks of other machines on a node of a cluster: what an earlier life left of them, and
//! those that no controller attaches.

use kubelet_model::PodUid;

use super::super::VolumeState;
use super::super::attach::{Attachments, NodeView};
use super::super::desired::Wanted;
use super::super::ingredients::{Contents, Ingredients};
use super::attach::{Joined, claimant, from_api, until_in_use};
use super::claims::{gone, stager};
use super::{name, until, volumes_of};

/// One pod's note cannot be read: it keeps its own disk waiting, and nobody else's.
#[tokio::test]
async fn a_note_that_cannot_be_read_keeps_one_pod_waiting() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), stager());
    let one = claimant();
    let (good, bad) = (one.uid().clone(), PodUid::new("u2"));
    let names = ["kubernetes.io/fc/[500a]:0", "kubernetes.io/fc/[500b]:0"];
    let dir = |uid: &PodUid, kind: &str| {
        temp.path().join("pods").join(uid.as_str()).join(kind).join("kubernetes.io~fc/pv")
    };
    for uid in [&good, &bad] {
        for kind in ["volumes", "plugins"] {
            std::fs::create_dir_all(dir(uid, kind)).expect("directories");
        }
    }
    std::fs::write(dir(&good, "plugins").join("unique-name"), names[0]).expect("a note");
    // Not even root can read it.
    std::fs::create_dir(dir(&bad, "plugins").join("unique-name")).expect("a directory");
    let volumes = joined.volumes(&one);
    let attachments = volumes.attachments();
    attachments.node_says(&[], &names.map(|name| (name, "")));
    volumes.release(&good);
    volumes.release(&bad);
    until(&volumes, &good, gone).await;
    assert!(!dir(&good, "volumes").exists());
    until_in_use(&attachments, &names[1..]).await;
    let waits = |state: &VolumeState| matches!(state, VolumeState::Waiting { .. });
    until(&volumes, &bad, waits).await;
    assert!(dir(&bad, "volumes").exists(), "nothing of it was undone");
}

/// Without a controller the node has a disk as soon as it knows what it is, once.
#[test]
fn a_disk_that_no_controller_attaches_is_told_once() {
    let one = from_api(r#"{"name":"v","fc":{"targetWWNs":["500a"],"lun":0}}"#);
    let wanted = volumes_of(&one).expect("a volume").volumes.remove(&name("v"));
    let Some(Wanted::Disk(spec)) = wanted else { panic!("{wanted:?}") };
    let contents = Contents::from([(name("v"), Ok(Ingredients::Disk(spec)))]);
    let alone = NodeView { in_cluster: true, ..NodeView::default() };
    let attachments = Attachments::in_cluster(false);
    let (a, b) = (PodUid::new("a"), PodUid::new("b"));
    let take = |uid: &PodUid, node: &NodeView| attachments.take(uid, node, &contents).len();
    assert_eq!(take(&a, &NodeView { controller_attaches: true, ..alone.clone() }), 0);
    assert_eq!(take(&a, &NodeView::default()), 0, "a node of its own attaches nothing");
    assert_eq!([take(&a, &alone), take(&a, &alone), take(&b, &alone)], [1, 0, 0]);
    attachments.gone(&a);
    assert_eq!(take(&b, &alone), 0, "the other pod has it");
    attachments.gone(&b);
    assert_eq!(take(&b, &alone), 1);
    assert_eq!(attachments.in_use(), None, "nothing of it is told to a controller");
}
