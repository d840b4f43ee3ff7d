//! The ConfigMap and the Secret that pods mount: they come, change, break and go.
//!
//! Owns what both say now. Once all is quiet, the files of every pod that runs
//! say the same.

use std::path::{Path, PathBuf};

use rand::RngExt;
use serde_json::json;

use crate::chaos::Publishing;
use crate::manifest::{NAMESPACE, PodTemplate};
use crate::world::State;

/// Its name, and that of the volume.
pub(crate) const CONFIG: &str = "config";
/// The Secret's, and that of its volume.
pub(crate) const SECRET: &str = "secret";
/// Their manifest.
const FILE: &str = "config.json";

impl State {
    /// Writes both.
    pub(crate) fn publish_config(&mut self, publishing: &Publishing, version: u64) {
        if self.api.is_some() {
            return self.put_api_config(version);
        }
        let object = |kind: &str, name: &str, data: &str| {
            json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "namespace": NAMESPACE},
                data: {"version": version.to_string()}})
        };
        let items = [object("ConfigMap", CONFIG, "data"), object("Secret", SECRET, "stringData")];
        let manifest = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.write_file(&publishing.dir.join(FILE), manifest.to_string().into_bytes());
        self.config = Some(version);
        self.note("", format!("{FILE} = version {version}"));
    }

    /// Removes both.
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

    /// Files of a pod that say something else than the ConfigMap or Secret. Those of a pod
    /// without a sandbox may be old: one that waits for another of its name to go
    /// has them from an earlier life, nobody reads them, and they are written anew
    /// before its sandbox is made.
    pub(crate) fn stale_config(&self, pods: &Path) -> Option<String> {
        let wanted = self.config?.to_string();
        self.files.names_in(pods).into_iter().find_map(|dir| {
            let uid = dir.file_name()?.to_str()?;
            let mut sandboxes = self.objects.sandboxes.values();
            sandboxes.find(|sandbox| sandbox.ready && sandbox.uid() == uid)?;
            [config_dir(&dir), secret_dir(&dir)].into_iter().find_map(|volume| {
                let file = volume.join(VERSION);
                let text = self.files.content(&file)?;
                (text != wanted.as_bytes()).then(|| {
                    let text = String::from_utf8_lossy(text);
                    format!("{} says {text}, not {wanted}", file.display())
                })
            })
        })
    }

    /// What of both a pod lacks though the agent asks for its sandbox.
    pub(crate) fn missing_object(&self, pod: &Path, of: &PodTemplate) -> Option<&'static str> {
        let (config, secret) = (config_dir(pod), secret_dir(pod));
        if of.volumes.config && !self.files.has(&config.join(VERSION)) {
            return Some(CONFIG);
        }
        let there = self.files.has(&secret.join(VERSION))
            // Never on a disk.
            && self.volumes.mounts.contains_key(&secret);
        (of.volumes.secret && !there).then_some(SECRET)
    }
}

/// What they say, in a volume.
const VERSION: &str = "..data/version";

/// Where the volume of a pod lies.
fn config_dir(pod: &Path) -> PathBuf {
    pod.join("volumes/kubernetes.io~configmap").join(CONFIG)
}

/// The same of the Secret.
fn secret_dir(pod: &Path) -> PathBuf {
    pod.join("volumes/kubernetes.io~secret").join(SECRET)
}
