//! Volumes of a CSI driver: one for each pod that wants it, and one that pods share.
//!
//! Owns the manifests of the shared one and the driver's socket, which come and
//! go. Once all is quiet, what the driver mounted is there for pods that have it,
//! and for nobody else. What pods keep in the shared one is the host's.

use std::path::{Path, PathBuf};

use rand::RngExt;
use serde_json::json;

use crate::chaos::Publishing;
use crate::manifest::{NAMESPACE, PodTemplate};
use crate::world::State;

/// The driver's name.
pub(crate) const DRIVER: &str = "sim.csi";
/// The name of the shared volume and of its claim.
pub(crate) const SHARED: &str = "shared";
/// The name of the shared block volume and of its claim.
pub(crate) const BLOCK: &str = "block";
/// The name of a volume of one pod.
pub(crate) const OWN: &str = "own";
/// Where the driver registers.
const SOCKET: &str = "/var/lib/kubelet/plugins_registry/sim.csi-reg.sock";
/// Where the agent has what pods share mounted.
const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/sim.csi";
/// What the agent has of block volumes.
const DEVICES: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices";
/// Where the driver keeps data.
const DATA: &str = "/srv/csi";
/// The manifests.
const FILE: &str = "storage.json";

/// Where the driver keeps the data of a volume.
pub(crate) fn data_dir(handle: &str) -> PathBuf {
    Path::new(DATA).join(handle)
}

/// Where a volume of a pod is mounted.
fn target(pod: &Path, volume: &str) -> PathBuf {
    pod.join("volumes/kubernetes.io~csi").join(volume).join("mount")
}

impl State {
    /// The driver comes: its socket is there, made anew.
    pub(crate) fn bring_driver(&mut self) {
        self.bind_socket(Path::new(SOCKET));
        self.note("", "driver registers".to_owned());
    }

    /// The driver goes; what it has mounted stays.
    pub(crate) fn take_driver(&mut self) {
        self.delete_file(Path::new(SOCKET));
        self.note("", "driver goes".to_owned());
    }

    /// Writes the shared volume and its claim.
    pub(crate) fn publish_storage(&mut self, publishing: &Publishing) {
        let modes = json!(["ReadWriteOnce"]);
        let bytes = self.csi.wanted.unwrap_or(1) + self.rng.random_range(0..2);
        self.csi.wanted = Some(bytes);
        let size = json!({"storage": bytes.to_string()});
        let pair = |name: &str, mode: &str| {
            let csi = json!({"driver": DRIVER, "volumeHandle": name});
            [
                json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                    "spec": {"accessModes": modes, "volumeMode": mode, "capacity": size,
                        "csi": csi}}),
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": name, "namespace": NAMESPACE},
                    "spec": {"accessModes": modes, "volumeMode": mode, "volumeName": name}}),
            ]
        };
        let items = [pair(SHARED, "Filesystem"), pair(BLOCK, "Block")].concat();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.write_file(&publishing.dir.join(FILE), list.to_string().into_bytes());
        self.note("", format!("{FILE} written"));
    }

    /// One random change.
    pub(crate) fn churn_storage(&mut self, publishing: &Publishing) {
        match self.rng.random_range(0..6) {
            0 => {
                self.delete_file(&publishing.dir.join(FILE));
                self.csi.wanted = None;
                self.note("", format!("{FILE} deleted"));
            }
            1..3 => self.publish_storage(publishing),
            3 => self.take_driver(),
            _ => self.bring_driver(),
        }
    }

    /// The volumes that are not mounted though the agent asks for the pod's sandbox.
    pub(crate) fn missing_csi_volume(&self, pod: &Path, of: &PodTemplate) -> Option<&'static str> {
        let wanted = [(of.volumes.own, OWN), (of.volumes.shared, SHARED)];
        let missing = |name: &str| !self.volumes.mounts.contains_key(&target(pod, name));
        let found = wanted.into_iter().find(|(wants, name)| *wants && missing(name));
        let uid = pod.file_name().unwrap_or_default();
        let device = Path::new(DEVICES).join(BLOCK).join("dev").join(uid);
        let lacks = of.volumes.block && !self.volumes.mounts.contains_key(&device);
        found.map(|(_, name)| name).or(lacks.then_some(BLOCK))
    }

    /// Was a volume noted before the driver is to publish it there?
    pub(crate) fn is_noted(&self, target: &Path) -> bool {
        let dir = target.parent().unwrap_or(target);
        let Ok(place) = target.strip_prefix(Path::new(DEVICES).join("publish")) else {
            return self.files.has(&dir.join("vol_data.json"));
        };
        let (volume, uid) = (place.iter().next(), place.iter().nth(1));
        let (Some(volume), Some(uid)) = (volume, uid) else { return false };
        let link = Path::new("/var/lib/kubelet/pods").join(uid);
        let link = link.join("volumeDevices/kubernetes.io~csi").join(volume);
        let note = Path::new(DEVICES).join(volume).join("data/vol_data.json");
        self.files.has(&link) && self.files.has(&note)
    }

    /// Is this the mount of a volume that some pod has?
    pub(crate) fn is_shared_mount(&self, point: &Path) -> bool {
        let staged = self.csi.staged.iter().find(|(_, path)| *path == point);
        staged.is_some_and(|(handle, _)| self.csi.published.values().any(|of| of == handle))
    }

    /// A volume that a pod has, and that is smaller than it should be by now.
    pub(crate) fn small_volume(&self) -> Option<String> {
        let wanted = self.csi.wanted?;
        let mut used =
            self.csi.published.values().filter(|handle| *handle == SHARED || *handle == BLOCK);
        let small =
            used.find(|handle| self.csi.sizes.get(*handle).is_none_or(|is| *is < wanted))?;
        Some(format!("volume {small} has not grown to {wanted}"))
    }

    /// What is left of shared volumes that nobody has.
    pub(crate) fn stale_staging(&self) -> Option<String> {
        let all = self.files.names_in(Path::new(STAGING));
        let stale = all.into_iter().find(|dir| !self.is_shared_mount(&dir.join("globalmount")));
        let used = self.csi.published.values().any(|handle| handle == BLOCK);
        let devices =
            ["", "staging", "publish"].map(|dir| Path::new(DEVICES).join(dir).join(BLOCK));
        let device = devices.into_iter().find(|dir| !used && self.files.has(dir));
        stale.or(device).map(|dir| format!("{} left behind", dir.display()))
    }
}
