//! The pods that everybody is measured with, with volumes or without.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use cri::v1;
use serde_json::{Value, json};
use testkit::{ManifestDir, PodManifest};

/// The volumes of a pod that has some: a directory, one in memory, and three that the
/// agent writes files for.
const VOLUMES: [&str; 5] = ["scratch", "memory", "settings", "password", "labels"];

/// A pod by its number.
pub fn pod(number: u32) -> PodManifest {
    PodManifest::pause(&format!("bench-{number}"))
}

/// Puts the manifests of these pods, and of what their volumes need.
pub fn put(manifests: &ManifestDir, pods: Range<u32>, volumes: bool) -> Result<()> {
    if volumes && pods.start == 0 {
        let meta = |kind: &str, name: &str| {
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name},
                   "data": {"a": "YQ==", "b": "Yg=="}})
        };
        let objects = [meta("ConfigMap", "settings"), meta("Secret", "password")];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        manifests.put("objects.json", list.to_string())?;
    }
    for pod in pods {
        let mut pod = self::pod(pod);
        if volumes {
            let mount = |name| json!({"name": name, "mountPath": format!("/{name}")});
            pod = pod.with("volumeMounts", VOLUMES.map(mount).into_iter().collect());
            pod = pod.spec("volumes", sources());
        }
        manifests.put_pod(&pod)?;
    }
    Ok(())
}

fn sources() -> Value {
    let labels = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    json!([
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "password", "secret": {"secretName": "password"}},
        {"name": "labels", "downwardAPI": {"items": labels}},
    ])
}

/// As many mounts as such a pod's container has, of directories that lie below this
/// one, for who makes the runtime's calls without a kubelet.
pub fn mounts(dir: &Path) -> Result<Vec<v1::Mount>> {
    let mount = |name| {
        let host_path = dir.join(name);
        fs::create_dir_all(&host_path)
            .with_context(|| format!("cannot create {}", host_path.display()))?;
        Ok(v1::Mount {
            container_path: format!("/{name}"),
            host_path: host_path.display().to_string(),
            ..Default::default()
        })
    };
    VOLUMES.into_iter().map(mount).collect()
}
