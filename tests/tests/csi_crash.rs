//! A CSI driver that crashes between the node's mount of a volume and the pod's.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plugin_apis::csi::NodeStageVolumeRequest;
use serde_json::json;
use testkit::csi::{CsiDriver, CsiOptions, Fault, NodeCapability, Rpc};
use testkit::{Node, PodManifest};

const DRIVER: &str = "hostpath.klet.test";

fn claimant(name: &str, script: &str) -> PodManifest {
    PodManifest::script(name, &format!("{script}; exec sleep 1000"))
        .with("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]))
}

/// Waits until the pod is gone, and nothing of the volume is left on the node.
fn wait_unstaged(node: &Node, driver: &CsiDriver, pod: &str, uid: &str) -> Result<()> {
    node.wait_no_trace(pod, uid)?;
    let mounts = driver.mounts_of("vol-1")?;
    ensure!(mounts.is_empty(), "still mounted: {mounts:?}");
    let dir = node.klet.root_dir().join("plugins/kubernetes.io/csi").join(DRIVER);
    let left: Vec<_> = fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
    ensure!(left.is_empty(), "{} still holds {left:?}", dir.display());
    Ok(())
}

/// A driver that crashes while it publishes what it has staged, and comes back.
fn crash_after_staging(fault: Fault, loses: bool) -> Result<()> {
    let node = Node::start()?;
    let capabilities = BTreeSet::from([NodeCapability::StageUnstageVolume]);
    let options = CsiOptions { capabilities, ..CsiOptions::default() };
    let mut driver = CsiDriver::start(&node.klet.root_dir().canonicalize()?, options)?;
    driver.register()?;
    let volume = json!({"driver": DRIVER, "volumeHandle": "vol-1"});
    node.manifests.put_claim("Filesystem", "csi", volume)?;
    // The volume has data of an earlier pod.
    node.manifests.put_pod(&claimant("first", "echo first >/data/word; sync"))?;
    node.wait_pod("first", "to run", |pod| pod.is("Ready"))?;
    let word = driver.volume_dir("vol-1").join("word");
    node.eventually("it to write", || Ok(fs::metadata(&word).map(drop)?))?;
    let uid = node.pod("first")?.uid;
    node.manifests.remove_pod("first")?;
    wait_unstaged(&node, &driver, "first", &uid)?;

    driver.inject(Rpc::NodePublishVolume, fault);
    let read = "echo got $(cat /data/word); echo second >>/data/word";
    node.manifests.put_pod(&claimant("web", read))?;
    let told = "MountVolume.SetUp failed for volume \"pv\" : rpc error: code = Unavailable";
    let pod = node.wait_pod("web", "to tell of the crash", |pod| {
        let condition = pod.condition("PodReadyToStartContainers");
        condition.is_ok_and(|condition| condition.message.contains(told))
    })?;
    let uid = pod.uid;
    assert!(!driver.is_up(), "it crashed");
    let staged = driver.requests::<NodeStageVolumeRequest>().pop().context("it was staged")?;
    let staging = PathBuf::from(&staged.staging_target_path);
    let mounts = driver.mounts_of("vol-1")?;
    let published = usize::from(fault == Fault::crash().once_done());
    assert_eq!(mounts.len(), 1 + published, "{mounts:?}");
    if loses {
        // What it mounted for the node went with it, as with drivers that serve files.
        let done = Command::new("umount").arg(&staging).status()?;
        ensure!(done.success(), "umount says {done}");
    }
    driver.restart()?;
    node.wait_word("web", "main", "got first")?;
    let mounts = driver.mounts_of("vol-1")?;
    assert_eq!(mounts.len(), 2, "the node's and the pod's, each once: {mounts:?}");
    assert!(mounts.contains(&staging));
    node.eventually("it to write", || {
        ensure!(fs::read_to_string(&word)? == "first\nsecond\n", "not yet");
        Ok(())
    })?;
    node.manifests.remove_pod("web")?;
    wait_unstaged(&node, &driver, "web", &uid)?;
    assert_eq!(fs::read_to_string(&word)?, "first\nsecond\n", "the data stays");
    Ok(())
}

#[test]
fn a_driver_that_crashes_after_staging_and_loses_all_is_asked_for_all_again() -> Result<()> {
    crash_after_staging(Fault::crash(), true)
}

#[test]
fn a_driver_that_crashes_after_publishing_is_not_asked_for_two_mounts() -> Result<()> {
    crash_after_staging(Fault::crash().once_done(), false)
}
