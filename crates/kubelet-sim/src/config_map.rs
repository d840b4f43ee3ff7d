//! The ConfigMap that pods mount: it comes, changes, breaks and goes.
//!
//! Owns what it says now. Once all is quiet, the files of every pod that runs
//! say the same.

use std::path::{Path, PathBuf};

use rand::RngExt;
use serde_json::json;

use crate::chaos::Publishing;
use crate::manifest::NAMESPACE;
use crate::world::State;

/// Its name, and that of the volume.
pub(crate) const CONFIG: &str = "config";
/// Its manifest.
const FILE: &str = "config.json";

impl State {
    /// Writes the ConfigMap.
    pub(crate) fn publish_config(&mut self, publishing: &Publishing, version: u64) {
        if self.api.is_some() {
            return self.put_api_config(version);
        }
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG, "namespace": NAMESPACE},
            "data": {"version": version.to_string()},
        });
        self.write_file(&publishing.dir.join(FILE), manifest.to_string().into_bytes());
        self.config = Some(version);
        self.note("", format!("{FILE} = version {version}"));
    }

    /// Removes the ConfigMap.
    pub(crate) fn delete_config(&mut self, publishing: &Publishing) {
        self.delete_file(&publishing.dir.join(FILE));
        self.config = None;
        self.note("", format!("{FILE} deleted"));
    }

    /// One random change. One that breaks the manifest is none.
    pub(crate) fn churn_config(&mut self, publishing: &Publishing) {
        let version = self.rng.random_range(1..1_000_000);
        match self.rng.random_range(0..5) {
            0 => self.delete_config(publishing),
            1 if self.config.is_some() => {
                self.write_file(&publishing.dir.join(FILE), b"kind: [this is no object".to_vec());
                self.note("", format!("{FILE} spoilt"));
            }
            _ => self.publish_config(publishing, version),
        }
    }

    /// Files of a pod that say something else than the ConfigMap. Those of a pod
    /// without a sandbox may be old: one that waits for another of its name to go
    /// has them from an earlier life, nobody reads them, and they are written anew
    /// before its sandbox is made.
    pub(crate) fn stale_config(&self, pods: &Path) -> Option<String> {
        let wanted = self.config?.to_string();
        self.files.names_in(pods).into_iter().find_map(|dir| {
            let uid = dir.file_name()?.to_str()?;
            let mut sandboxes = self.objects.sandboxes.values();
            sandboxes.find(|sandbox| sandbox.ready && sandbox.uid() == uid)?;
            let file = config_dir(&dir).join("..data/version");
            let text = self.files.content(&file)?;
            (text != wanted.as_bytes()).then(|| {
                format!("{} says {}, not {wanted}", file.display(), String::from_utf8_lossy(text))
            })
        })
    }
}

/// Where the volume of a pod lies.
pub(crate) fn config_dir(pod: &Path) -> PathBuf {
    pod.join("volumes/kubernetes.io~configmap").join(CONFIG)
}
