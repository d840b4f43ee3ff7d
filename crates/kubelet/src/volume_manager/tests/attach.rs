//! Volumes of a node of a cluster: attached before they are mounted, in use until they
//! are undone, and made as the driver's object says. The API server is what the test
//! writes into the cache of objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::token::{EXPIRES, TOKEN};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind, Source};
use serde_json::{Value, json};
use tonic::Code;

use super::super::attach::Attachments;
use super::super::csi::{attachment_id, driver_key};
use super::super::{Step, VolumeState, Volumes, attach_limit};
use super::bed::Bed;
use super::claims::{gone, stager, storage, told};
use super::csi::Scripted;
use super::{pod, ports, until};
use crate::events::Recorder;
use crate::object_cache::{self, Answers, Objects};
use crate::plugin_manager::Drivers;
use crate::pod_sources::PodSetReader;
use crate::ports::{CsiNode, Ports};
use crate::progress::ProgressBoard;
use crate::settings::Settings;

const NAME: &str = "kubernetes.io/csi/d.example^h";

/// A node that has joined, with a driver.
pub(super) struct Joined {
    objects: Objects,
    answers: Answers,
    pub(super) recorder: Recorder,
    driver: Arc<Scripted>,
    pub(super) ports: Ports,
    settings: Arc<Settings>,
}

impl Joined {
    pub(super) fn new(root: &Path, driver: Arc<Scripted>) -> Self {
        let mut settings = Settings::for_node("n");
        settings.root_dir = root.to_owned();
        settings.sync_frequency = Duration::from_millis(50);
        let api = apiserver::direct::Direct::alone(Arc::new(jiff::Timestamp::now), 10);
        let ports = Ports { api: Some(Arc::new(api.expect("an API"))), ..ports() };
        let (_, objects) = object_cache::new();
        let answers = objects.join_cluster();
        let recorder = Recorder::new(Arc::clone(&ports.clock));
        Self { objects, answers, recorder, driver, ports, settings: Arc::new(settings) }
    }

    pub(super) fn volumes(&self, pod: &DesiredPod) -> Volumes {
        let drivers = Arc::clone(&self.driver) as Arc<dyn CsiNode>;
        let drivers = Drivers::holding("d.example", drivers);
        let (_, desired) = PodSetReader::for_test(&[pod]);
        let progress = ProgressBoard::default();
        let Self { ports, settings, recorder, objects, .. } = self;
        Volumes::new(ports, settings, recorder, &progress, objects, &desired, &drivers)
    }

    /// The server has this, or nothing, under a key.
    pub(super) fn answer(&self, key: &ObjectKey, object: Option<Value>) {
        let object = object
            .map(|object| cluster::objects::config_object(key, object).expect("a usable object"));
        self.answers.know(key, object.map(Arc::new));
    }

    /// Claim, volume and the object of the driver.
    fn stored(&self, driver: Value) {
        let claim = json!({"metadata": {"uid": "c-uid"}, "spec": {"volumeName": "pv",
            "accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}});
        self.answer(&claim_key(), Some(claim));
        let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "ns", "name": "c", "uid": "c-uid"},
            "csi": {"driver": "d.example", "volumeHandle": "h"}}});
        self.answer(&volume_key(), Some(volume));
        self.answer(&driver_key("d.example"), Some(json!({"spec": driver})));
    }
}

pub(super) fn claim_key() -> ObjectKey {
    ObjectKey::new(ObjectKind::PersistentVolumeClaim, "ns", "c")
}

pub(super) fn volume_key() -> ObjectKey {
    ObjectKey::new(ObjectKind::PersistentVolume, "", "pv")
}

fn attachment_key() -> ObjectKey {
    let id = attachment_id("h", "d.example", "n");
    ObjectKey::new(ObjectKind::VolumeAttachment, "", &id)
}

pub(super) fn from_api(source: &str) -> DesiredPod {
    let pod = pod("", r#","serviceAccountName":"robot""#, source);
    let pod = Pod::clone(pod.pod());
    DesiredPod::new(Source::Api, Arc::new(pod)).expect("a complete pod")
}

pub(super) fn claimant() -> DesiredPod {
    from_api(r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#)
}

pub(super) fn ready(state: &VolumeState) -> bool {
    matches!(state, VolumeState::Ready(_))
}

pub(super) async fn until_in_use(attachments: &Attachments, expected: &[&str]) {
    let mut changes = attachments.in_use_changes();
    let waits = async {
        while attachments.in_use().is_none_or(|all| all != expected) {
            changes.changed().await.expect("a table");
        }
    };
    let waits = tokio::time::timeout(Duration::from_secs(20), waits);
    waits.await.unwrap_or_else(|_| panic!("in use: {:?}", attachments.in_use()));
}

#[tokio::test]
async fn a_volume_is_mounted_once_it_is_attached_and_in_use_until_it_is_undone() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), stager());
    let (one, driver) = (claimant(), Arc::clone(&joined.driver));
    joined.stored(json!({}));
    let volumes = joined.volumes(&one);
    let attachments = volumes.attachments();
    volumes.want(&one);
    let waits = "VerifyControllerAttachedVolume failed for volume \"pv\" : volume \
                 kubernetes.io/csi/d.example^h is not yet in node's status";
    until(&volumes, one.uid(), told(waits)).await;
    assert_eq!(attachments.in_use(), None, "the node's own status is not known");
    attachments.node_says(&[], &[]);
    until_in_use(&attachments, &[NAME]).await;
    attachments.reported(&[NAME.to_owned()]);
    attachments.node_says(&[], &[(NAME, "")]);
    let attachment = json!({"status": {"attached": false}});
    joined.answer(&attachment_key(), Some(attachment));
    until(&volumes, one.uid(), told("volume h is not attached for volume attachment csi-")).await;
    assert_eq!(driver.calls(), [""; 0]);
    let attachment = json!({"status": {"attached": true, "attachmentMetadata": {"dev": "sdb"}}});
    joined.answer(&attachment_key(), Some(attachment));
    until(&volumes, one.uid(), ready).await;
    assert_eq!(driver.calls(), ["stage", "publish"]);
    assert_eq!(driver.contexts(), [r#"{"dev": "sdb"}"#; 2]);
    let reasons: Vec<&str> = joined.recorder.all().iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["FailedMount"], "only the attachment that failed is told");

    // Another life: what is attached is in use at once, and nothing is undone before.
    let other = joined.volumes(&one);
    let attachments = other.attachments();
    other.release(one.uid());
    driver.answers.lock().unwrap().extend([Code::Internal]);
    let looked = |state: &VolumeState| matches!(state, VolumeState::Waiting { volumes, .. } if volumes == &["pv"]);
    until(&other, one.uid(), looked).await;
    assert_eq!(driver.calls().len(), 2, "nothing was undone");
    attachments.node_says(&[], &[(NAME, "")]);
    until(&other, one.uid(), told("code = Internal")).await;
    assert_eq!(attachments.in_use().unwrap(), [NAME], "it could not be undone");
    until(&other, one.uid(), gone).await;
    assert_eq!(driver.calls()[2..], ["unpublish", "unpublish", "unstage"]);
    until_in_use(&attachments, &[]).await;
}

#[tokio::test]
async fn what_needs_no_attachment_is_not_waited_for_and_the_agent_attaches_nothing() {
    let temp = tempfile::tempdir().expect("a directory");
    let mut joined = Joined::new(temp.path(), stager());
    let one = claimant();
    joined.stored(json!({"attachRequired": false, "podInfoOnMount": true}));
    let volumes = joined.volumes(&one);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    volumes.attachments().node_says(&[], &[]);
    until_in_use(&volumes.attachments(), &[]).await;
    let told_of_pod = joined.driver.told().pop().expect("it was asked");
    assert_eq!(told_of_pod["csi.storage.k8s.io/pod.name"], "web");
    assert_eq!(told_of_pod["csi.storage.k8s.io/ephemeral"], "false");
    assert_eq!(told_of_pod["csi.storage.k8s.io/serviceAccount.name"], "robot");

    let elsewhere = tempfile::tempdir().expect("a directory");
    let settings = Arc::make_mut(&mut joined.settings);
    settings.controller_attaches = false;
    settings.root_dir = elsewhere.path().to_owned();
    joined.stored(json!({}));
    let volumes = joined.volumes(&one);
    volumes.want(&one);
    let text = "AttachVolume.Attach failed for volume \"pv\" : attaching volumes from the kubelet \
                is not supported";
    until(&volumes, one.uid(), told(text)).await;
    assert_eq!(joined.recorder.all().last().expect("an event").reason, "FailedAttachVolume");
}

#[tokio::test]
async fn a_disk_of_another_machine_waits_for_its_turn_on_this_node() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), stager());
    let one = from_api(r#"{"name":"v","fc":{"targetWWNs":["500a"],"lun":0}}"#);
    let volumes = joined.volumes(&one);
    let attachments = volumes.attachments();
    attachments.node_says(&[], &[]);
    volumes.want(&one);
    until(&volumes, one.uid(), told("volume kubernetes.io/fc/[500a]:0 is not yet in")).await;
    until_in_use(&attachments, &["kubernetes.io/fc/[500a]:0"]).await;
    volumes.release(one.uid());
    until(&volumes, one.uid(), gone).await;
    until_in_use(&attachments, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_with_too_many_volumes_gives_a_pod_up_after_a_while() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), stager());
    let one = claimant();
    joined.stored(json!({"nodeAllocatableUpdatePeriodSeconds": 60}));
    let volumes = joined.volumes(&one);
    volumes.attachments().node_says(&[], &[]);
    volumes.want(&one);
    let full = |state: &VolumeState| {
        matches!(state, VolumeState::Waiting { problems, .. }
            if problems.iter().any(|problem| problem.step == Step::AttachLimit))
    };
    let error =
        |code: i32| json!({"status": {"attachError": {"message": "no", "errorCode": code}}});
    joined.answer(&attachment_key(), Some(error(14)));
    until(&volumes, one.uid(), told("is not yet in node's status")).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!volumes.state(one.uid()).is_some_and(|state| full(&state)), "the cluster tries on");
    joined.answer(&attachment_key(), Some(error(8)));
    let state = until(&volumes, one.uid(), full).await;
    let VolumeState::Waiting { volumes, problems, .. } = state else { panic!("it waits") };
    let said = attach_limit(&volumes, &problems).expect("the pod cannot stay");
    assert!(said.starts_with("Node has reached its volume attachment limit, rejecting pod. "));
    assert_eq!(joined.recorder.all(), [], "the pod's worker tells");
}

/// A pod went while the agent was away: its disk is in use until it is let go.
#[tokio::test]
async fn disks_that_an_earlier_life_left_are_in_use_until_they_are_undone() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), stager());
    let one = claimant();
    let pod = temp.path().join("pods/u1");
    let (dir, notes) = ("volumes/kubernetes.io~fc/pv", "plugins/kubernetes.io~fc/pv");
    for dir in [dir, notes] {
        std::fs::create_dir_all(pod.join(dir)).expect("directories");
    }
    let name = "kubernetes.io/fc/[500a 500b]:0";
    std::fs::write(pod.join(notes).join("unique-name"), name).expect("a note");
    let volumes = joined.volumes(&one);
    let attachments = volumes.attachments();
    volumes.release(one.uid());
    let looked = |state: &VolumeState| matches!(state, VolumeState::Waiting { volumes, .. } if volumes == &["pv"]);
    until(&volumes, one.uid(), looked).await;
    assert!(pod.join(dir).exists(), "nothing was undone");
    let mut changes = attachments.in_use_changes();
    changes.borrow_and_update();
    attachments.node_says(&[], &[(name, "")]);
    changes.changed().await.expect("a table");
    until(&volumes, one.uid(), gone).await;
    assert!(!pod.join(dir).exists());
    until_in_use(&attachments, &[]).await;
    // Not undone yet, it is told.
    std::fs::create_dir_all(pod.join(dir)).expect("directories");
    std::fs::create_dir_all(pod.join(notes)).expect("directories");
    std::fs::write(pod.join(notes).join("unique-name"), name).expect("a note");
    let other = joined.volumes(&one);
    other.attachments().node_says(&[], &[(name, "")]);
    until_in_use(&other.attachments(), &[name]).await;
}

#[tokio::test]
async fn inline_volumes_need_the_drivers_word_and_get_fresh_tokens() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), Arc::new(Scripted::default()));
    let one = from_api(r#"{"name":"v","csi":{"driver":"d.example"}}"#);
    let volumes = joined.volumes(&one);
    joined.answer(&driver_key("d.example"), None);
    volumes.want(&one);
    let text = "mounter.SetupAt failed to check volume lifecycle mode: volume mode \"Ephemeral\" \
                not supported by driver d.example (no CSIDriver object)";
    until(&volumes, one.uid(), told(text)).await;
    let spec = json!({"volumeLifecycleModes": ["Ephemeral"], "requiresRepublish": true,
        "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}]});
    joined.answer(&driver_key("d.example"), Some(json!({"spec": spec})));
    // The token is asked for; nobody is told anything meanwhile.
    let key = ObjectKey {
        kind: ObjectKind::ServiceAccountToken,
        namespace: "ns".to_owned(),
        name: "robot/web/u1/600/vault".to_owned(),
    };
    while !joined.objects.wanted().contains(&key) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let token = |secret: &str| {
        let value = |key: &str, text: &str| (key.to_owned(), text.as_bytes().to_vec());
        let data = BTreeMap::from([value(TOKEN, secret), value(EXPIRES, "2030-01-01T00:00:00Z")]);
        let (uid, secret_type, binary) = (String::new(), String::new(), BTreeMap::new());
        Some(Arc::new(ConfigObject { key: key.clone(), uid, secret_type, data, binary }))
    };
    joined.answers.know(&key, token("one"));
    until(&volumes, one.uid(), ready).await;
    let last = || {
        let mut told = joined.driver.told().pop().unwrap_or_default();
        told.remove("csi.storage.k8s.io/serviceAccount.tokens").unwrap_or_default()
    };
    let shown = |secret: &str| json!({"vault": {"token": secret, "expirationTimestamp": "2030-01-01T00:00:00Z"}});
    assert_eq!(serde_json::from_str::<Value>(&last()).unwrap(), shown("one"));
    joined.answers.know(&key, token("two"));
    // Failures are told, and change nothing.
    joined.driver.answers.lock().unwrap().extend([Code::Internal]);
    while !last().contains("two") || joined.driver.calls().len() < 4 {
        assert!(volumes.state(one.uid()).is_some_and(|state| ready(&state)), "it stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(temp.path().join("pods/u1/volumes/kubernetes.io~csi/v/vol_data.json").exists());
    assert!(joined.recorder.all().iter().any(|event| event.message.contains("code = Internal")));
}

#[tokio::test]
async fn a_volume_of_another_place_is_not_mounted() {
    let temp = tempfile::tempdir().expect("a directory");
    let joined = Joined::new(temp.path(), stager());
    let one = claimant();
    joined.stored(json!({"attachRequired": false}));
    let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "ns", "name": "c", "uid": "c-uid"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "zone", "operator": "In", "values": ["z"]}]}]}},
        "csi": {"driver": "d.example", "volumeHandle": "h"}}});
    joined.answer(&volume_key(), Some(volume));
    let volumes = joined.volumes(&one);
    volumes.attachments().node_says(&[("zone", "y")], &[]);
    volumes.want(&one);
    let text = "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching \
                NodeSelectorTerms";
    until(&volumes, one.uid(), told(text)).await;
    assert_eq!(joined.recorder.all().last().expect("an event").reason, "FailedMount");
    volumes.attachments().node_says(&[("zone", "z")], &[]);
    until(&volumes, one.uid(), ready).await;
}

#[test]
fn a_cluster_says_whether_a_claim_can_be_used() {
    let volumes = |source| super::volumes_of(&from_api(source)).expect("a volume");
    let named = volumes(r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#);
    let owned = volumes(r#"{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}"#);
    let going = "2026-01-01T00:00:00Z";
    let (spec, bound) = (json!({"volumeName": "pv"}), json!({"phase": "Bound"}));
    let claim = |metadata: Value, spec: &Value, status: Value| json!({"metadata": metadata, "spec": spec, "status": status});
    let volume = |reference: Value| {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "claimRef": reference,
            "csi": {"driver": "d", "volumeHandle": "h"}}})
    };
    let good = json!({"uid": "u"});
    let kept = json!({"uid": "u", "deletionTimestamp": going,
        "finalizers": ["kubernetes.io/pvc-protection"]});
    let owner =
        |uid: &str| json!({"uid": "u", "ownerReferences": [{"uid": uid, "controller": true}]});
    let prefix = "error processing PVC ns/c: ";
    for (pod, metadata, spec, status, reference, expected) in [
        (&named, good.clone(), &spec, bound.clone(), json!({"uid": "u"}), ""),
        (&named, kept, &spec, bound.clone(), json!({"uid": "u"}), ""),
        (
            &named,
            json!({"uid": "u", "deletionTimestamp": going}),
            &spec,
            bound.clone(),
            json!({"uid": "u"}),
            "error processing PVC ns/c: PVC is being deleted",
        ),
        (
            &named,
            good.clone(),
            &spec,
            json!({"phase": "Pending"}),
            json!({"uid": "u"}),
            "error processing PVC ns/c: PVC is not bound",
        ),
        (
            &named,
            good.clone(),
            &json!({}),
            bound.clone(),
            json!({"uid": "u"}),
            "error processing PVC ns/c: PVC has empty pvc.Spec.VolumeName",
        ),
        (
            &named,
            good.clone(),
            &spec,
            bound.clone(),
            json!(null),
            "error processing PVC ns/c: found PV object pv but it has a nil pv.Spec.ClaimRef \
             indicating it is not yet bound to the claim",
        ),
        (
            &named,
            good.clone(),
            &spec,
            bound.clone(),
            json!({"uid": "w"}),
            "error processing PVC ns/c: found PV object pv but its pv.Spec.ClaimRef.UID w does \
             not point to claim.UID u",
        ),
        (&owned, owner("u1"), &spec, bound.clone(), json!({"uid": "u"}), ""),
        (
            &owned,
            owner("u2"),
            &spec,
            bound.clone(),
            json!({"uid": "u"}),
            "PVC ns/web-v was not created for pod ns/web (pod is not owner)",
        ),
    ] {
        let wanted = pod.volumes.values().next().expect("a volume");
        let super::super::desired::Wanted::Claim(wanted) = wanted else { panic!("{wanted:?}") };
        let claim = claim(metadata, spec, status);
        let objects = [(wanted.claim.clone(), claim), (volume_key(), volume(reference))];
        let get = |key: &ObjectKey| {
            let (_, object) = objects.iter().find(|(known, _)| known == key)?;
            cluster::objects::config_object(key, object.clone()).ok().map(Arc::new)
        };
        let said = wanted.resolve(&get).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said, expected);
    }
    let super::super::desired::Wanted::Claim(wanted) = named.volumes.values().next().unwrap()
    else {
        panic!("no claim")
    };
    let missing = wanted.resolve(&|_| None).unwrap_err().to_string();
    let text = "failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found";
    assert_eq!(missing, format!("{prefix}{text}"));
}

/// A node of its own has labels, too.
#[tokio::test]
async fn without_a_cluster_the_nodes_own_labels_count() {
    let mut bed = Bed::new();
    bed.settings.node_labels = BTreeMap::from([("zone".to_owned(), "y".to_owned())]);
    let affine = |zone: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": bed.root(), "type": "Directory"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "zone", "operator": "In", "values": [zone]}]}]}}});
        storage(ObjectKind::PersistentVolume, "", "pv", &spec.to_string())
    };
    let spec = r#"{"accessModes":["ReadWriteOnce"],"volumeName":"pv"}"#;
    let claim = storage(ObjectKind::PersistentVolumeClaim, "ns", "c", spec);
    bed.writer.replace(Source::File, &[Arc::clone(&claim), affine("z")]);
    let one = pod("", "", r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#);
    let volumes = bed.life(&[&one]);
    volumes.want(&one);
    until(&volumes, one.uid(), told("NodeAffinity check failed for volume \"pv\" : no match"))
        .await;
    bed.writer.replace(Source::File, &[claim, affine("y")]);
    until(&volumes, one.uid(), ready).await;
}
