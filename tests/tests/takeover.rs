//! Pods change hands between the upstream kubelet and klet, and no container notices.

use anyhow::{Result, ensure};
use testkit::{Node, NodeOptions, PodManifest, upstream};

/// A pod whose uid the manifest fixes: the two hash manifests differently.
fn pod(name: &str, uid: &str) -> Result<serde_json::Value> {
    let pod = PodManifest::script(name, "exec sleep 1000").container("side", "exec sleep 1000");
    let mut json: serde_json::Value = serde_json::from_str(&pod.to_json())?;
    json["metadata"]["uid"] = uid.into();
    Ok(json)
}

#[test]
fn pods_change_hands_both_ways() -> Result<()> {
    let Some(binary) = upstream::binary("pods_change_hands_both_ways") else { return Ok(()) };
    let mut node = Node::start_with(NodeOptions { klet_absent: true, ..NodeOptions::default() })?;
    node.manifests.put("a.json", pod("a", "0a")?.to_string())?;
    node.manifests.put("b.json", pod("b", "0b")?.to_string())?;

    node.klet.launch_upstream(&binary)?;
    node.klet.wait_healthy()?;
    node.wait_running("a")?;
    node.wait_running("b")?;
    let before = node.instances()?;
    ensure!(before.len() == 4, "there are {before:?}");

    for round in 0..2 {
        node.klet.kill9()?;
        node.klet.launch()?;
        node.klet.wait_healthy()?;
        let a = node.wait_running("a")?;
        node.wait_running("b")?;
        ensure!(a.containers.iter().all(|c| c.restarts == 0), "{a:?}");
        assert_eq!(node.instances()?, before, "klet took over, round {round}");

        node.klet.kill9()?;
        node.klet.launch_upstream(&binary)?;
        node.klet.wait_healthy()?;
        node.wait_running("a")?;
        node.wait_running("b")?;
        // Upstream decides within its first sync, a second after its first listing.
        std::thread::sleep(std::time::Duration::from_secs(4));
        assert_eq!(node.instances()?, before, "upstream took over, round {round}");
    }

    // Whoever holds the pods can end them.
    node.klet.kill9()?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    node.wait_running("a")?;
    node.manifests.remove("a.json")?;
    node.wait_gone("a")?;
    node.wait_running("b")?;
    Ok(())
}
