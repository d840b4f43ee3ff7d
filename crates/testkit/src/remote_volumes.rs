//! Pods with a volume of another machine, and what such volumes must not leave behind.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{Node, PodManifest, host};

/// Writes a word to the volume and says `up`.
pub const WRITE: &str = "echo hello >/data/word; sync; echo up";
/// Says that word.
pub const READ: &str = "cat /data/word";

/// A pod that has this as /data.
pub fn pod(name: &str, script: &str, source: &Value) -> PodManifest {
    let mut volume = source.clone();
    volume["name"] = json!("d");
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", json!([{"name": "d", "mountPath": "/data"}]))
        .spec("volumes", json!([volume]))
        .grace(1)
}

/// The claim `data`, as a pod's volume.
pub fn claim() -> Value {
    json!({"persistentVolumeClaim": {"claimName": "data"}})
}

/// What the agent has of a kind, beyond pods: neither files nor mounts.
pub fn ensure_nothing_left(node: &Node, kind: &str) -> Result<()> {
    let dir = node.klet.root_dir().join("plugins/kubernetes.io").join(kind);
    let mounts = host::mounts_below(&dir)?;
    ensure!(mounts.is_empty(), "still mounted: {mounts:?}");
    let left = files_below(&dir)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

/// Everything below a directory but the directory for devices, which may be empty.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return Ok(all) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files_below(&path)?);
        }
        if !path.ends_with("volumeDevices") {
            all.push(path);
        }
    }
    Ok(all)
}

/// Kills klet, starts it again, and sees that it finds the pod's volume and leaves the
/// pod alone.
pub fn kill_and_restart(node: &mut Node, name: &str, kind: &str) -> Result<()> {
    let before = node.instances()?;
    node.klet.kill9()?;
    node.klet.restart()?;
    node.wait_says(&["volumes"], &[&format!("default/{name}-n1 d {kind} Ready ")])?;
    ensure!(node.instances()? == before, "the pods are as they were");
    Ok(())
}

/// Runs a script in a pod as soon as klet tells of its container: on a slow machine the
/// container speaks first.
pub fn look(node: &Node, name: &str, script: &str) -> Result<String> {
    node.wait_running(name)?;
    node.run_in(name, "main", script)
}
