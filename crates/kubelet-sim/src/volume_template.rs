//! The volumes of a pod's manifest.
//!
//! Plain data. Every container of the pod mounts all of them.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::claimed_disks::{LOCAL, LOCAL_RAW, REMOTE_RAW};
use crate::config_map::{CONFIG, SECRET};
use crate::manifest::PodTemplate;
use crate::node::{FC, ISCSI, NFS, fc_source, iscsi_source, nfs_source};
use crate::storage::{BLOCK, DRIVER, OWN, SHARED};

/// A directory of the host that the first pod makes.
pub(crate) const HOST_MADE: &str = "/srv/data";
/// A directory of the host that was there before.
pub(crate) const HOST_GIVEN: &str = "/srv/given";

/// Those that containers have as devices.
const RAW: [&str; 3] = [BLOCK, LOCAL_RAW, REMOTE_RAW];

/// The volumes of a pod, each mounted by every container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolumeSet {
    /// An empty directory on the disk, `disk`.
    pub disk: bool,
    /// One in memory, `memory`.
    pub memory: bool,
    /// A directory of the host that the pod may make, `host`.
    pub host: bool,
    /// A directory of the host that must be there, `given`.
    pub given: bool,
    /// A part of the last of them is mounted besides.
    pub part: bool,
    /// The files of a ConfigMap, `config`.
    pub config: bool,
    /// A volume of a CSI driver, for this pod alone, `own`.
    pub own: bool,
    /// A volume of a CSI driver that pods share, `shared`.
    pub shared: bool,
    /// A block device of a CSI driver that pods share, `block`.
    pub block: bool,
    /// What a server exports, `nfs`.
    pub nfs: bool,
    /// Disks of one iSCSI target that pods share, `iscsi-a` and `iscsi-b`.
    pub iscsi: [bool; 2],
    /// A disk of a Fibre Channel network that pods share, `fc`.
    pub fc: bool,
    /// The first of the iSCSI disks as a device, `remote-raw`.
    pub remote_raw: bool,
    /// A disk of the node that pods share, `local`.
    pub local: bool,
    /// Another as a device, `local-raw`.
    pub local_raw: bool,
    /// The files of a Secret, `secret`.
    pub secret: bool,
    /// An empty directory on the disk that must not grow without end, `limited`.
    pub limited: bool,
}

impl VolumeSet {
    /// Every volume that nobody has to measure.
    pub fn all() -> Self {
        Self {
            disk: true,
            memory: true,
            host: true,
            given: true,
            part: true,
            config: true,
            own: true,
            shared: true,
            block: true,
            nfs: true,
            iscsi: [true; 2],
            fc: true,
            remote_raw: true,
            local: true,
            local_raw: true,
            secret: true,
            limited: false,
        }
    }

    pub(crate) fn random(rng: &mut StdRng) -> Self {
        let mut yes = || rng.random_bool(0.5);
        let (disk, memory, host, given, part) = (yes(), yes(), yes(), yes(), yes());
        Self { disk, memory, host, given, part, ..Self::default() }
    }

    /// Some of the disks and devices.
    pub(crate) fn add_disks(&mut self, rng: &mut StdRng) {
        let mut yes = || rng.random_bool(0.4);
        (self.fc, self.remote_raw) = (yes(), yes());
        (self.local, self.local_raw) = (yes(), yes());
        // The same disk in both ways, now and then.
        self.iscsi[0] |= yes();
    }

    pub(crate) fn sources(self) -> Vec<(&'static str, Value)> {
        let host = |path: &str, kind: &str| json!({"hostPath": {"path": path, "type": kind}});
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let all = [
            (self.secret, SECRET, json!({"secret": {"secretName": SECRET}})),
            (self.fc, FC, fc_source()),
            (self.local, LOCAL, claim(LOCAL)),
            (self.local_raw, LOCAL_RAW, claim(LOCAL_RAW)),
            (self.remote_raw, REMOTE_RAW, claim(REMOTE_RAW)),
            (self.limited, "limited", json!({"emptyDir": {"sizeLimit": "1Gi"}})),
            (self.config, CONFIG, json!({"configMap": {"name": CONFIG}})),
            (self.own, OWN, json!({"csi": {"driver": DRIVER}})),
            (self.shared, SHARED, claim(SHARED)),
            (self.block, BLOCK, claim(BLOCK)),
            (self.nfs, NFS, nfs_source()),
            (self.iscsi[0], ISCSI[0], iscsi_source(0)),
            (self.iscsi[1], ISCSI[1], iscsi_source(1)),
            (self.disk, "disk", json!({"emptyDir": {}})),
            (self.given, "given", host(HOST_GIVEN, "Directory")),
            (self.memory, "memory", json!({"emptyDir": {"medium": "Memory"}})),
            (self.host, "host", host(HOST_MADE, "DirectoryOrCreate")),
        ];
        all.into_iter().filter(|(on, ..)| *on).map(|(_, name, source)| (name, source)).collect()
    }

    pub(crate) fn mounts(self) -> Vec<Value> {
        let mut sources = self.sources();
        sources.retain(|(name, _)| !RAW.contains(name));
        let whole = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
        let mut mounts: Vec<Value> = sources.iter().map(|(name, _)| whole(name)).collect();
        if let Some((name, _)) = sources.last().filter(|_| self.part) {
            mounts.push(json!({"name": name, "mountPath": "/part", "subPath": "a/b"}));
        }
        mounts
    }

    pub(crate) fn devices(self) -> Vec<Value> {
        let sources = self.sources().into_iter().filter(|(name, _)| RAW.contains(name));
        let device = |name| json!({"name": name, "devicePath": format!("/dev/{name}")});
        sources.map(|(name, _)| device(name)).collect()
    }
}

impl PodTemplate {
    /// Its empty directories, and whether each is in memory.
    pub fn empty_dirs(&self) -> Vec<(&'static str, bool)> {
        let VolumeSet { disk, memory, limited, .. } = self.volumes;
        let all =
            [(disk, ("disk", false)), (memory, ("memory", true)), (limited, ("limited", false))];
        all.into_iter().filter(|(on, _)| *on).map(|(_, dir)| dir).collect()
    }
}
