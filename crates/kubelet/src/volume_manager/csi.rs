//! CSI volumes: what a pod wants of a driver, and what is noted on the disk. Pure.
//!
//! Without an API server nothing says what a driver needs to know. It is told
//! about the pod with every inline volume, as with `podInfoOnMount`, and gives
//! inline volumes to whoever asks. Upstream: pkg/volume/csi.

mod vol_data;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::CSIVolumeSource;
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};
use mounts::ownership::ChangePolicy;
use plugin_apis::csi::volume_capability::{self, AccessType, MountVolume};
use plugin_apis::csi::{AccessMode, NodeCapability, NodePublishVolumeRequest, VolumeCapability};
use plugin_apis::{CallError, CallErrorKind};
use tonic::Code;

pub(super) use vol_data::{BadVolData, VOL_DATA_BYTES_MAX, VolData, attachment_id, inline_handle};

/// What a pod wants of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiSpec {
    /// Which driver.
    pub driver: String,
    /// The volume, as the driver knows it.
    pub handle: String,
    /// It can only be read.
    pub read_only: bool,
    /// The file system it should have; empty leaves it to the driver.
    pub fs_type: String,
    /// What the driver is told, of the volume and of the pod.
    pub context: BTreeMap<String, String>,
    /// Where the driver's credentials are.
    pub secret: Option<ObjectKey>,
    /// The group that may use it.
    pub fs_group: Option<u32>,
    /// When all files are given to the group.
    pub change_policy: ChangePolicy,
}

/// What the CSI volume of a pod's own spec asks for.
pub(super) fn inline(name: &str, source: &CSIVolumeSource, pod: &DesiredPod) -> CsiSpec {
    let context = pod.spec().security_context.as_ref();
    let fs_group = context.and_then(|context| context.fs_group);
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    let mut told = source.volume_attributes.clone().unwrap_or_default();
    told.extend(pod_info(pod));
    let secret = source.node_publish_secret_ref.as_ref();
    CsiSpec {
        driver: source.driver.clone(),
        handle: inline_handle(pod.uid().as_str(), name),
        read_only: source.read_only.unwrap_or(false),
        fs_type: source.fs_type.clone().unwrap_or_default(),
        context: told,
        secret: secret.map(|secret| {
            ObjectKey::new(ObjectKind::Secret, pod.namespace(), &secret.name)
        }),
        fs_group: fs_group.and_then(|id| u32::try_from(id).ok()),
        change_policy: match policy {
            Some("OnRootMismatch") => ChangePolicy::OnRootMismatch,
            _ => ChangePolicy::Always,
        },
    }
}

/// What drivers are told about a pod, under CSI's own keys.
fn pod_info(pod: &DesiredPod) -> BTreeMap<String, String> {
    let account = pod.spec().service_account_name.clone().unwrap_or_default();
    let entries = [
        ("pod.name", pod.name().to_owned()),
        ("pod.namespace", pod.namespace().to_owned()),
        ("pod.uid", pod.uid().as_str().to_owned()),
        ("serviceAccount.name", account),
        ("ephemeral", "true".to_owned()),
    ];
    entries.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).into()
}

impl CsiSpec {
    /// The credentials, or that they are missing.
    pub(super) fn secrets(
        &self,
        get: impl Fn(&ObjectKey) -> Option<std::sync::Arc<ConfigObject>>,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(key) = &self.secret else { return Ok(BTreeMap::new()) };
        let ObjectKey { namespace, name, .. } = key;
        let found = get(key).ok_or_else(|| {
            format!(
                "fetching NodePublishSecretRef {namespace}/{name} failed: kubernetes.io/csi: \
                 failed to find the secret {name} in the namespace {namespace} with error: \
                 secret \"{name}\" not found"
            )
        })?;
        let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
        Ok(found.data.iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    /// Whether the driver gives the volume to the pod's group itself.
    fn driver_owns(capabilities: &BTreeSet<NodeCapability>) -> bool {
        capabilities.contains(&NodeCapability::VolumeMountGroup)
    }

    /// The group that the agent has to give the volume to once it is mounted. As
    /// for a driver that nobody describes: only with a named file system.
    pub(super) fn group_to_give(&self, capabilities: &BTreeSet<NodeCapability>) -> Option<u32> {
        let may = !Self::driver_owns(capabilities) && !self.read_only && !self.fs_type.is_empty();
        self.fs_group.filter(|_| may)
    }

    /// What the driver is asked, to mount the volume for a pod.
    pub(super) fn publish_request(
        &self,
        target: &str,
        secrets: BTreeMap<String, String>,
        capabilities: &BTreeSet<NodeCapability>,
    ) -> NodePublishVolumeRequest {
        let mode = match capabilities.contains(&NodeCapability::SingleNodeMultiWriter) {
            true => AccessMode::SingleNodeMultiWriter,
            false => AccessMode::SingleNodeWriter,
        };
        let group = self.fs_group.filter(|_| Self::driver_owns(capabilities));
        let mount = MountVolume {
            fs_type: self.fs_type.clone(),
            mount_flags: Vec::new(),
            volume_mount_group: group.map(|gid| gid.to_string()).unwrap_or_default(),
        };
        NodePublishVolumeRequest {
            volume_id: self.handle.clone(),
            publish_context: Default::default(),
            staging_target_path: String::new(),
            target_path: target.to_owned(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(mount)),
                access_mode: Some(volume_capability::AccessMode { mode: mode as i32 }),
            }),
            readonly: self.read_only,
            secrets: secrets.into_iter().collect(),
            volume_context: self.context.clone().into_iter().collect(),
        }
    }
}

/// A failed call, in the words that upstream's clients have for it.
pub(super) fn rpc_error(error: &CallError) -> String {
    let code = match error.code() {
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    };
    let text = match &error.kind {
        CallErrorKind::Answered { message, .. } => message.clone(),
        CallErrorKind::TimedOut(_) => "context deadline exceeded".to_owned(),
        other => other.to_string(),
    };
    format!("rpc error: code = {code} desc = {text}")
}
