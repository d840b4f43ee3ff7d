//! Volumes that lie on other machines: what a pod, or a PersistentVolume, asks for. Pure.
//!
//! Shares of servers are mounted for each pod; disks once for the node, and then bound.
//! Upstream: pkg/volume/{nfs,iscsi,fc}.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    FCVolumeSource, ISCSIPersistentVolumeSource, ISCSIVolumeSource, NFSVolumeSource, Volume,
};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};

use super::csi::Grouping;
use super::desired::Wanted;
use super::layout::{PluginName, VolumeName};
use super::selinux;
use crate::ports::{Chap, FcDisk, IscsiDisk, RemoteDisk, Share};

/// What a server shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSpec {
    /// Under which name it lies: that of its PersistentVolume, or its own.
    pub volume: VolumeName,
    /// What is mounted, and how.
    pub share: Share,
    /// The pod only reads it.
    pub read_only: bool,
    /// It outlives the pod.
    pub persistent: bool,
    /// One pod has it at a time.
    pub once_pod: bool,
}

/// A disk of another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// Under which name it lies: that of its PersistentVolume, or its own.
    pub volume: VolumeName,
    /// Which disk.
    pub disk: RemoteDisk,
    /// The name of its directory, relative to that of its kind.
    pub global: String,
    /// What a cluster calls it.
    pub unique_name: String,
    /// Where its credentials are, if it needs any.
    pub secret: Option<ObjectKey>,
    /// The file system it has, or gets if it is blank; empty leaves it to the agent.
    pub fs_type: String,
    /// How it is mounted.
    pub mount_options: Vec<String>,
    /// The pod only reads it.
    pub read_only: bool,
    /// It is used as a device.
    pub block: bool,
    /// Whom its files belong to.
    pub grouping: Grouping,
    /// It outlives the pod.
    pub persistent: bool,
    /// One pod has it at a time.
    pub once_pod: bool,
    /// The SELinux label it is mounted with.
    pub context: Option<String>,
}

/// How a volume is used, whatever it is.
#[derive(Debug, Clone)]
pub(super) struct Usage {
    /// Under which name it lies.
    pub volume: VolumeName,
    /// The pod only reads it. As upstream: what a PersistentVolume's own source says of it
    /// counts for nothing, but what the pod says of its claim; a volume of the pod's own spec
    /// says so itself.
    pub read_only: bool,
    /// How it is mounted.
    pub mount_options: Vec<String>,
    /// As a device.
    pub block: bool,
    /// Whom its files belong to.
    pub grouping: Grouping,
    /// It outlives the pod.
    pub persistent: bool,
    /// One pod has it at a time.
    pub once_pod: bool,
    /// The SELinux label it is mounted with, where it can be.
    pub context: Option<String>,
}

impl ShareSpec {
    /// That of an NFS export.
    pub(super) fn nfs(source: &NFSVolumeSource, usage: Usage) -> Self {
        let own = usage.read_only.then(|| "ro".to_owned());
        // As upstream: sorted, and each once.
        let options: BTreeSet<String> = usage.mount_options.iter().cloned().chain(own).collect();
        let options = options.into_iter().filter(|option| !option.is_empty()).collect();
        let share = Share::nfs(&source.server, &source.path, options);
        let Usage { volume, read_only, persistent, once_pod, .. } = usage;
        Self { volume, share, read_only, persistent, once_pod }
    }
}

impl DiskSpec {
    /// That of a Fibre Channel disk.
    pub(super) fn fc(source: &FCVolumeSource, usage: Usage) -> Result<Self, String> {
        let wwns = source.target_wwns.clone().unwrap_or_default();
        let wwids = source.wwids.as_deref().unwrap_or_default();
        let (disk, name) = match source.lun.and_then(|lun| u32::try_from(lun).ok()) {
            Some(lun) if !wwns.is_empty() => {
                let name = format!("[{}]:{lun}", wwns.join(" "));
                (FcDisk::of_targets(wwns, lun), name)
            }
            _ if !wwids.is_empty() => (FcDisk::of_names(wwids), format!("[{}]", wwids.join(" "))),
            _ => return Err("fc: no fc disk information found".to_owned()),
        };
        let disk = (RemoteDisk::Fc(disk), format!("kubernetes.io/fc/{name}"));
        Self::of(disk, None, source.fs_type.clone(), usage)
    }

    /// That of an iSCSI disk of a pod's own spec, whose Secret is the pod's neighbour.
    pub(super) fn iscsi(
        source: &ISCSIVolumeSource,
        namespace: &str,
        usage: Usage,
    ) -> Result<Self, String> {
        let secret = source.secret_ref.clone().unwrap_or_default();
        let source = source.clone();
        let source = ISCSIPersistentVolumeSource {
            chap_auth_discovery: source.chap_auth_discovery,
            chap_auth_session: source.chap_auth_session,
            fs_type: source.fs_type,
            initiator_name: source.initiator_name,
            iqn: source.iqn,
            iscsi_interface: source.iscsi_interface,
            lun: source.lun,
            portals: source.portals,
            read_only: source.read_only,
            secret_ref: None,
            target_portal: source.target_portal,
        };
        let secret = ObjectKey::new(ObjectKind::Secret, namespace, &secret.name);
        Self::with_chap(&source, secret, usage)
    }

    /// That of an iSCSI disk that is a PersistentVolume; a Secret without a namespace
    /// lies in the pod's.
    pub(super) fn iscsi_volume(
        source: &ISCSIPersistentVolumeSource,
        pod_namespace: &str,
        usage: Usage,
    ) -> Result<Self, String> {
        Self::with_chap(source, secret_of(source, pod_namespace), usage)
    }

    fn with_chap(
        source: &ISCSIPersistentVolumeSource,
        secret: ObjectKey,
        usage: Usage,
    ) -> Result<Self, String> {
        let lun = u32::try_from(source.lun).map_err(|_| "iscsi: the lun is negative".to_owned())?;
        let more = source.portals.iter().flatten().cloned();
        let chap = Chap {
            discovery: source.chap_auth_discovery.unwrap_or(false),
            session: source.chap_auth_session.unwrap_or(false),
            secret: BTreeMap::new(),
        };
        let secret = (chap.discovery || chap.session).then_some(secret);
        let disk = IscsiDisk::new(
            usage.volume.as_str(),
            std::iter::once(source.target_portal.clone()).chain(more),
            (&source.iqn, lun),
            source.iscsi_interface.as_deref(),
            source.initiator_name.as_deref(),
        );
        let ISCSIPersistentVolumeSource { target_portal, iqn, .. } = source;
        let name = format!("kubernetes.io/iscsi/{target_portal}:{iqn}:{lun}");
        let disk = (RemoteDisk::Iscsi(IscsiDisk { chap, ..disk }), name);
        Self::of(disk, secret, source.fs_type.clone(), usage)
    }

    fn of(
        (disk, unique_name): (RemoteDisk, String),
        secret: Option<ObjectKey>,
        fs_type: Option<String>,
        usage: Usage,
    ) -> Result<Self, String> {
        let global = disk.global_name();
        let global = global.ok_or_else(|| format!("{disk} is no name for a directory"))?;
        let Usage { volume, read_only, mount_options, block, grouping, .. } = usage;
        let Usage { persistent, once_pod, context, .. } = usage;
        Ok(Self {
            read_only,
            fs_type: fs_type.unwrap_or_default(),
            volume,
            disk,
            global,
            unique_name,
            secret,
            mount_options,
            block,
            grouping,
            persistent,
            once_pod,
            context,
        })
    }

    /// Everything that the disk's mount is told.
    pub(super) fn options(&self) -> Vec<String> {
        let mut options = self.mount_options.clone();
        // As upstream: other nodes may read it, too, and none of them may write.
        if self.read_only && !options.iter().any(|option| option == "ro") {
            options.push("ro".to_owned());
        }
        options.extend(self.context.as_deref().map(selinux::option));
        options
    }

    /// Of which kind it is.
    pub(super) fn plugin(&self) -> PluginName {
        match &self.disk {
            RemoteDisk::Iscsi(_) => PluginName::iscsi(),
            RemoteDisk::Fc(_) => PluginName::fc(),
        }
    }

    /// The kind, as manifests name it.
    pub(super) fn kind(&self) -> &'static str {
        match &self.disk {
            RemoteDisk::Iscsi(_) => "iscsi",
            RemoteDisk::Fc(_) => "fc",
        }
    }

    /// The disk, with the credentials for it.
    pub(super) fn with_secret(
        &self,
        get: impl Fn(&ObjectKey) -> Option<Arc<ConfigObject>>,
    ) -> Result<RemoteDisk, String> {
        let (Some(key), RemoteDisk::Iscsi(disk)) = (&self.secret, &self.disk) else {
            return Ok(self.disk.clone());
        };
        let ObjectKey { namespace, name, .. } = key;
        let found = get(key).ok_or_else(|| {
            format!("couldn't get secret {namespace}/{name} error: secret \"{name}\" not found")
        })?;
        let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
        let secret = found.data.iter().map(|(key, value)| (key.clone(), text(value))).collect();
        let chap = Chap { secret, ..disk.chap.clone() };
        Ok(RemoteDisk::Iscsi(IscsiDisk { chap, ..disk.clone() }))
    }
}

/// Where the credentials of a PersistentVolume are.
pub(super) fn secret_of(source: &ISCSIPersistentVolumeSource, pod_namespace: &str) -> ObjectKey {
    let secret = source.secret_ref.as_ref();
    let namespace = secret.and_then(|secret| secret.namespace.as_deref());
    let namespace = namespace.filter(|name| !name.is_empty()).unwrap_or(pod_namespace);
    let name = secret.and_then(|secret| secret.name.as_deref()).unwrap_or_default();
    ObjectKey::new(ObjectKind::Secret, namespace, name)
}

/// What a volume of a pod's own spec asks for; `None` if it is of another kind.
pub(super) fn inline(volume: &Volume, name: &VolumeName, pod: &DesiredPod) -> Option<Wanted> {
    let own = [
        volume.nfs.as_ref().and_then(|source| source.read_only),
        volume.iscsi.as_ref().and_then(|source| source.read_only),
        volume.fc.as_ref().and_then(|source| source.read_only),
    ];
    let usage = Usage {
        volume: name.clone(),
        read_only: own.into_iter().flatten().any(|read_only| read_only),
        mount_options: Vec::new(),
        block: false,
        grouping: Grouping::of(pod),
        persistent: false,
        once_pod: false,
        context: None,
    };
    let disk = match (&volume.nfs, &volume.iscsi, &volume.fc) {
        (Some(nfs), _, _) => return Some(Wanted::Share(Arc::new(ShareSpec::nfs(nfs, usage)))),
        (_, Some(iscsi), _) => DiskSpec::iscsi(iscsi, pod.namespace(), usage),
        (_, _, Some(fc)) => DiskSpec::fc(fc, usage),
        _ => return None,
    };
    Some(disk.map_or_else(Wanted::Refused, |disk| Wanted::Disk(Arc::new(disk))))
}
