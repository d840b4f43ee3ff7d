//! Mounts of somebody else in volumes: an administrator's, or of a container that may
//! mount for the host. They come and go; the agent must leave them be, delete nothing
//! through them, and finish with the pod once they are gone.

use std::path::{Path, PathBuf};

use rand::RngExt;

use crate::sim::SimWorld;
use crate::world::State;

/// Where the agent keeps what it has of pods.
const PODS: &str = "/var/lib/kubelet/pods";
/// Kinds of volumes whose files lie where they are.
const KINDS: [&str; 3] =
    ["kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret"];
/// Mounted below a volume.
const POINT: &str = "theirs";
/// What is in it.
const FILE: &str = "precious";

impl State {
    /// Somebody mounts something below some volume of a pod, or unmounts it again.
    pub(crate) fn trouble_volumes(&mut self) {
        let here = self.volumes.foreign.iter().cloned().collect::<Vec<_>>();
        if !here.is_empty() && self.rng.random_bool(0.5) {
            let at = self.rng.random_range(0..here.len());
            return self.unmount_foreign(&here[at]);
        }
        let volumes = self.plain_volumes();
        if !volumes.is_empty() {
            let at = self.rng.random_range(0..volumes.len());
            self.mount_foreign(&volumes[at].clone());
        }
    }

    /// Directories of volumes that somebody could mount below.
    pub(crate) fn plain_volumes(&self) -> Vec<PathBuf> {
        let pods = self.files.names_in(Path::new(PODS));
        let kinds = pods.iter().flat_map(|pod| KINDS.map(|kind| pod.join("volumes").join(kind)));
        kinds.flat_map(|dir| self.files.names_in(&dir)).collect()
    }

    pub(crate) fn mount_foreign(&mut self, volume: &Path) -> PathBuf {
        let point = volume.join(POINT);
        if !self.volumes.foreign.insert(point.clone()) {
            return point;
        }
        self.note("", format!("somebody mounts {}", point.display()));
        let now_ns = self.wall_ns();
        self.files.make_dir(&point, now_ns);
        self.volumes.add(&point);
        self.write_file(&point.join(FILE), Vec::new());
        point
    }

    fn unmount_foreign(&mut self, point: &Path) {
        self.note("", format!("somebody unmounts {}", point.display()));
        if let Some(text) = self.lost_foreign_file() {
            self.violate("", text);
        }
        self.volumes.foreign.remove(point);
        self.volumes.mounts.remove(point);
        // What is on it goes with it; the directory below it stays.
        self.files.remove_tree(&point.join(FILE));
    }

    pub(crate) fn unmount_all_foreign(&mut self) {
        for point in self.volumes.foreign.clone() {
            self.unmount_foreign(&point);
        }
    }

    /// What somebody else mounted is not the agent's to touch.
    pub(crate) fn check_not_foreign(&mut self, path: &Path, how: &str) {
        if self.volumes.foreign.contains(path) {
            self.violate("", format!("agent {how} {}, which is not its own", path.display()));
        }
    }

    /// Something on a mount of somebody else that is there no more.
    pub(crate) fn lost_foreign_file(&self) -> Option<String> {
        let files = self.volumes.foreign.iter().map(|point| point.join(FILE));
        let lost = files.into_iter().find(|file| !self.files.has(file))?;
        Some(format!("{} was deleted", lost.display()))
    }
}

impl SimWorld {
    /// Somebody mounts something below every volume of pods that has its files here;
    /// returns how many those are.
    pub fn mount_foreign(&mut self) -> usize {
        let _guard = self.rt.enter();
        let mut state = self.world.lock();
        for volume in state.plain_volumes() {
            state.mount_foreign(&volume);
        }
        state.volumes.foreign.len()
    }

    /// Number of volumes of pods that have their files here.
    pub fn volume_dirs(&self) -> usize {
        self.world.lock().plain_volumes().len()
    }

    /// All of that is unmounted again.
    pub fn unmount_foreign(&mut self) {
        let _guard = self.rt.enter();
        self.world.lock().unmount_all_foreign();
    }
}
