//! Claims of CSI drivers: what each request to a driver carries, who may have a volume, and
//! what is told of how full it is.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use plugin_apis::csi::volume_capability::AccessType;
use plugin_apis::csi::{
    AccessMode, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
};
use serde_json::{Value, json};
use testkit::csi::{CsiDriver, CsiOptions, NodeCapability};
use testkit::{Node, PodManifest, http};

const DRIVER: &str = "hostpath.klet.test";
const MIB: u64 = 1 << 20;

fn driver(node: &Node, name: &str, can: &[NodeCapability]) -> Result<CsiDriver> {
    let capabilities: BTreeSet<_> = can.iter().copied().collect();
    let options = CsiOptions { name: name.to_owned(), capabilities, ..CsiOptions::default() };
    let mut driver = CsiDriver::start(&node.klet.root_dir().canonicalize()?, options)?;
    driver.register()?;
    Ok(driver)
}

/// A volume that is the same as its claim's name, and the claim; with further fields of the
/// volume.
fn claim(name: &str, mode: &str, csi: Value, more: Value) -> [Value; 2] {
    let size = json!({"storage": "1Mi"});
    let mut volume = json!({"accessModes": [mode], "capacity": size, "csi": csi});
    for (key, value) in more.as_object().into_iter().flatten() {
        volume[key] = value.clone();
    }
    let claim = json!({"accessModes": [mode], "volumeName": format!("pv-{name}"),
        "resources": {"requests": size}});
    [
        json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": format!("pv-{name}")}, "spec": volume}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name}, "spec": claim}),
    ]
}

fn put_list(node: &Node, file: &str, items: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    node.manifests.put(file, list.to_string())
}

/// A pod with these claims, each in a directory of its name.
fn claimant(name: &str, script: &str, claims: &[&str]) -> PodManifest {
    let mounts: Value = claims
        .iter()
        .map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")}))
        .collect();
    let volumes: Value = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", mounts)
        .spec("volumes", volumes)
        .grace(1)
}

#[test]
fn each_request_carries_the_secret_that_is_for_it() -> Result<()> {
    let node = Node::start()?;
    let can = [NodeCapability::StageUnstageVolume, NodeCapability::ExpandVolume];
    let driver = driver(&node, DRIVER, &can)?;
    let reference = |step: &str| json!({"name": format!("{step}-key"), "namespace": "default"});
    let csi = json!({"driver": DRIVER, "volumeHandle": "vol-1",
        "volumeAttributes": {"size": MIB.to_string()},
        "nodeStageSecretRef": reference("stage"), "nodePublishSecretRef": reference("publish"),
        "nodeExpandSecretRef": reference("expand")});
    put_list(&node, "claim.json", claim("data", "ReadWriteOnce", csi, json!({})).to_vec())?;
    node.manifests.put_pod(&claimant("web", "echo up", &["data"]))?;
    node.wait_says(&["why", "web"], &["default/publish-key failed", "not found"])?;
    let steps = ["stage", "publish", "expand"];
    for step in steps {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{step}-key")},
            "stringData": {step: format!("hush: {step}")}});
        node.manifests.put(&format!("{step}.json"), secret.to_string())?;
    }
    node.wait_word("web", "main", "up")?;
    let expanded = node.eventually("the driver to be told the size", || {
        driver.requests::<NodeExpandVolumeRequest>().pop().context("it was not")
    })?;
    let staged = driver.requests::<NodeStageVolumeRequest>().pop().context("it was staged")?;
    let published = driver.requests::<NodePublishVolumeRequest>().pop().context("nor published")?;
    for (step, secrets) in
        steps.into_iter().zip([staged.secrets, published.secrets, expanded.secrets])
    {
        let found: BTreeMap<String, String> = secrets.into_iter().collect();
        let own = BTreeMap::from([(step.to_owned(), format!("hush: {step}"))]);
        assert_eq!(found, own, "{step} has its own, and no other");
    }
    let log = std::fs::read_to_string(node.klet.log_path())?;
    ensure!(!log.contains("hush: "), "no secret is logged");
    let uid = node.pod("web")?.uid;
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)
}

#[test]
fn a_volume_for_one_pod_is_given_to_one_with_its_mount_options() -> Result<()> {
    let mut node = Node::start()?;
    let can = [NodeCapability::StageUnstageVolume, NodeCapability::SingleNodeMultiWriter];
    let driver = driver(&node, DRIVER, &can)?;
    let csi = json!({"driver": DRIVER, "volumeHandle": "vol-1"});
    let options = json!({"mountOptions": ["noexec", "noatime"]});
    put_list(&node, "claim.json", claim("data", "ReadWriteOncePod", csi, options).to_vec())?;
    node.manifests.put_pod(&claimant("one", "echo hello >/data/word; echo up", &["data"]))?;
    node.wait_word("one", "main", "up")?;
    let one = node.pod("one")?.uid;
    let staged = driver.requests::<NodeStageVolumeRequest>().pop().context("it was staged")?;
    let published = driver.requests::<NodePublishVolumeRequest>().pop().context("nor published")?;
    for capability in [staged.volume_capability, published.volume_capability] {
        let capability = capability.context("a capability")?;
        assert_eq!(mode(&capability)?, AccessMode::SingleNodeSingleWriter);
        let Some(AccessType::Mount(mount)) = capability.access_type else {
            bail!("it is asked for no file system");
        };
        let flags: BTreeSet<&str> = mount.mount_flags.iter().map(String::as_str).collect();
        assert_eq!(flags, BTreeSet::from(["noatime", "noexec"]));
    }
    let mounted = node.run_in("one", "main", "grep ' /data ' /proc/mounts")?;
    ensure!(mounted.contains("noexec") && mounted.contains("noatime"), "{mounted}");

    node.manifests.put_pod(&claimant("two", "cat /data/word", &["data"]))?;
    let taken = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    node.wait_says(&["why", "two"], &[taken])?;
    node.wait_says(&["events", "two"], &["Warning FailedMount", taken])?;
    // Another life of klet knows whose it is.
    node.survive_kill()?;
    node.wait_says(&["why", "two"], &[taken])?;
    let asked = driver.requests::<NodePublishVolumeRequest>();
    ensure!(asked.iter().all(|asked| asked.target_path.contains(&one)), "{asked:?}");
    node.manifests.remove_pod("one")?;
    node.wait_word("two", "main", "hello")?;
    node.wait_no_trace("one", &one)?;
    let two = node.pod("two")?.uid;
    node.manifests.remove_pod("two")?;
    node.wait_no_trace("two", &two)?;
    ensure!(driver.mounts_of("vol-1")?.is_empty(), "it is still mounted");
    ensure!(!driver.requests::<NodeUnstageVolumeRequest>().is_empty(), "it is still staged");
    Ok(())
}

fn mode(capability: &VolumeCapability) -> Result<AccessMode> {
    let mode = capability.access_mode.context("no mode")?.mode;
    AccessMode::try_from(mode).with_context(|| format!("{mode} is no mode"))
}

/// A driver that can tell one writer of a node from several is told which it is.
#[test]
fn drivers_are_told_who_may_write() -> Result<()> {
    use AccessMode::{
        MultiNodeMultiWriter, MultiNodeReaderOnly, SingleNodeMultiWriter, SingleNodeSingleWriter,
        SingleNodeWriter,
    };
    let table = [
        ("ReadWriteOnce", "rwo", SingleNodeWriter, SingleNodeMultiWriter),
        ("ReadWriteOncePod", "rwop", SingleNodeWriter, SingleNodeSingleWriter),
        ("ReadOnlyMany", "rox", MultiNodeReaderOnly, MultiNodeReaderOnly),
        ("ReadWriteMany", "rwx", MultiNodeMultiWriter, MultiNodeMultiWriter),
    ];
    let node = Node::start()?;
    let stages = NodeCapability::StageUnstageVolume;
    let drivers = [
        driver(&node, "plain.klet.test", &[stages])?,
        driver(&node, "telling.klet.test", &[stages, NodeCapability::SingleNodeMultiWriter])?,
    ];
    let (mut items, mut names) = (Vec::new(), Vec::new());
    for driver in &drivers {
        for (mode, short, _, _) in table {
            let name = format!("{short}-{}", driver.name().replace(".klet.test", ""));
            let csi = json!({"driver": driver.name(), "volumeHandle": name});
            items.extend(claim(&name, mode, csi, json!({})));
            names.push(name);
        }
    }
    put_list(&node, "claims.json", items)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    node.manifests.put_pod(&claimant("all", "echo up", &names))?;
    node.wait_word("all", "main", "up")?;
    for (driver, tells) in drivers.iter().zip([false, true]) {
        let staged = driver.requests::<NodeStageVolumeRequest>();
        let published = driver.requests::<NodePublishVolumeRequest>();
        for (name, short, plain, telling) in table {
            let wanted = if tells { telling } else { plain };
            let own = |id: &str| id.starts_with(&format!("{short}-"));
            let staged = staged.iter().find(|asked| own(&asked.volume_id)).context(name)?;
            let published = published.iter().find(|asked| own(&asked.volume_id)).context(name)?;
            for capability in [&staged.volume_capability, &published.volume_capability] {
                let capability = capability.as_ref().context("a capability")?;
                assert_eq!(mode(capability)?, wanted, "{name} of {}", driver.name());
            }
        }
    }
    let uid = node.pod("all")?.uid;
    node.manifests.remove_pod("all")?;
    node.wait_no_trace("all", &uid)
}

/// Figures of a claim are its driver's, and a pod that writes sees them change.
#[test]
fn statistics_are_what_the_driver_tells() -> Result<()> {
    let node = Node::start()?;
    let can = [NodeCapability::StageUnstageVolume, NodeCapability::GetVolumeStats];
    let driver = driver(&node, DRIVER, &can)?;
    let csi = json!({"driver": DRIVER, "volumeHandle": "vol-1",
        "volumeAttributes": {"size": (8 * MIB).to_string()}});
    put_list(&node, "claim.json", claim("data", "ReadWriteOnce", csi, json!({})).to_vec())?;
    node.manifests.put_pod(&claimant("web", "echo up", &["data"]))?;
    node.wait_word("web", "main", "up")?;
    let figures = || -> Result<(u64, u64, u64)> {
        let summary = http::get_ok(node.klet.read_only_port(), "/stats/summary")?;
        let summary: Value = serde_json::from_str(&summary)?;
        let mut pods = summary["pods"].as_array().into_iter().flatten();
        let pod = pods.find(|pod| pod["podRef"]["name"] == "web-n1").context("no such pod")?;
        let mut all = pod["volume"].as_array().into_iter().flatten();
        let found = all.find(|one| one["name"] == "data").with_context(|| format!("{pod:#}"))?;
        assert_eq!(found["pvcRef"], json!({"name": "data", "namespace": "default"}));
        let of = |name: &str| found[name].as_u64().with_context(|| format!("{name}: {found:#}"));
        Ok((of("capacityBytes")?, of("usedBytes")?, of("inodesUsed")?))
    };
    let (capacity, empty, files) = node.eventually("figures", figures)?;
    assert_eq!((capacity, files), (8 * MIB, 1));
    let write = "dd if=/dev/zero of=/data/big bs=1M count=3; touch /data/a; sync";
    node.run_in("web", "main", write)?;
    node.eventually("what was written to be counted", || {
        let (capacity, used, files) = figures()?;
        ensure!((capacity, files) == (8 * MIB, 3), "{capacity} {files}");
        ensure!((empty + 3 * MIB..empty + 4 * MIB).contains(&used), "{used} after {empty}");
        Ok(())
    })?;
    let uid = node.pod("web")?.uid;
    node.manifests.remove_pod("web")?;
    node.wait_no_trace("web", &uid)?;
    ensure!(driver.mounts_of("vol-1")?.is_empty(), "it is still mounted");
    Ok(())
}
