//! CSI volumes: what drivers are asked, plans without one, and a task against a
//! driver that exists only here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kubelet_model::{ConfigObject, ObjectKey, ObjectKind, Source};
use mounts::ownership::ChangePolicy;
use plugin_apis::csi::volume_capability::AccessType;
use plugin_apis::csi::{
    AccessMode, NodeCapability, NodeExpandVolumeRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeStageVolumeRequest,
};
use plugin_apis::{CallError, CallErrorKind};
use tonic::Code;

use super::super::VolumeState;
use super::super::csi::{CsiSpec, rpc_error};
use super::super::desired::Wanted;
use super::super::plan::{Contents, Goal, Lack, Observed, Op, Outcome, plan};
use super::bed::Bed;
use super::{at, name, pod, until, volumes_of};
use crate::ports::CsiNode;

const FULL: &str = r#""csi":{"driver":"d.example","fsType":"ext4",
    "volumeAttributes":{"colour":"blue"},"nodePublishSecretRef":{"name":"key"}}"#;

fn spec(source: &str, security: &str) -> Arc<CsiSpec> {
    let context = format!(r#","securityContext":{{{security}}}"#);
    let pod = pod("", &context, &format!(r#"{{"name":"v",{source}}}"#));
    match &volumes_of(&pod).expect("a volume").volumes[&name("v")] {
        Wanted::Csi(spec) => Arc::clone(spec),
        other => panic!("{source} is {other:?}"),
    }
}

#[test]
fn a_driver_is_told_what_the_pod_says_and_what_it_is() {
    let found = spec(FULL, r#""fsGroup":7,"fsGroupChangePolicy":"OnRootMismatch""#);
    let request = found.publish_request("", "/t", BTreeMap::new(), &BTreeSet::new());
    let told: BTreeMap<_, _> = request.volume_context.iter().collect();
    let told: Vec<_> = told.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        told,
        [
            "colour=blue",
            "csi.storage.k8s.io/ephemeral=true",
            "csi.storage.k8s.io/pod.name=web",
            "csi.storage.k8s.io/pod.namespace=ns",
            "csi.storage.k8s.io/pod.uid=u1",
            "csi.storage.k8s.io/serviceAccount.name=",
        ]
    );
    assert_eq!(found.grouping.policy, ChangePolicy::OnRootMismatch);
    assert_eq!(found.secret, Some(ObjectKey::new(ObjectKind::Secret, "ns", "key")));
    let error = found.secrets(|_| None).unwrap_err();
    assert!(error.starts_with("fetching NodePublishSecretRef ns/key failed: "), "{error}");
    assert_eq!((request.target_path.as_str(), request.readonly), ("/t", false));
    assert_eq!(request.volume_id, found.handle);
    assert_eq!(request.staging_target_path, "", "inline volumes are not staged");
}

#[test]
fn the_group_is_the_drivers_or_the_agents_to_give() {
    let (mounts, writers) =
        (NodeCapability::VolumeMountGroup, NodeCapability::SingleNodeMultiWriter);
    let plain = r#""csi":{"driver":"d.example"}"#;
    let read = r#""csi":{"driver":"d.example","fsType":"ext4","readOnly":true}"#;
    for (source, can, told, given) in [
        (FULL, vec![], "", Some(7)),
        (FULL, vec![mounts], "7", None),
        (plain, vec![], "", None),
        (plain, vec![mounts, writers], "7", None),
        (read, vec![], "", None),
    ] {
        let found = spec(source, r#""fsGroup":7"#);
        let can: BTreeSet<_> = can.into_iter().collect();
        assert_eq!(found.group_to_give(&can), given, "{source} {can:?}");
        let request = found.publish_request("", "/t", BTreeMap::new(), &can);
        let capability = request.volume_capability.expect("a capability");
        let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("no mount") };
        assert_eq!(mount.volume_mount_group, told, "{source} {can:?}");
        let mode = match can.contains(&writers) {
            true => AccessMode::SingleNodeMultiWriter,
            false => AccessMode::SingleNodeWriter,
        };
        assert_eq!(capability.access_mode.expect("a mode").mode, mode as i32);
    }
}

#[test]
fn a_volume_without_its_driver_is_not_tried() {
    let one = pod("", "", &format!(r#"{{"name":"v",{FULL}}}"#));
    let goal = Goal::Mount(Arc::new(volumes_of(&one).expect("volumes")));
    let mut observed = Observed::default();
    assert!(observed.needs_drivers(&goal) && !observed.needs_drivers(&Goal::Release));
    let missing = Contents::from([(name("v"), Err(Lack::to_mount("no driver".to_owned())))]);
    let rests = plan(&goal, &observed, &missing, at(0));
    assert_eq!((rests.ops, rests.wake_at), (vec![], None));
    assert_eq!(rests.problems[0].message, "MountVolume.SetUp failed for volume \"v\" : no driver");
    let set_up = Op::SetUp(name("v"));
    let none = Contents::new();
    assert_eq!(plan(&goal, &observed, &none, at(0)).ops, std::slice::from_ref(&set_up));
    // What failed waits, unless a driver comes.
    observed.note(set_up.clone(), Outcome::Failed("busy".to_owned()), at(0));
    assert_eq!(plan(&goal, &observed, &none, at(1)).ops, []);
    observed.forgive();
    assert_eq!(plan(&goal, &observed, &none, at(1)).ops, [set_up]);
}

fn failure(code: Code) -> CallError {
    let kind = CallErrorKind::Answered { code, message: "no".to_owned() };
    CallError { driver: "d.example".to_owned(), call: "c", volume: "v".to_owned(), kind }
}

#[test]
fn errors_read_as_upstreams() {
    let error = rpc_error(&failure(Code::Cancelled));
    assert_eq!(error, "rpc error: code = Canceled desc = no");
    let kind = CallErrorKind::TimedOut(std::time::Duration::from_secs(120));
    let error = rpc_error(&CallError { kind, ..failure(Code::Ok) });
    assert_eq!(error, "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
}

/// Mounts nothing; answers as it is told, then well.
#[derive(Default)]
pub(super) struct Scripted {
    capabilities: BTreeSet<NodeCapability>,
    pub answers: Mutex<VecDeque<Code>>,
    /// It never answers who asks for a mount.
    pub mute: AtomicBool,
    calls: Mutex<Vec<String>>,
    /// Whether the note of a volume was there when the driver was asked.
    noted: Mutex<Vec<bool>>,
    /// What it was told of attachments, and of volumes and pods.
    contexts: Mutex<Vec<String>>,
    told: Mutex<Vec<BTreeMap<String, String>>>,
}

impl Scripted {
    pub fn with(capabilities: BTreeSet<NodeCapability>) -> Self {
        Self { capabilities, ..Self::default() }
    }

    fn answer(&self, call: &str) -> Result<(), CallError> {
        self.calls.lock().unwrap().push(call.to_owned());
        match self.answers.lock().unwrap().pop_front() {
            Some(code) if code != Code::Ok => Err(failure(code)),
            _ => Ok(()),
        }
    }

    pub fn contexts(&self) -> Vec<String> {
        self.contexts.lock().unwrap().clone()
    }

    pub fn told(&self) -> Vec<BTreeMap<String, String>> {
        self.told.lock().unwrap().clone()
    }

    pub fn noted(&self) -> Vec<bool> {
        self.noted.lock().unwrap().clone()
    }

    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl CsiNode for Scripted {
    async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        Ok(NodeGetInfoResponse::default())
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        Ok(self.capabilities.clone())
    }

    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        self.contexts.lock().unwrap().push(format!("{:?}", request.publish_context));
        self.answer("stage")
    }

    async fn unstage(&self, _: &str, _: &str) -> Result<(), CallError> {
        self.answer("unstage")
    }

    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        let note = PathBuf::from(&request.target_path).with_file_name("vol_data.json");
        self.noted.lock().unwrap().push(note.exists());
        self.contexts.lock().unwrap().push(format!("{:?}", request.publish_context));
        self.told.lock().unwrap().push(request.volume_context.into_iter().collect());
        if self.mute.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.answer("publish")
    }

    async fn unpublish(&self, _: &str, _: &str) -> Result<(), CallError> {
        self.answer("unpublish")
    }

    async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<(), CallError> {
        let bytes = request.capacity_range.unwrap_or_default().required_bytes;
        self.answer(&format!("expand {} {bytes}", request.volume_path))
    }

    async fn stats(
        &self,
        _: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        self.answer("stats").map(|()| NodeGetVolumeStatsResponse::default())
    }
}

#[tokio::test]
async fn the_note_is_there_before_the_mount_and_goes_after_it() {
    let node = Arc::new(Scripted::default());
    let mut bed = Bed::with(&node);
    node.answers.lock().unwrap().extend([Code::Internal, Code::Aborted, Code::Ok, Code::Internal]);
    let source = r#""csi":{"driver":"d.example","nodePublishSecretRef":{"name":"key"}}"#;
    let pod = pod("", "", &format!(r#"{{"name":"v",{source}}}"#));
    let uid = pod.uid();
    let volumes = bed.life(&[&pod]);
    volumes.want(&pod);
    let told = |words: &'static str| {
        move |state: &VolumeState| {
            matches!(state, VolumeState::Waiting { problems, .. }
                if problems.iter().any(|problem| problem.message.contains(words)))
        }
    };
    until(&volumes, uid, told("failed to find the secret key")).await;
    assert_eq!(node.calls(), [""; 0]);
    let secret = ConfigObject {
        key: ObjectKey::new(ObjectKind::Secret, "ns", "key"),
        uid: String::new(),
        secret_type: String::new(),
        data: BTreeMap::new(),
        binary: BTreeMap::new(),
    };
    bed.writer.replace(Source::File, &[Arc::new(secret)]);
    let dir = bed.root().join("pods/u1/volumes/kubernetes.io~csi/v");
    until(&volumes, uid, told("code = Internal")).await;
    assert!(!dir.exists(), "after a final answer nothing is left");
    until(&volumes, uid, told("code = Aborted")).await;
    assert!(dir.join("vol_data.json").exists(), "it may be mounted yet");
    let ready = until(&volumes, uid, |state| matches!(state, VolumeState::Ready(_))).await;
    let VolumeState::Ready(all) = ready else { panic!("ready") };
    assert_eq!((&all["v"].host_path, all["v"].managed), (&dir.join("mount"), true));
    assert_eq!(*node.noted.lock().unwrap(), [true; 3]);

    // Another life, without the driver: it is waited for, and then asked.
    let drivers = std::mem::take(&mut bed.drivers);
    let other = bed.life(&[&pod]);
    other.release(uid);
    until(&other, uid, told("TearDownAt failed to get CSI client")).await;
    assert!(dir.join("vol_data.json").exists());
    bed.drivers = drivers;
    let third = bed.life(&[&pod]);
    third.release(uid);
    until(&third, uid, told("TearDownAt failed: rpc error: code = Internal")).await;
    until(&third, uid, |state| *state == VolumeState::Gone).await;
    assert_eq!(node.calls(), ["publish", "publish", "publish", "unpublish", "unpublish"]);
    assert!(!dir.exists(), "nothing is left");
}
