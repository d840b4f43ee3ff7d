//! CSI volumes: what a pod wants of a driver, and what is noted on the disk. Pure.
//!
//! In a cluster, a driver's CSIDriver object says what it needs to know. Without an API
//! server nothing does: it is told about the pod with every inline volume, as with
//! `podInfoOnMount`, and gives inline volumes to whoever asks. Upstream: pkg/volume/csi.

mod policy;
mod vol_data;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::CSIVolumeSource;
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};
use mounts::ownership::ChangePolicy;
use plugin_apis::csi::volume_capability::{self, AccessType, BlockVolume, MountVolume};
use plugin_apis::csi::{
    AccessMode, CapacityRange, NodeCapability, NodeExpandVolumeRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, VolumeCapability,
};
use plugin_apis::{CallError, CallErrorKind};

pub(super) use policy::{GroupPolicy, Life, driver_key};
pub use policy::{PodIdentity, PodTokens, Policy};
pub(super) use vol_data::{
    BadVolData, VOL_DATA_BYTES_MAX, VolData, attachment_id, hex_of, inline_handle,
};

use super::growth::Sizes;
use super::layout::VolumeName;
use super::selinux;
use crate::ports::code_name;

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
    /// What the driver is told of the volume.
    pub context: BTreeMap<String, String>,
    /// Whose it is.
    pub pod: PodIdentity,
    /// What the driver wants.
    pub policy: Policy,
    /// What it is told of how the volume is attached.
    pub publish_context: BTreeMap<String, String>,
    /// By which the pod proves who it is.
    pub tokens: PodTokens,
    /// Where the driver's credentials are.
    pub secret: Option<ObjectKey>,
    /// Whom its files belong to.
    pub grouping: Grouping,
    /// What is known of a volume that outlives the pod.
    pub persistent: Option<Persistent>,
}

/// Whom a volume's files belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// The group that may use it.
    pub fs_group: Option<u32>,
    /// When all files are given to the group.
    pub policy: ChangePolicy,
}

impl Grouping {
    /// What a pod says.
    pub(super) fn of(pod: &DesiredPod) -> Self {
        let context = pod.spec().security_context.as_ref();
        let fs_group = context.and_then(|context| context.fs_group);
        let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
        Self {
            fs_group: fs_group.and_then(|id| u32::try_from(id).ok()),
            policy: match policy {
                Some("OnRootMismatch") => ChangePolicy::OnRootMismatch,
                _ => ChangePolicy::Always,
            },
        }
    }
}

/// What is known of a volume that outlives pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persistent {
    /// The name of its PersistentVolume.
    pub volume: VolumeName,
    /// Who may use it at the same time.
    pub access: Access,
    /// It is a device, not a file system.
    pub block: bool,
    /// How it is mounted.
    pub mount_options: Vec<String>,
    /// Where the credentials for the shared mount are.
    pub stage_secret: Option<ObjectKey>,
    /// Where the credentials to grow it are.
    pub expand_secret: Option<ObjectKey>,
    /// How large it is to be.
    pub bytes: Option<i64>,
    /// What a cluster says of its size; nothing on a node of its own.
    pub sizes: Option<Sizes>,
    /// The SELinux label it is mounted with, if its driver can do that.
    pub label: Option<String>,
}

impl Persistent {
    /// The credentials for the shared mount, or that they are missing.
    pub(super) fn stage_secrets(
        &self,
        get: impl Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Result<BTreeMap<String, String>, String> {
        credentials("NodeStageSecretRef", self.stage_secret.as_ref(), get)
    }

    /// The credentials to grow it, or that they are missing.
    pub(super) fn expand_secrets(
        &self,
        get: impl Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Result<BTreeMap<String, String>, String> {
        credentials("NodeExpandSecretRef", self.expand_secret.as_ref(), get)
    }
}

/// Who may use a volume at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The pods of one node.
    Once,
    /// One pod.
    OncePod,
    /// Readers on many nodes.
    ReadMany,
    /// Everybody.
    Many,
}

impl Access {
    /// By its name in a manifest.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ReadWriteOnce" => Self::Once,
            "ReadWriteOncePod" => Self::OncePod,
            "ReadOnlyMany" => Self::ReadMany,
            "ReadWriteMany" => Self::Many,
            _ => return None,
        })
    }

    /// As a driver is told, which may tell one writer from several.
    fn mode(self, capabilities: &BTreeSet<NodeCapability>) -> AccessMode {
        let tells = capabilities.contains(&NodeCapability::SingleNodeMultiWriter);
        match (self, tells) {
            (Self::Once | Self::OncePod, false) => AccessMode::SingleNodeWriter,
            (Self::Once, true) => AccessMode::SingleNodeMultiWriter,
            (Self::OncePod, true) => AccessMode::SingleNodeSingleWriter,
            (Self::ReadMany, _) => AccessMode::MultiNodeReaderOnly,
            (Self::Many, _) => AccessMode::MultiNodeMultiWriter,
        }
    }
}

/// What the CSI volume of a pod's own spec asks for.
pub(super) fn inline(name: &str, source: &CSIVolumeSource, pod: &DesiredPod) -> CsiSpec {
    let secret = source.node_publish_secret_ref.as_ref();
    CsiSpec {
        driver: source.driver.clone(),
        handle: inline_handle(pod.uid().as_str(), name),
        read_only: source.read_only.unwrap_or(false),
        fs_type: source.fs_type.clone().unwrap_or_default(),
        context: source.volume_attributes.clone().unwrap_or_default(),
        pod: PodIdentity::of(pod),
        policy: Policy::default(),
        publish_context: BTreeMap::new(),
        tokens: PodTokens::default(),
        secret: secret
            .map(|secret| ObjectKey::new(ObjectKind::Secret, pod.namespace(), &secret.name)),
        grouping: Grouping::of(pod),
        persistent: None,
    }
}

/// Credentials of a Secret, or that it is missing.
fn credentials(
    what: &str,
    key: Option<&ObjectKey>,
    get: impl Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
) -> Result<BTreeMap<String, String>, String> {
    let Some(key) = key else { return Ok(BTreeMap::new()) };
    let ObjectKey { namespace, name, .. } = key;
    let found = get(key).ok_or_else(|| {
        format!(
            "fetching {what} {namespace}/{name} failed: kubernetes.io/csi: failed to find the \
             secret {name} in the namespace {namespace} with error: secret \"{name}\" not found"
        )
    })?;
    let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
    Ok(found.data.iter().map(|(key, value)| (key.clone(), text(value))).collect())
}

impl CsiSpec {
    /// The credentials, or that they are missing.
    pub(super) fn secrets(
        &self,
        get: impl Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Result<BTreeMap<String, String>, String> {
        credentials("NodePublishSecretRef", self.secret.as_ref(), get)
    }

    /// Under which name it lies: that of its PersistentVolume, or its own.
    pub(super) fn place<'a>(&'a self, name: &'a VolumeName) -> &'a VolumeName {
        self.persistent.as_ref().map_or(name, |persistent| &persistent.volume)
    }

    /// Whether the driver gives the volume to the pod's group itself.
    fn driver_owns(capabilities: &BTreeSet<NodeCapability>) -> bool {
        capabilities.contains(&NodeCapability::VolumeMountGroup)
    }

    /// How long it lives.
    pub(super) fn life(&self) -> Life {
        match self.persistent {
            Some(_) => Life::Persistent,
            None => Life::Ephemeral,
        }
    }

    /// What a cluster calls the volume.
    pub(super) fn unique_name(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    /// What the driver is told when a pod gets the volume: of the volume, and of the pod
    /// as far as it wants to know.
    fn told(&self) -> BTreeMap<String, String> {
        let mut told = self.context.clone();
        let (inline, other) = self.policy.pod_info;
        if if self.persistent.is_none() { inline } else { other } {
            told.extend(self.pod.info(self.life()));
        }
        if !self.policy.tokens_in_secrets {
            told.extend(self.tokens.entries());
        }
        told
    }

    /// Inline volumes are for one node.
    fn access(&self) -> Access {
        self.persistent.as_ref().map_or(Access::Once, |persistent| persistent.access)
    }

    /// The group that the agent has to give the volume to once it is mounted. For a
    /// driver that nobody describes: only with a named file system, and only if no other
    /// node uses it.
    pub(super) fn group_to_give(&self, capabilities: &BTreeSet<NodeCapability>) -> Option<u32> {
        let alone = matches!(self.access(), Access::Once | Access::OncePod);
        let may = !Self::driver_owns(capabilities) && !self.read_only;
        let fits = match self.policy.group {
            GroupPolicy::None => false,
            GroupPolicy::File => true,
            GroupPolicy::OnceWithFsType => !self.fs_type.is_empty() && alone,
        };
        self.grouping.fs_group.filter(|_| may && fits)
    }

    /// The SELinux label it is mounted with.
    pub(super) fn label(&self) -> Option<&str> {
        self.persistent.as_ref()?.label.as_deref()
    }

    /// The same volume with another label, or with none.
    pub(super) fn with_label(&self, label: &str) -> Self {
        let label = Some(label.to_owned()).filter(|label| !label.is_empty());
        let persistent = self.persistent.clone();
        let persistent = persistent.map(|persistent| Persistent { label, ..persistent });
        Self { persistent, ..self.clone() }
    }

    /// It is a device, not a file system.
    pub(super) fn is_block(&self) -> bool {
        self.persistent.as_ref().is_some_and(|persistent| persistent.block)
    }

    /// How large it is to be, if the node has a say in that.
    pub(super) fn wanted_bytes(&self) -> Option<i64> {
        let persistent = self.persistent.as_ref()?;
        let turn = persistent.sizes.as_ref().is_none_or(Sizes::is_turn);
        persistent.bytes.filter(|_| !self.read_only && turn)
    }

    fn capability(&self, capabilities: &BTreeSet<NodeCapability>) -> VolumeCapability {
        let group = self.grouping.fs_group.filter(|_| Self::driver_owns(capabilities));
        let options = self.persistent.as_ref().map(|persistent| &persistent.mount_options);
        let label = self.label().map(selinux::option);
        let mount = MountVolume {
            fs_type: self.fs_type.clone(),
            mount_flags: options.cloned().unwrap_or_default().into_iter().chain(label).collect(),
            volume_mount_group: group.map(|gid| gid.to_string()).unwrap_or_default(),
        };
        let mode = self.access().mode(capabilities) as i32;
        VolumeCapability {
            access_type: Some(match self.is_block() {
                true => AccessType::Block(BlockVolume {}),
                false => AccessType::Mount(mount),
            }),
            access_mode: Some(volume_capability::AccessMode { mode }),
        }
    }

    /// What the driver is asked, to mount the volume for the node.
    pub(super) fn stage_request(
        &self,
        staging: &str,
        secrets: BTreeMap<String, String>,
        capabilities: &BTreeSet<NodeCapability>,
    ) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: self.handle.clone(),
            publish_context: self.publish_context.clone().into_iter().collect(),
            staging_target_path: staging.to_owned(),
            volume_capability: Some(self.capability(capabilities)),
            secrets: secrets.into_iter().collect(),
            volume_context: self.context.clone().into_iter().collect(),
        }
    }

    /// What the driver is asked, to mount the volume for a pod.
    pub(super) fn publish_request(
        &self,
        staging: &str,
        target: &str,
        mut secrets: BTreeMap<String, String>,
        capabilities: &BTreeSet<NodeCapability>,
    ) -> NodePublishVolumeRequest {
        if self.policy.tokens_in_secrets {
            secrets.extend(self.tokens.entries());
        }
        NodePublishVolumeRequest {
            volume_id: self.handle.clone(),
            publish_context: self.publish_context.clone().into_iter().collect(),
            staging_target_path: staging.to_owned(),
            target_path: target.to_owned(),
            volume_capability: Some(self.capability(capabilities)),
            readonly: self.read_only,
            secrets: secrets.into_iter().collect(),
            volume_context: self.told().into_iter().collect(),
        }
    }
}

impl CsiSpec {
    /// What the driver is asked, to have the volume fill what it has become.
    pub(super) fn expand_request(
        &self,
        path: String,
        staging: String,
        required_bytes: i64,
        secrets: BTreeMap<String, String>,
        capabilities: &BTreeSet<NodeCapability>,
    ) -> NodeExpandVolumeRequest {
        NodeExpandVolumeRequest {
            volume_id: self.handle.clone(),
            volume_path: path,
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            staging_target_path: staging,
            volume_capability: Some(self.capability(capabilities)),
            secrets: secrets.into_iter().collect(),
        }
    }
}

/// What a cluster calls a volume of a driver.
pub(super) fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// A failed call, in the words that upstream's clients have for it.
pub(super) fn rpc_error(error: &CallError) -> String {
    let code = code_name(error);
    let text = match &error.kind {
        CallErrorKind::Answered { message, .. } => message.clone(),
        CallErrorKind::TimedOut(_) => "context deadline exceeded".to_owned(),
        other => other.to_string(),
    };
    format!("rpc error: code = {code} desc = {text}")
}
