//! The volumes of a pod's manifest.
//!
//! Plain data. Every container of the pod mounts all of them.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::config_map::CONFIG;
use crate::manifest::PodTemplate;
use crate::node::{ISCSI, NFS, iscsi_source, nfs_source};
use crate::storage::{BLOCK, DRIVER, OWN, SHARED};

/// A directory of the host that the first pod makes.
pub(crate) const HOST_MADE: &str = "/srv/data";
/// A directory of the host that was there before.
pub(crate) const HOST_GIVEN: &str = "/srv/given";

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
}

impl VolumeSet {
    pub(crate) fn random(rng: &mut StdRng) -> Self {
        let mut yes = || rng.random_bool(0.5);
        let (disk, memory, host, given, part) = (yes(), yes(), yes(), yes(), yes());
        Self { disk, memory, host, given, part, ..Self::default() }
    }

    pub(crate) fn sources(self) -> Vec<(&'static str, Value)> {
        let host = |path: &str, kind: &str| json!({"hostPath": {"path": path, "type": kind}});
        let all = [
            (self.config, CONFIG, json!({"configMap": {"name": CONFIG}})),
            (self.own, OWN, json!({"csi": {"driver": DRIVER}})),
            (self.shared, SHARED, json!({"persistentVolumeClaim": {"claimName": SHARED}})),
            (self.block, BLOCK, json!({"persistentVolumeClaim": {"claimName": BLOCK}})),
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
        sources.retain(|(name, _)| *name != BLOCK);
        let whole = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
        let mut mounts: Vec<Value> = sources.iter().map(|(name, _)| whole(name)).collect();
        if let Some((name, _)) = sources.last().filter(|_| self.part) {
            mounts.push(json!({"name": name, "mountPath": "/part", "subPath": "a/b"}));
        }
        mounts
    }

    pub(crate) fn devices(self) -> Vec<Value> {
        let device = json!({"name": BLOCK, "devicePath": "/dev/block"});
        if self.block { vec![device] } else { Vec::new() }
    }
}

impl PodTemplate {
    /// Its empty directories, and whether each is in memory.
    pub fn empty_dirs(&self) -> Vec<(&'static str, bool)> {
        let all = [(self.volumes.disk, ("disk", false)), (self.volumes.memory, ("memory", true))];
        all.into_iter().filter(|(on, _)| *on).map(|(_, dir)| dir).collect()
    }
}
