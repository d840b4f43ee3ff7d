//! Volumes of CSI drivers that grow, on a node of a cluster. The test is the controller that
//! binds claims and grows volumes; everything else is real.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use plugin_apis::csi::volume_capability::AccessType;
use plugin_apis::csi::{NodeExpandVolumeRequest, NodePublishVolumeRequest};
use serde_json::json;
use testkit::controllers::{DRIVER, STORAGE, bind, claimant, driver, wait_event};
use testkit::csi::{Code, CsiOptions, Fault, NodeCapability, Rpc};
use testkit::{ApiOptions, Cluster, PodManifest};

/// What a resizer's controller does: the volume has become larger, and the node is to have
/// its file system fill it.
fn grow(cluster: &Cluster, claim: &str, volume: &str, size: &str) -> Result<()> {
    let place = path("api/v1", "default", &["persistentvolumeclaims", claim]);
    let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, patch))?;
    let patch = json!({"spec": {"capacity": {"storage": size}}});
    let at = path("api/v1", "", &["persistentvolumes", volume]);
    cluster.api.ask(Call::patch(&at, Patch::Merge, patch))?;
    let status = json!({"allocatedResources": {"storage": size},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let at = format!("{place}/status");
    cluster.api.ask(Call::patch(&at, Patch::Merge, json!({"status": status}))).map(drop)
}

/// Waits until the claim says that its volume has this size, and nothing is under way.
fn wait_size(cluster: &Cluster, claim: &str, size: &str) -> Result<()> {
    cluster.node.eventually(&format!("claim {claim} to have {size}"), || {
        let found = cluster.api.object("persistentvolumeclaims", "default", claim);
        let status = &found.context("no claim")?["status"];
        ensure!(status["capacity"]["storage"] == size, "{status:#}");
        ensure!(status["allocatedResourceStatuses"].get("storage").is_none(), "{status:#}");
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.is_empty(), "{status:#}");
        Ok(())
    })
}

#[test]
fn a_claim_grows_with_its_volume() -> Result<()> {
    let config = json!({"syncFrequency": "1s"});
    let mut cluster = Cluster::start_with(ApiOptions::default(), config)?;
    let can = [NodeCapability::StageUnstageVolume, NodeCapability::ExpandVolume];
    let capabilities = BTreeSet::from(can);
    let mut driver = driver(&cluster, CsiOptions { capabilities, ..CsiOptions::default() })?;
    driver.register()?;
    let object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["csidrivers"]), object))?;
    bind(&cluster, "data", "pv-1", "vol-1", json!({}))?;
    let status = path("api/v1", "default", &["persistentvolumeclaims", "data", "status"]);
    let patch = json!({"status": {"capacity": {"storage": "1Gi"}}});
    cluster.api.ask(Call::patch(&status, Patch::Merge, patch))?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    cluster.create_pod(&claimant("web", source))?;
    cluster.wait_ready("web")?;
    let asked = || -> Vec<i64> {
        let all = driver.requests::<NodeExpandVolumeRequest>().into_iter();
        all.map(|one| one.capacity_range.unwrap_or_default().required_bytes >> 30).collect()
    };
    let before = cluster.node.instances()?;
    assert_eq!(asked(), [0; 0], "nothing grew");

    // While the pod uses it; the first try fails, and the claim tells.
    driver.inject(Rpc::NodeExpandVolume, Fault::fail(Code::Internal));
    grow(&cluster, "data", "pv-1", "2Gi")?;
    wait_event(&cluster, "VolumeResizeFailed", "NodeExpandVolume.NodeExpandVolume failed")?;
    wait_size(&cluster, "data", "2Gi")?;
    assert_eq!(asked(), [2, 2]);
    let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv-1\"";
    wait_event(&cluster, "FileSystemResizeSuccessful", grown)?;
    cluster.node.eventually("the claim to have its event", || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let of_claim = all.iter().any(|event| {
            event["involvedObject"]["kind"] == "PersistentVolumeClaim"
                && event["reason"] == "FileSystemResizeSuccessful"
        });
        ensure!(of_claim, "there is none");
        Ok(())
    })?;

    let published = || driver.requests::<NodePublishVolumeRequest>().len();
    let earlier = published();
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.node.eventually("the next life to look after the volume", || {
        ensure!(published() > earlier, "it has not");
        Ok(())
    })?;
    assert_eq!(asked(), [2, 2], "nothing grew");

    // Killed while the driver is at it: the next life ends what was begun.
    driver.inject(Rpc::NodeExpandVolume, Fault::hang().once_done());
    grow(&cluster, "data", "pv-1", "3Gi")?;
    cluster.node.eventually("the driver to be asked", || {
        ensure!(asked() == [2, 2, 3], "asked for {:?}", asked());
        Ok(())
    })?;
    let claim = cluster.api.object("persistentvolumeclaims", "default", "data").context("none")?;
    let state = &claim["status"]["allocatedResourceStatuses"]["storage"];
    assert_eq!(state, "NodeResizeInProgress");
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    wait_size(&cluster, "data", "3Gi")?;
    assert_eq!(asked(), [2, 2, 3, 3]);
    assert_eq!(cluster.node.instances()?, before, "the container noticed nothing");
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.wait_ready("web")?;
    assert_eq!(asked(), [2, 2, 3, 3], "nothing grew");
    cluster.delete_pod("web", None)?;
    cluster.wait_gone("web")?;

    // A volume that grew while nobody had it is grown before its pod starts.
    grow(&cluster, "data", "pv-1", "4Gi")?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    cluster.create_pod(&claimant("next", source))?;
    cluster.wait_ready("next")?;
    assert_eq!(asked(), [2, 2, 3, 3, 4]);
    wait_size(&cluster, "data", "4Gi")?;
    cluster.delete_pod("next", None)?;
    cluster.wait_gone("next")?;
    ensure!(driver.mounts_of("vol-1")?.is_empty(), "it is still mounted");
    Ok(())
}

/// A pod that has the claim as /dev/disk.
fn device_pod(name: &str) -> PodManifest {
    let claim = json!({"claimName": "blocks"});
    PodManifest::script(name, "exec sleep 1000")
        .with("volumeDevices", json!([{"name": "d", "devicePath": "/dev/disk"}]))
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": claim}]))
        .grace(1)
}

/// How large the pod finds its device.
fn mebibytes(cluster: &Cluster, pod: &str) -> Result<u64> {
    let said = cluster.node.run_in(pod, "main", "blockdev --getsize64 /dev/disk")?;
    Ok(said.trim().parse::<u64>()? >> 20)
}

/// The value of a series of `/metrics`: the one with all these words.
fn metric(cluster: &Cluster, words: &[&str]) -> Result<f64> {
    let answer = cluster.node_get("admin", Some("system:masters"), "/metrics")?;
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    let line = answer.body.lines().filter(|line| !line.starts_with('#')).find(has);
    let line = line.with_context(|| format!("no {words:?} in {}", answer.body))?;
    let value = line.rsplit(' ').next().context("no value")?;
    value.parse().with_context(|| line.to_owned())
}

#[test]
fn a_device_grows_with_its_volume() -> Result<()> {
    let config = json!({"syncFrequency": "1s"});
    let mut cluster = Cluster::start_with(ApiOptions::default(), config)?;
    let capabilities = BTreeSet::from([
        NodeCapability::StageUnstageVolume,
        NodeCapability::ExpandVolume,
        NodeCapability::GetVolumeStats,
    ]);
    let mut driver = driver(&cluster, CsiOptions { capabilities, ..CsiOptions::default() })?;
    driver.register()?;
    let object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    cluster.api.ask(Call::post(&path(STORAGE, "", &["csidrivers"]), object))?;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
        "resources": {"requests": {"storage": "16Mi"}}});
    let object = json!({"metadata": {"name": "blocks"}, "spec": spec});
    cluster.create("persistentvolumeclaims", object)?;
    let more = json!({"volumeMode": "Block", "capacity": {"storage": "16Mi"}});
    bind(&cluster, "blocks", "pv-b", "vol-b", more)?;
    let status = path("api/v1", "default", &["persistentvolumeclaims", "blocks", "status"]);
    let patch = json!({"status": {"capacity": {"storage": "16Mi"}}});
    cluster.api.ask(Call::patch(&status, Patch::Merge, patch))?;
    cluster.create_pod(&device_pod("web"))?;
    cluster.wait_ready("web")?;
    assert_eq!(mebibytes(&cluster, "web")?, 16);
    let asked = || driver.requests::<NodeExpandVolumeRequest>();
    assert_eq!(asked().len(), 0, "nothing grew");

    // In use: the same device, and the claim tells.
    grow(&cluster, "blocks", "pv-b", "32Mi")?;
    wait_size(&cluster, "blocks", "32Mi")?;
    assert_eq!(mebibytes(&cluster, "web")?, 32);
    let request = asked().pop().context("no request")?;
    assert_eq!(request.capacity_range.unwrap_or_default().required_bytes, 32 << 20);
    let kind = request.volume_capability.and_then(|capability| capability.access_type);
    ensure!(matches!(kind, Some(AccessType::Block(_))), "{kind:?}");
    ensure!(request.volume_path.contains("volumeDevices/publish/pv-b/"), "{}", request.volume_path);
    ensure!(request.staging_target_path.ends_with("volumeDevices/staging/pv-b"));
    let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv-b\"";
    wait_event(&cluster, "FileSystemResizeSuccessful", grown)?;

    // Nobody but the device's user knows what is in it.
    let of_claim = "persistentvolumeclaim=\"blocks\"";
    for (name, value) in [("capacity_bytes", 32 << 20), ("used_bytes", 0), ("inodes", 0)] {
        let name = format!("kubelet_volume_stats_{name}{{");
        assert_eq!(metric(&cluster, &[&name, of_claim])? as u64, value, "{name}");
    }
    let summary = cluster.node_get("admin", Some("system:masters"), "/stats/summary")?.body;
    let capacity = "\"capacityBytes\":33554432";
    ensure!(summary.replace(' ', "").contains(capacity), "{summary}");
    let plugin = format!("\"kubernetes.io/csi:{DRIVER}\"");
    for operation in ["map_volume", "volume_fs_resize"] {
        let done = ["storage_operation_duration_seconds_count", operation, &plugin, "success"];
        ensure!(metric(&cluster, &done)? >= 1.0, "{operation}");
    }
    let method = "/csi.v1.Node/NodeExpandVolume";
    let calls = ["csi_operations_seconds_count", method, DRIVER, "grpc_status_code=\"OK\""];
    assert_eq!(metric(&cluster, &calls)?, 1.0);
    for state in ["desired_state_of_world", "actual_state_of_world"] {
        let total = ["volume_manager_total_volumes", &plugin, state];
        assert_eq!(metric(&cluster, &total)?, 1.0, "{state}");
    }

    // While nobody has it: grown before its pod starts, by another life of the agent.
    cluster.delete_pod("web", None)?;
    cluster.wait_gone("web")?;
    let undone = ["storage_operation_duration_seconds_count", "unmap_device", &plugin, "success"];
    ensure!(metric(&cluster, &undone)? >= 1.0, "the node has it no more");
    cluster.node.klet.kill9()?;
    grow(&cluster, "blocks", "pv-b", "48Mi")?;
    cluster.create_pod(&device_pod("next"))?;
    cluster.node.klet.restart()?;
    cluster.wait_ready("next")?;
    assert_eq!(mebibytes(&cluster, "next")?, 48);
    wait_size(&cluster, "blocks", "48Mi")?;
    cluster.delete_pod("next", None)?;
    cluster.wait_gone("next")?;
    assert_eq!(driver.device_of("vol-b")?, None, "the node has it no more");
    Ok(())
}
