//! A runtime that is absent, dies or hangs: klet stays healthy and catches up.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::{Node, NodeOptions, PodManifest, http};

/// klet answers, whatever its runtime does.
fn require_answers(node: &Node) -> Result<()> {
    ensure!(http::get_ok(node.klet.health_port(), "/healthz")?.trim() == "ok");
    node.klet.pods().map(drop)
}

#[test]
fn an_absent_runtime_is_waited_for() -> Result<()> {
    let mut node = Node::start_with(NodeOptions { runtime_absent: true, ..Default::default() })?;
    node.manifests.put_pod(&PodManifest::pause("early"))?;
    node.eventually("klet to report the pod it cannot start", || node.pod("early"))?;
    require_answers(&node)?;
    assert_ne!(node.pod("early")?.phase, "Running");

    node.containerd.restart()?;
    node.wait_running("early")?;
    Ok(())
}

#[test]
fn a_dead_runtime_is_survived() -> Result<()> {
    let mut node = Node::start()?;
    node.manifests.put_pod(&PodManifest::pause("old"))?;
    node.manifests.put_pod(&PodManifest::pause("leaving"))?;
    let before = node.wait_running("old")?;
    node.wait_running("leaving")?;

    node.containerd.kill()?;
    node.manifests.remove_pod("leaving")?;
    node.manifests.put_pod(&PodManifest::pause("new"))?;
    node.eventually("klet to notice the new pod", || node.pod("new"))?;
    std::thread::sleep(Duration::from_secs(3));
    require_answers(&node)?;

    node.containerd.restart()?;
    node.wait_running("new")?;
    node.wait_gone("leaving")?;
    assert_eq!(node.wait_running("old")?, before, "it ran on under its shim");
    Ok(())
}

#[test]
fn a_hung_runtime_holds_up_nothing_but_its_own_calls() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&PodManifest::pause("old"))?;
    let before = node.wait_running("old")?;

    node.containerd.pause()?;
    node.manifests.put_pod(&PodManifest::pause("new"))?;
    node.eventually("klet to notice the new pod", || node.pod("new"))?;
    for _ in 0..30 {
        require_answers(&node)?;
        std::thread::sleep(Duration::from_millis(100));
    }
    node.containerd.resume()?;
    node.wait_running("new")?;
    assert_eq!(node.wait_running("old")?, before);
    Ok(())
}
