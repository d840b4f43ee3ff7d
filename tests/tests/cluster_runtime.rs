//! What a node tells its cluster of a runtime that goes away for a while.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::cluster::condition;
use testkit::{ApiOptions, Cluster, PodManifest};

fn node(cluster: &Cluster) -> Result<Value> {
    cluster.api.object("nodes", "", cluster.node.klet.node_name()).context("no node")
}

fn ready(node: &Value) -> Result<&Value> {
    let mut all = node["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == "Ready").context("no Ready condition")
}

#[test]
fn a_runtime_may_be_away_for_half_a_minute() -> Result<()> {
    let frequency = json!({"nodeStatusUpdateFrequency": "1s"});
    let mut cluster = Cluster::start_with(ApiOptions::default(), frequency)?;
    cluster.create_pod(&PodManifest::pause("web"))?;
    cluster.wait_ready("web")?;
    let before = cluster.node.eventually("a node that is ready", || {
        let node = node(&cluster)?;
        ensure!(condition(&node, "Ready") == Some("True"), "{:#}", node["status"]);
        Ok(node)
    })?;

    // As when it is restarted for an update.
    cluster.node.containerd.kill()?;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(ready(&node(&cluster)?)?["status"], "True");
    }
    cluster.node.containerd.restart()?;
    cluster.create_pod(&PodManifest::pause("next"))?;
    cluster.wait_ready("next")?;
    let since = |node: &Value| Ok::<_, anyhow::Error>(ready(node)?["lastTransitionTime"].clone());
    assert_eq!(since(&node(&cluster)?)?, since(&before)?);

    cluster.node.containerd.kill()?;
    let limit = Duration::from_secs(60);
    let down = cluster.node.within(limit, "the node not to be ready", || {
        let node = node(&cluster)?;
        ensure!(condition(&node, "Ready") == Some("False"), "{:#}", node["status"]["conditions"]);
        Ok(node)
    })?;
    let condition_then = ready(&down)?;
    assert_eq!(condition_then["reason"], "KubeletNotReady");
    assert_eq!(condition_then["message"], "container runtime is down");
    // What it had it has not lost.
    for field in ["runtimeHandlers", "features"] {
        assert_eq!(down["status"][field], before["status"][field], "{field}");
    }
    let images = |node: &Value| node["status"]["images"].as_array().map_or(0, Vec::len);
    assert!(images(&down) >= images(&before), "{:#}", down["status"]["images"]);

    cluster.node.containerd.restart()?;
    cluster.node.eventually("the node to be ready again", || {
        let node = node(&cluster)?;
        ensure!(condition(&node, "Ready") == Some("True"), "{:#}", node["status"]["conditions"]);
        assert_eq!(ready(&node)?["message"], "kubelet is posting ready status");
        Ok(())
    })
}
