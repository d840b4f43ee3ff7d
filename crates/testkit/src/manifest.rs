//! Static pod manifests: made in code, put into a directory as an editor would.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{binaries, image};

/// A directory of manifests.
#[derive(Debug, Clone)]
pub struct ManifestDir(PathBuf);

impl ManifestDir {
    /// Makes the directory if need be.
    pub fn new(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes or replaces a file. It appears whole: a reader never sees half of it.
    pub fn put(&self, file: &str, content: impl AsRef<str>) -> Result<()> {
        let (hidden, path) = (self.0.join(format!(".{file}.new")), self.0.join(file));
        fs::write(&hidden, content.as_ref())
            .and_then(|()| fs::rename(&hidden, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes a pod under the file name `NAME.json`.
    pub fn put_pod(&self, pod: &PodManifest) -> Result<()> {
        self.put(&format!("{}.json", pod.name), pod.to_json())
    }

    /// Writes an example of volumes under its own file name, `NAME.yaml`, with some of its
    /// words replaced.
    pub fn put_example(&self, name: &str, changes: &[(&str, &str)]) -> Result<()> {
        let file = format!("{name}.yaml");
        let path = binaries::workspace().join("examples/volumes").join(&file);
        let mut text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for (from, to) in changes {
            ensure!(text.contains(from), "{file} has no {from}");
            text = text.replace(from, to);
        }
        self.put(&file, text)
    }

    /// Removes the file of [`Self::put_example`].
    pub fn remove_example(&self, name: &str) -> Result<()> {
        self.remove(&format!("{name}.yaml"))
    }

    /// Writes the PersistentVolume `pv` of this source and mode, and the claim `data`
    /// that names it.
    pub fn put_claim(&self, mode: &str, source: &str, spec: Value) -> Result<()> {
        self.put_sized_claim(mode, source, spec, "16Mi")
    }

    /// The same, of a volume of this size.
    pub fn put_sized_claim(&self, mode: &str, source: &str, spec: Value, size: &str) -> Result<()> {
        let (modes, size) = (json!(["ReadWriteOnce"]), json!({"storage": size}));
        let volume =
            json!({"accessModes": modes, "volumeMode": mode, "capacity": size, source: spec});
        let claim = json!({"accessModes": modes, "volumeMode": mode, "volumeName": "pv",
            "resources": {"requests": size}});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
             "spec": volume},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
             "spec": claim},
        ]});
        self.put("claim.json", list.to_string())
    }

    /// Removes a file.
    pub fn remove(&self, file: &str) -> Result<()> {
        let path = self.0.join(file);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Removes the file of a pod put by [`Self::put_pod`].
    pub fn remove_pod(&self, name: &str) -> Result<()> {
        self.remove(&format!("{name}.json"))
    }

    /// Removes every file.
    pub fn clear(&self) -> Result<()> {
        let entries =
            fs::read_dir(&self.0).with_context(|| format!("cannot list {}", self.0.display()))?;
        for entry in entries {
            let path = entry.context("cannot list the manifests")?.path();
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

/// A pod of plain containers. Unless told otherwise: restarted always, and one
/// second to end in, because tests stop many.
#[derive(Debug, Clone)]
pub struct PodManifest {
    name: String,
    uid: Option<String>,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    restart_policy: String,
    grace_seconds: u32,
    init: Vec<Value>,
    containers: Vec<Value>,
    spec: Vec<(String, Value)>,
    last: List,
}

/// The list that the container added last is in.
#[derive(Debug, Clone, Copy)]
enum List {
    Init,
    Regular,
}

impl PodManifest {
    /// A pod with no container yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: None,
            labels: Vec::new(),
            annotations: Vec::new(),
            restart_policy: "Always".to_owned(),
            grace_seconds: 1,
            init: Vec::new(),
            containers: Vec::new(),
            spec: Vec::new(),
            last: List::Regular,
        }
    }

    /// A pod with one container, `main`, that runs a shell script in busybox.
    pub fn script(name: &str, script: &str) -> Self {
        Self::new(name).container("main", script)
    }

    /// A pod with one container, `main`, that only waits, in the smallest image.
    pub fn pause(name: &str) -> Self {
        let mut pod = Self::new(name);
        pod.containers.push(json!({
            "name": "main", "image": image::PAUSE, "imagePullPolicy": "IfNotPresent",
        }));
        pod
    }

    /// Adds a container that runs a shell script in busybox.
    pub fn container(mut self, name: &str, script: &str) -> Self {
        self.containers.push(shell(name, script));
        self.last = List::Regular;
        self
    }

    /// Adds an init container that runs a shell script in busybox.
    pub fn init(mut self, name: &str, script: &str) -> Self {
        self.init.push(shell(name, script));
        self.last = List::Init;
        self
    }

    /// Adds an init container that is restarted always: a sidecar.
    pub fn sidecar(self, name: &str, script: &str) -> Self {
        self.init(name, script).with("restartPolicy", json!("Always"))
    }

    /// Sets a field of the container added last.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        let list = match self.last {
            List::Init => &mut self.init,
            List::Regular => &mut self.containers,
        };
        if let Some(container) = list.last_mut() {
            container[field] = value;
        }
        self
    }

    /// Mounts volumes in the container added last: each by its name, and where.
    pub fn mounts(self, list: &[(&str, &str)]) -> Self {
        let mounts = list.iter().map(|(name, path)| json!({"name": name, "mountPath": path}));
        self.with("volumeMounts", mounts.collect())
    }

    /// Sets a field of the pod's spec.
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.spec.push((field.to_owned(), value));
        self
    }

    /// Fixes the uid: edits then change the pod in place.
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    /// Adds a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    /// `Always`, `OnFailure` or `Never`.
    pub fn restart(mut self, policy: &str) -> Self {
        self.restart_policy = policy.to_owned();
        self
    }

    /// Seconds between SIGTERM and SIGKILL.
    pub fn grace(mut self, seconds: u32) -> Self {
        self.grace_seconds = seconds;
        self
    }

    /// The manifest, which is also YAML.
    pub fn to_json(&self) -> String {
        let map = |pairs: &[(String, String)]| -> Value {
            pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Value>()
        };
        let mut manifest = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "labels": map(&self.labels),
                "annotations": map(&self.annotations),
            },
            "spec": {
                "restartPolicy": self.restart_policy,
                "terminationGracePeriodSeconds": self.grace_seconds,
                "initContainers": self.init,
                "containers": self.containers,
            },
        });
        if let Some(uid) = &self.uid {
            manifest["metadata"]["uid"] = json!(uid);
        }
        for (field, value) in &self.spec {
            manifest["spec"][field] = value.clone();
        }
        format!("{manifest:#}\n")
    }
}

/// A container that runs a shell script in busybox.
fn shell(name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": image::BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
    })
}
