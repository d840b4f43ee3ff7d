//! Disks that pods name by claims: two of the node, and one of another machine that is
//! used as a device.
//!
//! Owns their manifests, which come and go. What is on the disks is the host's, whoever
//! mounts them. A device of a pod is there before its sandbox and stays while it runs.

use std::path::{Path, PathBuf};

use rand::RngExt;
use serde_json::{Value, json};

use crate::chaos::Publishing;
use crate::manifest::{NAMESPACE, PodTemplate};
use crate::node::iscsi_source;
use crate::world::State;

/// A disk of the node with a file system: the name of its volume and of its claim.
pub(crate) const LOCAL: &str = "local";
/// Another, which is used as a device.
pub(crate) const LOCAL_RAW: &str = "local-raw";
/// A disk of another machine, which is used as a device. Pods may have its file system, too.
pub(crate) const REMOTE_RAW: &str = "remote-raw";
/// Where the node's own disks are.
const NODE_DISKS: &str = "/srv/local";
/// The manifests.
const FILE: &str = "disks.json";
/// What the agent has of volumes that pods share.
const PLUGINS: &str = "/var/lib/kubelet/plugins";
/// Part of the path of every device that is there for a pod.
const DEVICES: &str = "volumeDevices";

/// The device of one of the node's own disks.
fn node_disk(name: &str) -> PathBuf {
    Path::new(NODE_DISKS).join(name)
}

/// Is this one of the node's own disks, or what is there of one for a pod? All else is a
/// directory.
pub(crate) fn is_block_device(path: &Path) -> bool {
    path.parent() == Some(Path::new(NODE_DISKS)) || is_of_devices(path)
}

fn is_of_devices(path: &Path) -> bool {
    path.starts_with(PLUGINS) && path.iter().any(|part| part == DEVICES)
}

/// Is this a device of the pod of a uid, wherever the agent has it?
pub(crate) fn is_device_of(uid: &str, point: &Path) -> bool {
    let named = point.file_name().is_some_and(|name| name == uid);
    named && is_of_devices(point)
}

impl State {
    /// The node has its own disks from the start.
    pub(crate) fn furnish_disks(&mut self) {
        let now_ns = self.wall_ns();
        for name in [LOCAL, LOCAL_RAW] {
            // What is written to a disk lies below its device.
            self.files.make_dir(&node_disk(name), now_ns);
        }
    }

    /// Writes volumes and claims.
    pub(crate) fn publish_disks(&mut self, publishing: &Publishing) {
        let local = |name: &str| json!({"local": {"path": node_disk(name)}});
        let all = [
            (LOCAL, "Filesystem", local(LOCAL)),
            (LOCAL_RAW, "Block", local(LOCAL_RAW)),
            (REMOTE_RAW, "Block", iscsi_source(0)),
        ];
        let items: Vec<Value> = all.into_iter().flat_map(pair).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.write_file(&publishing.dir.join(FILE), list.to_string().into_bytes());
        self.note("", format!("{FILE} written"));
    }

    /// One random change.
    pub(crate) fn churn_disks(&mut self, publishing: &Publishing) {
        if self.rng.random_bool(0.7) {
            return self.publish_disks(publishing);
        }
        self.delete_file(&publishing.dir.join(FILE));
        self.note("", format!("{FILE} deleted"));
    }

    /// The volume that is not there though the agent asks for the pod's sandbox.
    pub(crate) fn missing_claimed_disk(
        &self,
        pod: &Path,
        of: &PodTemplate,
    ) -> Option<&'static str> {
        let target = pod.join("volumes/kubernetes.io~local-volume").join(LOCAL);
        if of.volumes.local && !self.volumes.mounts.contains_key(&target) {
            return Some(LOCAL);
        }
        let raw = [
            (of.volumes.local_raw, "kubernetes.io~local-volume", LOCAL_RAW),
            (of.volumes.remote_raw, "kubernetes.io~iscsi", REMOTE_RAW),
        ];
        let lacks = |kind: &str, name: &str| {
            let link = pod.join(DEVICES).join(kind).join(name);
            let uid = pod.file_name().and_then(|uid| uid.to_str()).unwrap_or_default();
            // The node's own kind lies beside those of others.
            let roots = [kind.to_owned(), kind.replace('~', "/")];
            let roots = roots.map(|kind| Path::new(PLUGINS).join(kind));
            let is_bound = |point: &PathBuf| {
                is_device_of(uid, point) && roots.iter().any(|root| point.starts_with(root))
            };
            !self.files.has(&link) || !self.volumes.mounts.keys().any(is_bound)
        };
        let mut raw = raw.into_iter();
        raw.find(|(on, kind, name)| *on && lacks(kind, name)).map(|(.., name)| name)
    }

    /// What is left of disks of the node that nobody has.
    pub(crate) fn stale_node_disk(&self) -> Option<String> {
        let roots =
            ["kubernetes.io/local-volume/mounts", "kubernetes.io~local-volume/volumeDevices"];
        let roots = roots.map(|root| Path::new(PLUGINS).join(root));
        let mut dirs = roots.iter().flat_map(|root| self.files.names_in(root));
        let idle = dirs.find(|dir| self.volumes.at_or_below(dir).is_empty())?;
        Some(format!("{} left behind", idle.display()))
    }
}

/// A volume and its claim, both of the same name.
fn pair((name, mode, source): (&str, &str, Value)) -> [Value; 2] {
    let modes = json!(["ReadWriteOnce"]);
    let mut spec =
        json!({"accessModes": modes, "volumeMode": mode, "capacity": {"storage": "1Gi"}});
    for (kind, of) in source.as_object().into_iter().flatten() {
        spec[kind] = of.clone();
    }
    [
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": spec}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"accessModes": modes, "volumeMode": mode, "volumeName": name}}),
    ]
}
