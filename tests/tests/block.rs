//! Block volumes: devices of drivers and of the node, in containers as they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use plugin_apis::csi::volume_capability::AccessType;
use plugin_apis::csi::{NodePublishVolumeRequest, NodeStageVolumeRequest};
use serde_json::json;
use testkit::csi::{CsiDriver, CsiOptions, Fault, Rpc};
use testkit::disk::{LoopDevice, loops_over};
use testkit::{Node, PodManifest};

const DRIVER: &str = "hostpath.klet.test";

/// A pod that has the claim as /dev/disk.
fn pod(name: &str, script: &str, read_only: bool) -> PodManifest {
    let claim = json!({"claimName": "data", "readOnly": read_only});
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeDevices", json!([{"name": "d", "devicePath": "/dev/disk"}]))
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": claim}]))
        .grace(1)
}

const WRITE: &str = "[ -b /dev/disk ] && printf hello | dd of=/dev/disk conv=fsync; echo written";
const READ: &str = "head -c 5 /dev/disk; echo; printf x | dd of=/dev/disk || echo cannot write";

fn devices_dir(node: &Node, kind: &str) -> PathBuf {
    node.klet.root_dir().join("plugins").join(kind).join("volumeDevices")
}

/// Everything in a directory, and in the directories in it.
fn left_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        // Those are the agent's for good.
        let kept = path.ends_with("staging") || path.ends_with("publish");
        match path.is_dir() && kept {
            true => left.extend(left_in(&path)?),
            false => left.push(path),
        }
    }
    Ok(left)
}

#[test]
fn pods_share_the_device_of_a_driver() -> Result<()> {
    let mut node = Node::start()?;
    let root = node.klet.root_dir().canonicalize()?;
    let mut driver = CsiDriver::start(&root, CsiOptions::default())?;
    driver.register()?;
    node.manifests.put_claim("Block", "csi", json!({"driver": DRIVER, "volumeHandle": "vol-1"}))?;
    node.manifests.put_pod(&pod("writer", WRITE, false))?;
    node.wait_word("writer", "main", "written")?;
    let writer = node.pod("writer")?.uid;
    let device = driver.device_of("vol-1")?.context("it is staged")?;
    assert_eq!(fs::read(&device)?[..5], *b"hello");
    let staged = driver.requests::<NodeStageVolumeRequest>();
    let published = driver.requests::<NodePublishVolumeRequest>();
    let kinds = [&staged[0].volume_capability, &published[0].volume_capability];
    for kind in kinds.map(|kind| kind.as_ref().and_then(|kind| kind.access_type.clone())) {
        ensure!(matches!(kind, Some(AccessType::Block(_))), "{kind:?}");
    }
    let devices = devices_dir(&node, "kubernetes.io/csi");
    let link = root.join("pods").join(&writer).join("volumeDevices/kubernetes.io~csi/pv");
    assert_eq!(fs::read_link(&link)?, devices.join("publish/pv").join(&writer));
    assert!(devices.join("pv/dev").join(&writer).exists());
    assert!(devices.join("pv/data/vol_data.json").is_file());
    let events = node.klet_says(&["events", "writer"])?;
    let told = format!(
        "MapVolume.MapPodDevice succeeded for volume \"pv\" globalMapPath \"{}\"",
        devices.join("pv/dev").display()
    );
    ensure!(events.contains(&told) && events.contains("SuccessfulMountVolume"), "{events}");

    node.manifests.put_pod(&pod("reader", READ, true))?;
    node.wait_word("reader", "main", "hello")?;
    node.wait_word("reader", "main", "cannot write")?;
    let reader = node.pod("reader")?.uid;
    assert_eq!(driver.requests::<NodeStageVolumeRequest>().len(), 1, "once for the node");
    node.manifests.remove_pod("writer")?;
    node.wait_no_trace("writer", &writer)?;
    assert_eq!(node.run_in("reader", "main", "head -c 5 /dev/disk")?.trim(), "hello");

    assert_eq!(held(&devices), [devices.join("pv/dev").join(&reader)], "and not the writer's");

    // The last pod goes while klet is away.
    node.klet.kill9()?;
    node.manifests.remove_pod("reader")?;
    node.klet.restart()?;
    node.wait_no_trace("reader", &reader)?;
    assert_eq!(driver.device_of("vol-1")?, None, "the node has it no more");
    assert_eq!(left_in(&devices)?, Vec::<PathBuf>::new());
    assert_eq!(held(&devices), Vec::<PathBuf>::new());
    Ok(())
}

/// The devices below a directory that loop devices keep open.
fn held(dir: &Path) -> Vec<PathBuf> {
    loops_over(dir).into_iter().map(|(_, behind)| behind).collect()
}

#[test]
fn a_device_cannot_be_replaced_while_a_pod_has_it() -> Result<()> {
    let mut node = Node::start()?;
    let image = node.containerd.dir().join("disk.img");
    let disk = LoopDevice::over(&image, b"hello", 16 << 20)?;
    node.manifests.put_claim("Block", "local", json!({"path": disk.path()}))?;
    node.manifests.put_pod(&pod("owner", "echo running", false))?;
    node.wait_word("owner", "main", "running")?;
    let uid = node.pod("owner")?.uid;
    let root = node.klet.root_dir().canonicalize()?;
    let devices = root.join("plugins/kubernetes.io~local-volume/volumeDevices");
    let bound = vec![devices.join("pv").join(&uid)];
    assert_eq!(held(&devices), bound);

    // Another life of the agent finds it, and makes no second.
    let holder = loops_over(&devices);
    node.survive_kill()?;
    node.wait_says(&["volumes"], &["owner"])?;
    assert_eq!(loops_over(&devices), holder);

    // Taken away, it stays until the pod is gone.
    let device = disk.take_away()?;
    let behind = || loops_over(&image).into_iter().any(|(path, _)| path == device);
    assert!(behind(), "its name is still its own");
    assert_eq!(node.run_in("owner", "main", "head -c 5 /dev/disk")?, "hello");
    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    node.wait_no_trace("owner", &uid)?;
    assert_eq!(held(&devices), Vec::<PathBuf>::new());
    assert_eq!(left_in(&devices)?, Vec::<PathBuf>::new());
    node.eventually("the device to go", || {
        ensure!(!behind(), "it is still there");
        Ok(())
    })
}

#[test]
fn the_example_of_a_driver_runs() -> Result<()> {
    let mut node = Node::start()?;
    let root = node.klet.root_dir().canonicalize()?;
    let name = "hostpath.csi.k8s.io".to_owned();
    let mut driver = CsiDriver::start(&root, CsiOptions { name, ..CsiOptions::default() })?;
    driver.register()?;
    node.manifests.put_example("csi-block", &[])?;
    node.wait_word("csi-block", "write", "hello")?;
    let uid = node.pod("csi-block")?.uid;
    let device = driver.device_of("blocks")?.context("it is staged")?;
    assert_eq!(fs::read(&device)?[..5], *b"hello");
    node.survive_kill()?;
    assert_eq!(node.run_in("csi-block", "write", "head -c 5 /dev/disk")?, "hello");
    node.manifests.remove_example("csi-block")?;
    node.wait_no_trace("csi-block", &uid)?;
    assert_eq!(driver.device_of("blocks")?, None, "the node has it no more");
    assert_eq!(left_in(&devices_dir(&node, "kubernetes.io/csi"))?, Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn a_device_half_made_when_klet_is_killed_is_undone() -> Result<()> {
    let mut node = Node::start()?;
    let root = node.klet.root_dir().canonicalize()?;
    let mut driver = CsiDriver::start(&root, CsiOptions::default())?;
    driver.register()?;
    driver.inject(Rpc::NodePublishVolume, Fault::hang());
    node.manifests.put_claim("Block", "csi", json!({"driver": DRIVER, "volumeHandle": "vol-1"}))?;
    node.manifests.put_pod(&pod("writer", WRITE, false))?;
    node.eventually("the driver to be asked", || {
        ensure!(!driver.requests::<NodePublishVolumeRequest>().is_empty(), "not yet");
        Ok(())
    })?;
    let uid = node.pod("writer")?.uid;
    node.klet.kill9()?;
    node.manifests.remove_pod("writer")?;
    node.klet.restart()?;
    node.wait_no_trace("writer", &uid)?;
    assert_eq!(driver.device_of("vol-1")?, None);
    assert_eq!(left_in(&devices_dir(&node, "kubernetes.io/csi"))?, Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn a_device_of_the_node_is_used_as_what_it_is() -> Result<()> {
    let mut node = Node::start()?;
    let image = node.containerd.dir().join("disk.img");
    let disk = LoopDevice::over(&image, b"", 16 << 20)?;
    let local = json!({"path": disk.path()});
    node.manifests.put_pod(&pod("writer", WRITE, false))?;
    // As upstream: of the pod, and again with every try.
    let missing = "Unable to attach or mount volumes: unmounted volumes=[d], unattached \
                   volumes=[], failed to process volumes=[d]: error processing PVC default/data: \
                   failed to fetch PVC: persistentvolumeclaim \"data\" not found";
    node.wait_says(&["events", "writer"], &["FailedMount", missing])?;
    node.manifests.put_claim("Filesystem", "local", local.clone())?;
    let wrong = "volume d has volumeMode Filesystem, but is specified in volumeDevices";
    node.wait_says(&["why", "writer"], &[wrong])?;
    node.manifests.put_claim("Block", "local", local)?;
    node.wait_word("writer", "main", "written")?;
    let uid = node.pod("writer")?.uid;
    assert_eq!(fs::read(disk.path())?[..5], *b"hello");
    let devices = devices_dir(&node, "kubernetes.io~local-volume");
    assert!(devices.join("pv").join(&uid).exists());

    let mounts = json!([{"name": "d", "mountPath": "/data"}]);
    let mounter = PodManifest::script("mounter", "exec sleep 1000")
        .with("volumeMounts", mounts)
        .spec("volumes", json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]));
    node.manifests.put_pod(&mounter)?;
    let wrong = "volume d has volumeMode Block, but is specified in volumeMounts";
    node.wait_says(&["why", "mounter"], &[wrong])?;

    node.klet.kill9()?;
    node.manifests.clear()?;
    node.klet.restart()?;
    node.wait_no_trace("writer", &uid)?;
    assert_eq!(left_in(&devices)?, Vec::<PathBuf>::new());
    assert_eq!(fs::read(disk.path())?[..5], *b"hello", "what is on the disk stays");
    Ok(())
}
