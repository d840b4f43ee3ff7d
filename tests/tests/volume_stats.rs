//! What volumes hold, as `/stats/summary` tells it: figures of what was written, of the
//! file system that it was written to.

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use serde_json::{Value, json};
use testkit::disk::LoopDevice;
use testkit::{Cluster, PodManifest};

const MIB: u64 = 1 << 20;

/// A claim that is bound to a disk of the node.
fn bind_disk(cluster: &Cluster, disk: &LoopDevice) -> Result<()> {
    let (modes, size) = (json!(["ReadWriteOnce"]), json!({"storage": "32Mi"}));
    let spec = json!({"accessModes": modes, "resources": {"requests": size}, "volumeName": "pv"});
    let claim = json!({"metadata": {"name": "data"}, "spec": spec});
    let claim = cluster.create("persistentvolumeclaims", claim)?;
    let reference =
        json!({"namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]});
    let spec = json!({"accessModes": modes, "capacity": size, "claimRef": reference,
        "local": {"path": disk.path()}});
    let volume = json!({"metadata": {"name": "pv"}, "spec": spec});
    cluster.api.ask(Call::post(&path("api/v1", "", &["persistentvolumes"]), volume))?;
    let place = path("api/v1", "default", &["persistentvolumeclaims", "data", "status"]);
    let bound = json!({"status": {"phase": "Bound"}});
    cluster.api.ask(Call::patch(&place, Patch::Merge, bound)).map(drop)
}

/// A figure of a pod's volume.
fn figure(cluster: &Cluster, volume: &str, name: &str) -> Result<u64> {
    let summary = cluster.node_get("admin", Some("system:masters"), "/stats/summary")?;
    let summary: Value = serde_json::from_str(&summary.body).context(summary.body)?;
    let mut pods = summary["pods"].as_array().into_iter().flatten();
    let pod = pods.find(|pod| pod["podRef"]["name"] == "web").context("no such pod")?;
    let mut all = pod["volume"].as_array().into_iter().flatten();
    let found = all.find(|one| one["name"] == volume).with_context(|| format!("{pod:#}"))?;
    found[name].as_u64().with_context(|| format!("no {name} in {found:#}"))
}

fn wait_within(cluster: &Cluster, volume: &str, name: &str, from: u64, to: u64) -> Result<()> {
    cluster.node.eventually(&format!("{name} of {volume} to be {from} to {to}"), || {
        let value = figure(cluster, volume, name)?;
        ensure!((from..=to).contains(&value), "it is {value}");
        Ok(())
    })
}

#[test]
fn figures_are_those_of_what_was_written() -> Result<()> {
    let cluster = Cluster::start()?;
    let image = cluster.node.containerd.dir().join("disk.img");
    let disk = LoopDevice::over(&image, b"", 32 * MIB)?;
    bind_disk(&cluster, &disk)?;
    let big = "x".repeat(100_000);
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"big": big}}))?;
    let names = ["disk", "memory", "conf", "claim"];
    let mounts: Value =
        names.iter().map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    let pod = PodManifest::script("web", "exec sleep 1000").with("volumeMounts", mounts).spec(
        "volumes",
        json!([
            {"name": "disk", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": "conf", "configMap": {"name": "m"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        ]),
    );
    let uid = cluster.create_pod(&pod)?;
    cluster.wait_ready("web")?;
    wait_within(&cluster, "disk", "usedBytes", 0, MIB)?;
    wait_within(&cluster, "disk", "inodesUsed", 1, 1)?;
    let empty = figure(&cluster, "claim", "usedBytes")?;

    let write = "for dir in disk memory claim; do \
                 dd if=/dev/zero of=/$dir/big bs=1M count=3; touch /$dir/a /$dir/b; done; sync";
    cluster.node.run_in("web", "main", write)?;
    wait_within(&cluster, "disk", "usedBytes", 3 * MIB, 4 * MIB)?;
    wait_within(&cluster, "disk", "inodesUsed", 4, 4)?;
    wait_within(&cluster, "memory", "usedBytes", 3 * MIB, 4 * MIB)?;
    wait_within(&cluster, "memory", "capacityBytes", 8 * MIB, 8 * MIB)?;
    wait_within(&cluster, "memory", "availableBytes", 4 * MIB, 5 * MIB)?;
    wait_within(&cluster, "conf", "usedBytes", 100_000, MIB)?;
    wait_within(&cluster, "claim", "usedBytes", empty + 3 * MIB, empty + 4 * MIB)?;
    // Less than the device has: a file system keeps tables of its own.
    wait_within(&cluster, "claim", "capacityBytes", 16 * MIB, 32 * MIB)?;
    let left = figure(&cluster, "claim", "inodes")? - figure(&cluster, "claim", "inodesFree")?;
    wait_within(&cluster, "claim", "inodesUsed", left, left)?;

    cluster.node.run_in("web", "main", "rm /disk/big /claim/big; sync")?;
    wait_within(&cluster, "disk", "usedBytes", 0, MIB)?;
    wait_within(&cluster, "claim", "usedBytes", empty, empty + MIB)?;
    cluster.delete_pod("web", None)?;
    cluster.wait_no_trace("web", &uid)
}
