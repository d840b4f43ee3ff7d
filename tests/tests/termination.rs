//! The grace a pod is given to end in: used when needed, never exceeded, never
//! cut short; and the signal it is asked with.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cri::v1;
use serde_json::json;
use testkit::cri_recorder::CriRecorder;
use testkit::{Node, NodeOptions, PodManifest};

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

/// Says which signal it is stopped with.
const TELLS: &str = "trap 'echo usr1; exit 0' USR1; trap 'echo term; exit 0' TERM; \
                     echo up; while true; do sleep 0.1; done";

/// A node whose requests to the runtime are taken down.
fn recorded(gates: serde_json::Value) -> Result<(Node, CriRecorder)> {
    let mut node = Node::start_with(NodeOptions { klet_absent: true, ..Default::default() })?;
    let endpoint = node.containerd.endpoint();
    let recorder = CriRecorder::start(Path::new(endpoint.trim_start_matches("unix://")))?;
    node.klet.configure(json!({
        "containerRuntimeEndpoint": recorder.endpoint(), "featureGates": gates,
    }))?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    Ok((node, recorder))
}

fn signalled(name: &str) -> PodManifest {
    PodManifest::script(name, TELLS)
        .with("lifecycle", json!({"stopSignal": "SIGUSR1"}))
        .spec("os", json!({"name": "linux"}))
        .grace(30)
}

#[test]
fn a_signal_of_ones_own() -> Result<()> {
    let (node, recorder) = recorded(json!({"ContainerStopSignals": true}))?;
    node.manifests.put_pod(&signalled("removed"))?;
    let mut probe = json!({"exec": {"command": ["test", "!", "-e", "/tmp/ill"]}});
    (probe["periodSeconds"], probe["failureThreshold"]) = (json!(1), json!(1));
    node.manifests.put_pod(&signalled("ill").with("livenessProbe", probe))?;
    node.manifests.put_pod(&PodManifest::script("usual", TELLS))?;
    let mut logs = Vec::new();
    for name in ["removed", "ill", "usual"] {
        node.wait_running(name)?;
        logs.push(node.wait_word(name, "main", "up")?);
    }
    let sent = |name: &str| recorder.sent(&format!("{name}-n1"), "main").map(|c| c.stop_signal());
    assert_eq!(sent("removed"), Some(v1::Signal::Sigusr1));
    assert_eq!(sent("ill"), Some(v1::Signal::Sigusr1));
    assert_eq!(sent("usual"), Some(v1::Signal::RuntimeDefault));

    // A runtime that knows nothing of signals tells none, and stops as the image says.
    let told = node.container_status("removed", "main")?.stop_signal();
    let knows = told == v1::Signal::Sigusr1;
    let status = node.pod("removed")?.container("main")?.stop_signal.clone();
    assert_eq!(status, if knows { "SIGUSR1" } else { "" });
    node.run_in("ill", "main", "touch /tmp/ill")?;
    for name in ["removed", "usual"] {
        node.manifests.remove_pod(name)?;
        node.wait_gone(name)?;
    }
    node.wait_pod("ill", "to be started again", |pod| {
        pod.container("main").is_ok_and(|main| main.restarts >= 1)
    })?;
    let own = if knows { "usr1" } else { "term" };
    for (log, word) in logs.iter().zip([own, own, "term"]) {
        let last = log.lines()?.pop().map(|line| line.text);
        assert_eq!(last.as_deref(), Some(word));
    }
    Ok(())
}

#[test]
fn a_signal_needs_its_gate() -> Result<()> {
    let (node, recorder) = recorded(json!({}))?;
    node.manifests.put_pod(&signalled("ungated"))?;
    let pod = node.wait_running("ungated")?;
    let sent = recorder.sent("ungated-n1", "main").context("it was made")?;
    assert_eq!(sent.stop_signal(), v1::Signal::RuntimeDefault);
    assert_eq!(pod.container("main")?.stop_signal, "");
    Ok(())
}
