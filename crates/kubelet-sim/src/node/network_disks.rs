//! Servers and disks of other machines, as the node sees them.
//!
//! What is on them is the host's: it stays, whoever mounts it. A disk is used only while
//! it is attached, and a session ends only with the last disk that came with it.

use std::path::{Path, PathBuf};

use kubelet::ports::{RemoteDisk, Share, VolumeError};
use mounts::MountsError;
use serde_json::{Value, json};

use crate::manifest::PodTemplate;
use crate::world::State;

/// Names of the volumes.
pub(crate) const NFS: &str = "nfs";
pub(crate) const ISCSI: [&str; 2] = ["iscsi-a", "iscsi-b"];
/// Where the servers' files lie.
const SERVERS: &str = "/srv/nfs";
/// Where the disks' files lie.
const DISKS: &str = "/srv/disks";
/// Where the agent has disks mounted for all pods.
const GLOBAL: &str = "/var/lib/kubelet/plugins/kubernetes.io/iscsi";

/// The export that pods mount.
pub(crate) fn nfs_source() -> Value {
    json!({"nfs": {"server": "files", "path": "/exports"}})
}

/// One of two disks of a target.
pub(crate) fn iscsi_source(lun: usize) -> Value {
    json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2003-01.sim:disks", "lun": lun}})
}

fn target(pod: &Path, kind: &str, volume: &str) -> PathBuf {
    pod.join("volumes").join(format!("kubernetes.io~{kind}")).join(volume)
}

fn device(disk: &RemoteDisk) -> PathBuf {
    Path::new(DISKS).join(disk.global_name().unwrap_or_default().replace('/', "_"))
}

impl State {
    pub(super) fn mount_share(&mut self, dir: &Path, share: &Share) -> Result<(), VolumeError> {
        let path = share.source.rsplit(':').next().unwrap_or_default().trim_start_matches('/');
        let data = Path::new(SERVERS).join(path);
        let now_ns = self.wall_ns();
        self.files.make_dir(&data, now_ns);
        if !self.volumes.mounts.contains_key(dir) {
            self.mount(dir)?;
            self.bind(dir, data);
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, disk: &RemoteDisk) -> PathBuf {
        let device = device(disk);
        let now_ns = self.wall_ns();
        self.files.make_dir(&device, now_ns);
        self.volumes.attached.insert(device.clone(), disk.session());
        device
    }

    pub(super) fn detach(&mut self, disk: &RemoteDisk, last: bool) {
        let device = device(disk);
        self.check_unused(&device);
        self.volumes.attached.remove(&device);
        if last {
            let session = disk.session();
            let others = self.volumes.attached.iter().filter(|(_, of)| **of == session);
            let others: Vec<PathBuf> = others.map(|(device, _)| device.clone()).collect();
            for other in others {
                self.check_unused(&other);
                self.volumes.attached.remove(&other);
            }
        }
    }

    fn check_unused(&mut self, device: &Path) {
        if let Some(point) = self.volumes.mounts_from(device).first() {
            let (device, point) = (device.display(), point.display());
            self.violate("", format!("agent lets go of {device}, mounted at {point}"));
        }
    }

    /// Fails for a disk of another machine that is not here.
    pub(super) fn check_attached(&self, device: &Path) -> Result<(), VolumeError> {
        match device.starts_with(DISKS) && !self.volumes.attached.contains_key(device) {
            true => {
                let why = "is not attached";
                Err(MountsError::BadPath { path: device.to_owned(), why }.into())
            }
            false => Ok(()),
        }
    }

    /// The volume that is not mounted though the agent asks for the pod's sandbox.
    pub(crate) fn missing_network_volume(
        &self,
        pod: &Path,
        of: &PodTemplate,
    ) -> Option<&'static str> {
        let wanted = [
            (of.volumes.nfs, "nfs", NFS),
            (of.volumes.iscsi[0], "iscsi", ISCSI[0]),
            (of.volumes.iscsi[1], "iscsi", ISCSI[1]),
        ];
        let missing =
            |kind: &str, name: &str| !self.volumes.mounts.contains_key(&target(pod, kind, name));
        let mut wanted = wanted.into_iter();
        wanted.find(|(on, kind, name)| *on && missing(kind, name)).map(|(.., name)| name)
    }

    /// Is this the mount of a disk that some pod has?
    pub(crate) fn is_disk_in_use(&self, point: &Path) -> bool {
        point.starts_with(GLOBAL) && !self.volumes.sharers(point).is_empty()
    }

    /// What is left of disks that nobody has.
    pub(crate) fn stale_disk(&self) -> Option<String> {
        let used = |device: &&PathBuf| !self.volumes.mounts_from(device).is_empty();
        if let Some(device) = self.volumes.attached.keys().find(|device| !used(device)) {
            return Some(format!("{} left attached", device.display()));
        }
        let ifaces = self.files.names_in(Path::new(GLOBAL));
        let dirs = ifaces.iter().flat_map(|iface| self.files.names_in(iface));
        let mut idle = dirs.filter(|dir| !self.volumes.mounts.contains_key(dir));
        let empty = ifaces.iter().find(|iface| self.files.names_in(iface).is_empty());
        let stale = idle.next().or_else(|| empty.cloned());
        stale.map(|dir| format!("{} left behind", dir.display()))
    }
}
