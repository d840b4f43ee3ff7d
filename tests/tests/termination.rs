//! The grace a pod is given to end in: used when needed, never exceeded, never
//! cut short.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cri::v1;
use testkit::{Node, PodManifest};

/// Removes the pod and tells how long its container ran on.
fn time_removal(node: &Node, name: &str) -> Result<Duration> {
    node.manifests.remove_pod(name)?;
    let start = Instant::now();
    node.eventually(&format!("{name} to end"), || {
        let running = v1::ContainerState::ContainerRunning as i32;
        let (_, containers) = node.in_runtime(name)?;
        ensure!(containers.iter().all(|found| found.state != running), "{containers:?}");
        Ok(start.elapsed())
    })
}

#[test]
fn grace_is_honoured() -> Result<()> {
    let node = Node::start()?;
    let slow = "trap 'sleep 3; exit 0' TERM; while true; do sleep 0.1; done";
    let deaf = "trap '' TERM; while true; do sleep 0.1; done";
    node.manifests.put_pod(&PodManifest::script("slow", slow).grace(120))?;
    node.manifests.put_pod(&PodManifest::script("deaf", deaf).grace(4))?;
    node.manifests.put_pod(&PodManifest::pause("prompt").grace(120))?;
    for name in ["slow", "deaf", "prompt"] {
        node.wait_running(name)?;
    }

    let took = time_removal(&node, "prompt")?;
    assert!(took < Duration::from_secs(60), "a container that ends at once took {took:?}");
    let took = time_removal(&node, "slow")?;
    assert!(took >= Duration::from_secs(3), "it was killed after {took:?}, before it was done");
    assert!(took < Duration::from_secs(60), "it ended only after {took:?}");
    let took = time_removal(&node, "deaf")?;
    assert!(took >= Duration::from_secs(4), "it was killed after {took:?}, within its grace");
    assert!(took < Duration::from_secs(60), "it was killed only after {took:?}");
    Ok(())
}

#[test]
fn a_slow_pod_holds_up_no_other() -> Result<()> {
    let node = Node::start()?;
    let deaf = "trap '' TERM; while true; do sleep 0.1; done";
    node.manifests.put_pod(&PodManifest::script("deaf", deaf).grace(60))?;
    node.wait_running("deaf")?;
    node.manifests.remove_pod("deaf")?;
    let start = Instant::now();
    node.manifests.put_pod(&PodManifest::pause("next"))?;
    node.wait_running("next")?;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(45), "a pod took {took:?} to start beside a dying one");
    assert!(!node.in_runtime("deaf")?.1.is_empty(), "the dying one still has its grace");
    Ok(())
}

#[test]
fn a_longer_grace_comes_too_late() -> Result<()> {
    let node = Node::start()?;
    let deaf = "trap '' TERM; while true; do sleep 0.1; done";
    let stays = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let uid = "7c0f2f9c-91f1-4b3a-8a52-5f1de1b6a0d3";
    node.manifests.put_pod(&PodManifest::script("back", deaf).uid(uid).grace(4))?;
    let old = node.wait_running("back")?.container("main")?.id.clone();
    node.manifests.remove_pod("back")?;
    let start = Instant::now();
    node.wait_says(&["events"], &["Killing default/back-n1 [main] Stopping container main"])?;
    // It is wanted again, with more time than anybody waits for its end.
    node.manifests.put_pod(&PodManifest::script("back", stays).uid(uid).grace(3600))?;
    let took = node.eventually("the first to end and the second to run", || {
        let pod = node.wait_running("back")?;
        ensure!(pod.container("main")?.id != old, "the first still runs: {pod:?}");
        Ok(start.elapsed())
    })?;
    assert!(took >= Duration::from_secs(4), "it was killed after {took:?}, within its grace");
    assert!(took < Duration::from_secs(60), "it was killed only after {took:?}");
    Ok(())
}
