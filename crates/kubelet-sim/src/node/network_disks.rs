//! Servers and disks of other machines, as the node sees them.
//!
//! What is on them is the host's: it stays, whoever mounts it. A disk is used only while
//! it is attached, and a session ends only with the last disk that came with it.

use std::path::{Path, PathBuf};

use kubelet::ports::{RemoteDisk, Share, VolumeError};
use mounts::MountsError;
use serde_json::{Value, json};

use crate::manifest::PodTemplate;
use crate::volume_rules::PODS;
use crate::world::State;

/// Names of the volumes.
pub(crate) const NFS: &str = "nfs";
pub(crate) const ISCSI: [&str; 2] = ["iscsi-a", "iscsi-b"];
pub(crate) const FC: &str = "fc";
/// Where the servers' files lie.
const SERVERS: &str = "/srv/nfs";
/// Where the disks' files lie.
const DISKS: &str = "/srv/disks";
/// What the agent has of disks that pods share.
const GLOBAL: &str = "/var/lib/kubelet/plugins/kubernetes.io";
/// Where devices lie, beside the mounts of a kind.
const DEVICES: &str = "volumeDevices";

/// The export that pods mount.
pub(crate) fn nfs_source() -> Value {
    json!({"nfs": {"server": "files", "path": "/exports"}})
}

/// One of two disks of a target.
pub(crate) fn iscsi_source(lun: usize) -> Value {
    json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2003-01.sim:disks", "lun": lun}})
}

/// A disk behind two ports of a Fibre Channel network.
pub(crate) fn fc_source() -> Value {
    json!({"fc": {"targetWWNs": ["500a0982991b8dc5", "500a0982891b8dc5"], "lun": 2}})
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
            (of.volumes.fc, "fc", FC),
        ];
        let missing =
            |kind: &str, name: &str| !self.volumes.mounts.contains_key(&target(pod, kind, name));
        let mut wanted = wanted.into_iter();
        wanted.find(|(on, kind, name)| *on && missing(kind, name)).map(|(.., name)| name)
    }

    /// Other mounts of the file system at a point. A device that is bound elsewhere is none.
    pub(super) fn sharers(&self, point: &Path) -> Vec<PathBuf> {
        let mut all = self.volumes.sharers(point);
        all.retain(|other| self.files.is_dir(other));
        all
    }

    /// Is this the mount of a disk that some pod has?
    pub(crate) fn is_disk_in_use(&self, point: &Path) -> bool {
        let roots = ["iscsi", "fc", "local-volume/mounts"];
        let is_disk = roots.iter().any(|kind| point.starts_with(Path::new(GLOBAL).join(kind)));
        let is_device = point.iter().any(|part| part == DEVICES);
        is_disk && !is_device && !self.sharers(point).is_empty()
    }

    /// Has one of these pods noted that it has begun to have the disk of a directory?
    fn is_disk_noted(&self, dir: &Path, uids: &[&str]) -> bool {
        let kinds = uids.iter().flat_map(|uid| {
            let plugins = Path::new(PODS).join(uid).join("plugins");
            ["iscsi", "fc"].map(|kind| plugins.join(format!("kubernetes.io~{kind}")))
        });
        let mut volumes = kinds.flat_map(|kind| self.files.names_in(&kind));
        volumes.any(|volume| {
            let note = self.files.content(&volume.join("disk"));
            let name = note.and_then(|note| std::str::from_utf8(note).ok());
            name.is_some_and(|name| dir.ends_with(name))
        })
    }

    /// What is left of disks that nobody has. Pods that wait, such as for another of their
    /// name to go, may have begun with one, and come back to it (seed 768).
    pub(crate) fn stale_disk(&self, waiting: &[&str]) -> Option<String> {
        let used = |device: &&PathBuf| !self.volumes.mounts_from(device).is_empty();
        if let Some(device) = self.volumes.attached.keys().find(|device| !used(device)) {
            return Some(format!("{} left attached", device.display()));
        }
        let names_in = |root: &Path| {
            let mut names = self.files.names_in(root);
            names.retain(|name| !name.ends_with(DEVICES));
            names
        };
        let (iscsi, fc) = (Path::new(GLOBAL).join("iscsi"), Path::new(GLOBAL).join("fc"));
        let ifaces = [names_in(&iscsi), names_in(&iscsi.join(DEVICES))].concat();
        let disks = ifaces.iter().flat_map(|iface| self.files.names_in(iface));
        let mut dirs = disks.chain(names_in(&fc));
        let idle = dirs.find(|dir| {
            self.volumes.at_or_below(dir).is_empty() && !self.is_disk_noted(dir, waiting)
        });
        let empty = || ifaces.iter().find(|iface| self.files.names_in(iface).is_empty()).cloned();
        idle.or_else(empty).map(|dir| format!("{} left behind", dir.display()))
    }
}
