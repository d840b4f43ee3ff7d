//! Claims: what they stand for, and volumes that pods share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind, Source};
use mounts::host_path::HostPathType;
use plugin_apis::csi::NodeCapability;
use plugin_apis::csi::volume_capability::AccessType;
use tonic::Code;

use super::super::attach::NodeView;
use super::super::claims::{PlaceKind, PlaceSpec, Resolved};
use super::super::csi::CsiSpec;
use super::super::desired::{self, NodeFacts, Wanted};
use super::super::layout::PluginName;
use super::super::plan::{Contents, Found, Goal, Ingredients, Observed, Op, Outcome, plan};
use super::super::selinux::NodeLabels;
use super::super::{VolumeState, Volumes};
use super::bed::Bed;
use super::csi::Scripted;
use super::{NODE, at, name, pod, until, volumes_of};
use crate::container_manager::Rules;

pub(super) fn storage(
    kind: ObjectKind,
    namespace: &str,
    name: &str,
    spec: &str,
) -> Arc<ConfigObject> {
    Arc::new(ConfigObject {
        key: ObjectKey::new(kind, namespace, name),
        uid: String::new(),
        secret_type: String::new(),
        data: BTreeMap::from([("spec".to_owned(), spec.as_bytes().to_vec())]),
        binary: BTreeMap::new(),
    })
}

fn volume(mode: &str, more: &str) -> Arc<ConfigObject> {
    let spec = format!(
        r#"{{"accessModes":["{mode}"],"csi":{{"driver":"d.example","volumeHandle":"h"}}{more}}}"#
    );
    storage(ObjectKind::PersistentVolume, "", "pv", &spec)
}

fn claim(mode: &str) -> Arc<ConfigObject> {
    let spec = format!(r#"{{"accessModes":["{mode}"],"volumeName":"pv"}}"#);
    storage(ObjectKind::PersistentVolumeClaim, "ns", "c", &spec)
}

/// A pod of this uid that uses the claim.
fn claimant(uid: &str) -> DesiredPod {
    let source = r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#;
    let mut pod = Pod::clone(pod("", "", source).pod());
    (pod.metadata.name, pod.metadata.uid) = (Some(format!("web-{uid}")), Some(uid.to_owned()));
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

#[test]
fn a_claim_needs_a_volume_that_is_for_it() {
    let Wanted::Claim(wanted) =
        volumes_of(&claimant("u1")).expect("a volume").volumes[&name("v")].clone()
    else {
        panic!("no claim")
    };
    let once = "ReadWriteOnce";
    let other = r#","claimRef":{"namespace":"ns","name":"other"}"#;
    for (objects, expected) in [
        (vec![], "persistentvolumeclaim \"c\" not found"),
        (vec![claim(once)], "persistentvolume \"pv\" not found"),
        (vec![claim(once), volume("ReadOnlyMany", "")], "has no access mode ReadWriteOnce"),
        (vec![claim(once), volume(once, other)], "is for claim \"ns/other\""),
    ] {
        let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
        let error = wanted.resolve(&get).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let objects = [claim(once), volume(once, r#","mountOptions":["noatime"]"#)];
    let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
    let Ok(Resolved::Driver(found)) = wanted.resolve(&get) else { panic!("no driver's volume") };
    assert_eq!((found.driver.as_str(), found.handle.as_str()), ("d.example", "h"));
    let request = found.stage_request("/s", BTreeMap::new(), &BTreeSet::new());
    let capability = request.volume_capability.expect("a capability");
    let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("no mount") };
    assert_eq!(mount.mount_flags, ["noatime"]);
    let labelled = found.with_label("u:r:t:s0:c1,c2");
    let request = labelled.publish_request("/s", "/t", BTreeMap::new(), &BTreeSet::new());
    let capability = request.volume_capability.expect("a capability");
    let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("no mount") };
    assert_eq!(mount.mount_flags, ["noatime", "context=\"u:r:t:s0:c1,c2\""]);
    assert_eq!((found.label(), labelled.with_label("")), (None, CsiSpec::clone(&found)));
    let keys: Vec<String> =
        wanted.objects(&get, &NodeView::default(), "n").iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["PersistentVolume pv", "PersistentVolumeClaim ns/c"]);
}

/// An object that cannot be read says nothing: neither that the driver wants no label, nor
/// that it wants no tokens and keeps no count.
#[test]
fn an_object_that_cannot_be_read_is_not_none() {
    let level = r#","securityContext":{"seLinuxOptions":{"level":"s0:c1,c2"}}"#;
    let files = Some("system_u:object_r:container_file_t:s0");
    let labels = NodeLabels { files, all_modes: false };
    let node = NodeFacts { allocatable: NODE, rules: &Rules::default(), labels };
    let source = r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#;
    let volumes = desired::of_pod(&pod("", level, source), node).expect("a volume");
    let Wanted::Claim(wanted) = &volumes.volumes[&name("v")] else { panic!("no claim") };
    let good = r#"{"seLinuxMount":true,"tokenRequests":[{"audience":"a"}]}"#;
    let broken = "error processing PVC ns/c: the spec of CSIDriver \"d.example\" cannot be read; \
                  correct it";
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    for (mode, spec, expected, tokens) in [
        ("ReadWriteOncePod", None, Ok(None), 0),
        ("ReadWriteOncePod", Some(good), Ok(Some(label)), 1),
        ("ReadWriteOncePod", Some("[]"), Err(broken), 0),
        // It makes no difference to a volume that gets no label.
        ("ReadWriteOnce", Some("[]"), Ok(None), 0),
    ] {
        let described = spec.map(|spec| storage(ObjectKind::CsiDriver, "", "d.example", spec));
        let objects = [claim(mode), volume(mode, "")].into_iter().chain(described);
        let objects: Vec<_> = objects.collect();
        let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
        let found = wanted.resolve(&get).map(|resolved| match resolved {
            Resolved::Driver(spec) => spec.label().map(str::to_owned),
            other => panic!("{other:?}"),
        });
        let found = found.map_err(|error| error.to_string());
        let expected = expected.map(|label: Option<&str>| label.map(str::to_owned));
        assert_eq!(found, expected.map_err(str::to_owned), "{mode} {spec:?}");
        let in_cluster = NodeView { in_cluster: true, ..NodeView::default() };
        let keys = wanted.objects(&get, &in_cluster, "n");
        let of = |kind| keys.iter().filter(|key| key.kind == kind).count();
        assert_eq!(
            (of(ObjectKind::CsiDriver), of(ObjectKind::ServiceAccountToken)),
            (1, tokens),
            "{keys:?}"
        );
    }
}

#[test]
fn a_claim_may_stand_for_a_place_on_the_node() {
    let volumes = volumes_of(&claimant("u1")).expect("a volume");
    let Wanted::Claim(wanted) = &volumes.volumes[&name("v")] else { panic!("no claim") };
    let place = |source: &str| {
        let spec = format!(r#"{{"accessModes":["ReadWriteOnce"],{source}}}"#);
        let volume = storage(ObjectKind::PersistentVolume, "", "pv", &spec);
        let objects = [claim("ReadWriteOnce"), volume];
        let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
        wanted.resolve(&get).map_err(|error| error.to_string())
    };
    let found = |source: &str| match place(source) {
        Ok(Resolved::Place(spec)) => spec,
        other => panic!("{other:?}"),
    };
    let local = found(r#""local":{"path":"/disk"}"#);
    assert_eq!((local.volume.as_str(), local.path.as_path()), ("pv", Path::new("/disk")));
    assert!(matches!(local.kind, PlaceKind::Local(_)) && !local.read_only, "{local:?}");
    let host_path = found(r#""hostPath":{"path":"/data","type":"Directory"}"#);
    assert_eq!(host_path.kind, PlaceKind::HostPath(HostPathType::Directory));
    let error = place(r#""hostPath":{"path":"/data","type":"Dir"}"#).unwrap_err();
    assert!(error.contains("Dir"), "{error}");
    // Undone where it is done, as everything.
    let begun = |spec: Arc<PlaceSpec>| {
        let contents = Contents::from([(name("v"), Ok(Ingredients::Place(spec)))]);
        let mut observed = Observed::default();
        let goal = Goal::Mount(Arc::new(volumes.clone()));
        observed.note_begun(&Op::SetUp(name("v")), &goal, &contents);
        observed.note(Op::Look, Outcome::Left(BTreeSet::new()), at(0));
        plan(&Goal::Release, &observed, &Contents::new(), at(0)).ops
    };
    let undone = |plugin| [Op::TearDown(Found { name: name("pv"), plugin, device: false })];
    assert_eq!(begun(local), undone(Some(PluginName::local())));
    assert_eq!(begun(host_path), undone(None));
}

/// Work that was given up may yet be done: it is undone where it is done.
#[test]
fn what_was_begun_is_undone_under_the_name_of_the_volume() {
    let volumes = volumes_of(&claimant("u1")).expect("a volume");
    let Wanted::Claim(wanted) = &volumes.volumes[&name("v")] else { panic!("no claim") };
    let objects = [claim("ReadWriteOnce"), volume("ReadWriteOnce", "")];
    let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
    let Ok(Resolved::Driver(spec)) = wanted.resolve(&get) else { panic!("no driver's volume") };
    let contents = Contents::from([(name("v"), Ok(Ingredients::Driver(spec)))]);
    let goal = Goal::Mount(Arc::new(volumes.clone()));
    let mut observed = Observed::default();
    observed.note_begun(&Op::SetUp(name("v")), &goal, &contents);
    observed.note(Op::Look, Outcome::Left(BTreeSet::new()), at(0));
    let found = Found { name: name("pv"), plugin: Some(PluginName::csi()), device: false };
    let ops = plan(&Goal::Release, &observed, &Contents::new(), at(0)).ops;
    assert_eq!(ops, [Op::TearDown(found)]);
}

/// A node with a driver that stages, and a claim.
fn bed(node: &Arc<Scripted>, mode: &str) -> Bed {
    let bed = Bed::with(node);
    bed.writer.replace(Source::File, &[claim(mode), volume(mode, "")]);
    bed
}

/// One life of the agent on it.
fn life(bed: &Bed) -> Volumes {
    bed.life(&[&claimant("u1"), &claimant("u2")])
}

pub(super) fn stager() -> Arc<Scripted> {
    Arc::new(Scripted::with(BTreeSet::from([NodeCapability::StageUnstageVolume])))
}

fn ready(state: &VolumeState) -> bool {
    matches!(state, VolumeState::Ready(_))
}

pub(super) fn gone(state: &VolumeState) -> bool {
    *state == VolumeState::Gone
}

/// Whether somebody waits and these words say why.
pub(super) fn told(words: &'static str) -> impl Fn(&VolumeState) -> bool {
    move |state| {
        matches!(state, VolumeState::Waiting { problems, .. }
            if problems.iter().any(|problem| problem.message.contains(words)))
    }
}

/// As upstream's: at once, and with every try of the pod.
#[tokio::test(start_paused = true)]
async fn a_missing_claim_is_told_of_the_pod_again_and_again() {
    let (bed, one) = (Bed::with(&stager()), claimant("u1"));
    let (writer, recorder) = (&bed.writer, &bed.recorder);
    let volumes = bed.life(&[&one]);
    volumes.want(&one);
    until(&volumes, one.uid(), told("not found")).await;
    let counts = || -> Vec<(&str, String, u32)> {
        let events = recorder.all();
        events.into_iter().map(|event| (event.reason, event.message, event.count)).collect()
    };
    let text = |why: &str| {
        format!(
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], \
             failed to process volumes=[v]: error processing PVC ns/c: {why}"
        )
    };
    let first = text("failed to fetch PVC: persistentvolumeclaim \"c\" not found");
    let counted = counts();
    assert_eq!(counted, [("FailedMount", first.clone(), 1)], "and no event of the volume");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let counted = counts();
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!((5..=7).contains(&counted[0].2), "every 10 to 15 s: {counted:?}");
    // Another reason is told at once.
    writer.replace(Source::File, &[claim("ReadWriteOnce")]);
    until(&volumes, one.uid(), told("persistentvolume \"pv\"")).await;
    let counted = counts();
    let second = text("failed to fetch PV pv: persistentvolume \"pv\" not found");
    assert!(counted.contains(&("FailedMount", second, 1)), "{counted:?}");
    writer.replace(Source::File, &[claim("ReadWriteOnce"), volume("ReadWriteOnce", "")]);
    until(&volumes, one.uid(), ready).await;
    let settled = counts();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(counts(), settled, "nothing is told of a pod that has all");
}

#[tokio::test]
async fn what_is_staged_is_not_staged_again_after_a_failed_publish() {
    let node = stager();
    node.answers.lock().unwrap().extend([Code::Ok, Code::Internal, Code::Unavailable]);
    let one = claimant("u1");
    let bed = bed(&node, "ReadWriteOnce");
    let volumes = life(&bed);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    assert_eq!(node.calls(), ["stage", "publish", "publish", "publish"]);
}

#[tokio::test]
async fn pods_share_a_volume_and_the_last_one_undoes_it() {
    let node = stager();
    node.answers.lock().unwrap().push_back(Code::Internal);
    let (one, two) = (claimant("u1"), claimant("u2"));
    let bed = bed(&node, "ReadWriteOnce");
    let volumes = life(&bed);
    volumes.want(&one);
    let failed =
        "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Internal desc = no";
    until(&volumes, one.uid(), told(failed)).await;
    let staging = bed.root().join("plugins/kubernetes.io/csi/d.example");
    assert_eq!(std::fs::read_dir(&staging).expect("a directory").count(), 0);
    until(&volumes, one.uid(), ready).await;
    volumes.want(&two);
    until(&volumes, two.uid(), ready).await;
    assert_eq!(node.calls(), ["stage", "stage", "publish", "publish"]);
    let dir = bed.root().join("pods/u1/volumes/kubernetes.io~csi/pv");
    assert!(dir.join("vol_data.json").exists(), "it has the name of its PersistentVolume");

    volumes.release(one.uid());
    until(&volumes, one.uid(), gone).await;
    assert_eq!(node.calls()[4..], ["unpublish"]);
    // Another life knows from the disk that nobody else has it.
    let other = life(&bed);
    node.answers.lock().unwrap().extend([Code::Ok, Code::Unavailable]);
    other.release(two.uid());
    until(&other, two.uid(), gone).await;
    assert_eq!(node.calls()[5..], ["unpublish", "unstage", "unpublish", "unstage"]);
    assert_eq!(std::fs::read_dir(&staging).expect("a directory").count(), 0);
}

/// Whoever bound it noted nothing; a driver that undoes it would take it away.
#[tokio::test]
async fn a_volume_that_somebody_has_bound_elsewhere_is_not_unstaged() {
    let node = stager();
    let one = claimant("u1");
    let bed = bed(&node, "ReadWriteOnce");
    let volumes = life(&bed);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    let staging = bed.root().join("plugins/kubernetes.io/csi/d.example");
    let own = std::fs::read_dir(&staging).expect("a directory").next().expect("a volume");
    let shared = own.expect("an entry").path().join("globalmount");
    let elsewhere = bed.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    let place = mounts::Place::directory(&shared).expect("a directory");
    for target in [&shared, &elsewhere] {
        mounts::bind(&place, target, mounts::Bind::default()).expect("a bind, as root");
    }
    volumes.release(one.uid());
    until(&volumes, one.uid(), told("is still mounted by other references")).await;
    assert!(!node.calls().iter().any(|call| call == "unstage"), "{:?}", node.calls());
    for target in [&elsewhere, &shared] {
        mounts::unmount(target).expect("an unmount");
    }
    until(&volumes, one.uid(), gone).await;
    assert!(node.calls().iter().any(|call| call == "unstage"), "{:?}", node.calls());
}

/// By the first pod of each life of the agent, and when it is to be larger.
#[tokio::test(start_paused = true)]
async fn a_volume_in_use_grows_with_what_is_written_of_it() {
    let can = [NodeCapability::StageUnstageVolume, NodeCapability::ExpandVolume];
    let node = Arc::new(Scripted::with(BTreeSet::from(can)));
    node.answers.lock().unwrap().extend([Code::Ok, Code::Ok, Code::Ok, Code::OutOfRange]);
    let (bed, one) = (Bed::with(&node), claimant("u1"));
    let (writer, recorder) = (&bed.writer, &bed.recorder);
    let volumes = bed.life(&[&one]);
    let once = "ReadWriteOnce";
    let sized = |size: &str| volume(once, &format!(r#","capacity":{{"storage":"{size}"}}"#));
    writer.replace(Source::File, &[claim(once), sized("1Ki")]);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    let asked = |bytes: u64| {
        let dir = bed.root().join("pods/u1/volumes/kubernetes.io~csi/pv/mount");
        format!("expand {} {bytes}", dir.display())
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.calls(), ["stage".to_owned(), "publish".to_owned(), asked(1024)]);
    assert_eq!(recorder.all().len(), 0, "nobody knows whether it was smaller");

    writer.replace(Source::File, &[claim(once), sized("2Ki")]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.calls()[3..], [asked(2048)], "refused");
    until(&volumes, one.uid(), ready).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.calls()[4..], [asked(2048)], "asked again, once");
    let told: Vec<_> = recorder.all().into_iter().map(|e| (e.reason, e.message)).collect();
    let failed = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : Expander.NodeExpand \
                  failed to expand the volume rpc error: code = OutOfRange desc = no";
    let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n";
    assert_eq!(
        told,
        [
            ("VolumeResizeFailed", failed.to_owned()),
            ("FileSystemResizeSuccessful", grown.to_owned())
        ]
    );
    // It never shrinks, and what is as large as it was is left alone.
    writer.replace(Source::File, &[claim(once), sized("1Ki")]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.calls().len(), 5);
}

#[tokio::test]
async fn a_volume_for_one_pod_is_given_to_one() {
    let node = stager();
    let (one, two) = (claimant("u1"), claimant("u2"));
    let bed = bed(&node, "ReadWriteOncePod");
    let volumes = life(&bed);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    volumes.want(&two);
    until(&volumes, two.uid(), told("already in use by another pod")).await;
    volumes.release(one.uid());
    until(&volumes, two.uid(), ready).await;
    assert_eq!(node.calls(), ["stage", "publish", "unpublish", "unstage", "stage", "publish"]);
}

#[tokio::test]
async fn the_place_of_another_volume_is_not_taken() {
    let node = stager();
    let bed = bed(&node, "ReadWriteOnce");
    let dir = bed.root().join("pods/u1/volumes/kubernetes.io~csi/pv");
    std::fs::create_dir_all(&dir).expect("a directory");
    let old =
        r#"{"driverName":"d.example","volumeHandle":"old","volumeLifecycleMode":"Persistent"}"#;
    std::fs::write(dir.join("vol_data.json"), old).expect("a note");
    let one = claimant("u1");
    let volumes = life(&bed);
    volumes.want(&one);
    until(&volumes, one.uid(), told("is still the place of volume old of d.example")).await;
    let kept = std::fs::read_to_string(dir.join("vol_data.json")).expect("the note");
    assert_eq!((kept.as_str(), node.calls()), (old, vec![]));
    volumes.release(one.uid());
    until(&volumes, one.uid(), gone).await;
    assert_eq!(node.calls(), ["unpublish"], "the old one");
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_note_that_cannot_be_read_may_be_about_the_volume() {
    let node = stager();
    let one = claimant("u1");
    let bed = bed(&node, "ReadWriteOnce");
    let volumes = life(&bed);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    let dir = bed.root().join("pods/u2/volumes/kubernetes.io~csi/pv");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("vol_data.json"), "{").expect("a note");
    volumes.release(one.uid());
    until(&volumes, one.uid(), told("u2/volumes/kubernetes.io~csi/pv/vol_data.json")).await;
    assert_eq!(node.calls()[2..], ["unpublish"], "it is not unstaged");
    std::fs::remove_file(dir.join("vol_data.json")).expect("the note");
    until(&volumes, one.uid(), gone).await;
    assert_eq!(node.calls()[3..], ["unpublish", "unstage"]);
}
