//! One checkpoint: what is in memory, and the file that outlives the agent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_model::{PodResources, PodUid};

use super::format::{self, Pods};
use crate::ports::Fs;

/// A node of 1,000 pods of 20 containers needs some 5 MB.
const BYTES_MAX: usize = 64 << 20;

/// A checkpoint and its file.
pub(super) struct Store {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    pods: Pods,
    /// The file lacks something.
    dirty: bool,
}

impl Store {
    /// Reads the file, if there is one. One that cannot be used is told of and
    /// left behind: what pods were given is then taken from their manifests, and
    /// what is in force is set once more. Upstream refuses to start; here a power
    /// cut may tear the file, and pods matter more.
    pub(super) fn load(fs: Arc<dyn Fs>, path: PathBuf) -> Self {
        let pods = match read(&*fs, &path) {
            Ok(pods) => pods,
            Err(error) => {
                tracing::error!(
                    path = %path.display(),
                    error,
                    "what pods were given is not known any more; it is taken from their manifests"
                );
                Pods::new()
            }
        };
        Self { fs, path, pods, dirty: false }
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<&PodResources> {
        self.pods.get(uid)
    }

    /// Changes what is known, without writing it yet.
    pub(super) fn set(&mut self, uid: &PodUid, resources: PodResources) {
        self.dirty |= self.pods.get(uid) != Some(&resources);
        self.pods.insert(uid.clone(), resources);
    }

    pub(super) fn change(&mut self, uid: &PodUid, change: impl FnOnce(&mut PodResources)) {
        let mut resources = self.pods.get(uid).cloned().unwrap_or_default();
        change(&mut resources);
        self.set(uid, resources);
    }

    /// Forgets a pod. The file follows with the next change: that it knows of a
    /// pod that is gone does no harm.
    pub(super) fn remove(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&PodUid) -> bool) {
        self.pods.retain(|uid, _| keep(uid));
    }

    /// Writes what is known, unless the file has it.
    pub(super) fn save(&mut self) {
        if !self.dirty {
            return;
        }
        let written = self.fs.write(&self.path, format::encode(&self.pods).as_bytes());
        self.dirty = written.is_err();
        if let Err(error) = written {
            tracing::error!(
                path = %self.path.display(),
                %error,
                "cannot keep what pods are given; a restart of the agent may resize them twice"
            );
        }
    }
}

fn read(fs: &dyn Fs, path: &Path) -> Result<Pods, String> {
    match fs.read(path, BYTES_MAX) {
        Ok(bytes) => format::decode(&bytes).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Pods::new()),
        Err(error) => Err(error.to_string()),
    }
}
