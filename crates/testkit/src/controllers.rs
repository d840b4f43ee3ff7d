//! What the controllers of a cluster do to claims and volumes, and what nodes answer.
//!
//! Writes objects of the small API server, as controllers would. Decides nothing.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use serde_json::{Value, json};

use crate::csi::{CsiDriver, CsiOptions};
use crate::{Cluster, PodManifest};

/// The driver of these volumes.
pub const DRIVER: &str = "hostpath.klet.test";
/// The group of attachments and drivers.
pub const STORAGE: &str = "apis/storage.k8s.io/v1";

/// Starts the driver beside the node; nobody knows it yet.
pub fn driver(cluster: &Cluster, options: CsiOptions) -> Result<CsiDriver> {
    CsiDriver::start(&cluster.node.klet.root_dir().canonicalize()?, options)
}

/// What the Node calls a volume.
pub fn unique_name(handle: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{handle}")
}

/// The Node object.
pub fn node(cluster: &Cluster) -> Result<Value> {
    cluster.api.object("nodes", "", cluster.node.klet.node_name()).context("no Node")
}

/// Waits for what the Node says of volumes in use.
pub fn wait_in_use(cluster: &Cluster, expected: &[&str]) -> Result<()> {
    cluster.node.eventually(&format!("{expected:?} to be in use"), || {
        let node = node(cluster)?;
        let said = node["status"].get("volumesInUse").cloned().unwrap_or(json!([]));
        ensure!(said == json!(expected), "in use: {said}");
        Ok(())
    })
}

/// A volume with a claim that is bound to it.
pub fn bind(cluster: &Cluster, claim: &str, volume: &str, handle: &str, more: Value) -> Result<()> {
    let place = path("api/v1", "default", &["persistentvolumeclaims", claim]);
    let found = cluster.api.object("persistentvolumeclaims", "default", claim);
    let found = match found {
        Some(found) => found,
        None => {
            let spec = json!({"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}});
            let object = json!({"metadata": {"name": claim}, "spec": spec});
            cluster.create("persistentvolumeclaims", object)?
        }
    };
    let uid = &found["metadata"]["uid"];
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "default", "name": claim, "uid": uid},
        "csi": {"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": {"colour": "blue"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"metadata": {"name": volume}, "spec": spec});
    cluster.api.ask(Call::post(&path("api/v1", "", &["persistentvolumes"]), object))?;
    let patch = json!({"spec": {"volumeName": volume}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, patch))?;
    let patch = json!({"status": {"phase": "Bound"}});
    cluster.api.ask(Call::patch(&format!("{place}/status"), Patch::Merge, patch)).map(drop)
}

/// Does what a cluster does to attach a volume: in its order.
pub fn attach(cluster: &Cluster, volume: &str, handle: &str) -> Result<()> {
    let node = cluster.node.klet.node_name();
    let name = format!("csi-{}", sha256(&format!("{handle}{DRIVER}{node}"))?);
    let object = json!({"metadata": {"name": name}, "spec": {"attacher": DRIVER,
        "nodeName": node, "source": {"persistentVolumeName": volume}}});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["volumeattachments"]), object))?;
    let place = path(STORAGE, "", &["volumeattachments", &name, "status"]);
    let status = json!({"attached": true, "attachmentMetadata": {"device": "sdz"}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, json!({"status": status})))?;
    set_attached(cluster, json!([{"name": unique_name(handle), "devicePath": ""}]))
}

/// Says on the Node which volumes are attached.
pub fn set_attached(cluster: &Cluster, volumes: Value) -> Result<()> {
    let place = path("api/v1", "", &["nodes", cluster.node.klet.node_name(), "status"]);
    let patch = json!({"status": {"volumesAttached": volumes}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, patch)).map(drop)
}

/// In hexadecimal digits.
pub fn sha256(text: &str) -> Result<String> {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    sum.stdin.take().context("a pipe")?.write_all(text.as_bytes())?;
    let answer = String::from_utf8(sum.wait_with_output()?.stdout)?;
    Ok(answer.split(' ').next().context("a sum")?.to_owned())
}

/// A pod that writes into the one volume that it has.
pub fn claimant(name: &str, source: Value) -> PodManifest {
    let mut volume = json!({"name": "data"});
    for (key, value) in source.as_object().into_iter().flatten() {
        volume[key] = value.clone();
    }
    let script = "trap 'exit 0' TERM; date >/data/word; while true; do sleep 0.1; done";
    PodManifest::script(name, script)
        .with("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]))
        .spec("volumes", json!([volume]))
        .grace(5)
}

/// Waits until the server has an event with these words in its message.
pub fn wait_event(cluster: &Cluster, reason: &str, words: &str) -> Result<()> {
    cluster.node.eventually(&format!("an event {words:?}"), || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let told = all.iter().any(|event| {
            event["reason"] == reason
                && event["message"].as_str().is_some_and(|message| message.contains(words))
        });
        let said = || all.iter().map(|event| event["message"].to_string()).collect::<Vec<_>>();
        ensure!(told, "there are {:#?}", said());
        Ok(())
    })
}
