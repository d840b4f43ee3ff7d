//! A machine that is shut down while its node is part of a cluster: pods end in order,
//! the API server knows, and logind is kept waiting no longer than need be.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::login::{FakeLogind, LOGIND};
use testkit::{ApiOptions, Cluster, PodManifest};

/// Ends itself well when it is told to.
const STAYS: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

fn condition(object: &Value, kind: &str) -> Option<Value> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind).cloned()
}

/// A node that was given a quarter of a minute, and a logind that grants more.
fn start() -> Result<(Cluster, FakeLogind)> {
    let config = json!({"shutdownGracePeriod": "15s", "shutdownGracePeriodCriticalPods": "5s"});
    let mut cluster = Cluster::prepare(ApiOptions::default(), config, false)?;
    let delay = Duration::from_secs(60);
    let login = FakeLogind::start(cluster.node.containerd.dir(), delay)?;
    cluster.node.klet.set_variable("DBUS_SYSTEM_BUS_ADDRESS", &login.address());
    cluster.node.klet.launch()?;
    cluster.node.klet.wait_healthy()?;
    wait_locks(&cluster, &login, 1)?;
    Ok((cluster, login))
}

fn wait_locks(cluster: &Cluster, login: &FakeLogind, count: usize) -> Result<()> {
    cluster.node.eventually(&format!("{count} locks to be held"), || {
        let held = login.locks_held();
        ensure!(held == count, "{held} are");
        Ok(())
    })
}

fn wait_node(cluster: &Cluster, status: &str) -> Result<Value> {
    let name = cluster.node.klet.node_name();
    cluster.node.eventually(&format!("the node's Ready to be {status}"), || {
        let node = cluster.api.object("nodes", "", name).context("no node")?;
        let ready = condition(&node, "Ready").context("not told")?;
        ensure!(ready["status"] == status, "{ready:#}");
        Ok(ready)
    })
}

#[test]
fn pods_end_before_the_machine_does() -> Result<()> {
    let (mut cluster, login) = start()?;
    // One would rather stay: it is given what the shutdown leaves, not what it asks for.
    let slow = PodManifest::script("slow", "trap '' TERM; while true; do sleep 0.1; done");
    cluster.create_pod(&slow.grace(3600))?;
    let web = cluster.create_pod(&PodManifest::script("web", STAYS).grace(30))?;
    let critical = PodManifest::script("critical", STAYS)
        .spec("priorityClassName", json!("system-node-critical"))
        .spec("priority", json!(2_000_001_000));
    cluster.create_pod(&critical.grace(30))?;
    for name in ["slow", "web", "critical"] {
        cluster.wait_ready(name)?;
    }
    wait_node(&cluster, "True")?;
    login.signal(LOGIND, true)?;

    let ready = wait_node(&cluster, "False")?;
    assert_eq!(ready["reason"], "KubeletNotReady", "{ready:#}");
    assert_eq!(ready["message"], "node is shutting down", "{ready:#}");
    let mut ends = Vec::new();
    for name in ["web", "slow", "critical"] {
        let pod = cluster.wait_pod(name, "to fail", |pod| pod["status"]["phase"] == "Failed")?;
        let status = &pod["status"];
        assert_eq!(
            (&status["reason"], &status["message"]),
            (&json!("Terminated"), &json!(MESSAGE))
        );
        let target = condition(&pod, "DisruptionTarget").context("it is not told why")?;
        assert_eq!(target["status"], "True", "{target:#}");
        assert_eq!(target["reason"], "TerminationByKubelet", "{target:#}");
        assert_eq!(target["message"], MESSAGE, "{target:#}");
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        ends.push(ended["finishedAt"].as_str().context("no end")?.to_owned());
    }
    // Whoever keeps the node running ends last.
    assert!(ends[0] <= ends[1] && ends[1] <= ends[2], "{ends:?}");
    assert!(ends[0] < ends[1], "one held out, and one did not: {ends:?}");
    wait_locks(&cluster, &login, 0)?;

    // Nothing begins on a node that goes.
    cluster.create_pod(&PodManifest::script("late", STAYS))?;
    let late = cluster.wait_pod("late", "to fail", |pod| pod["status"]["phase"] == "Failed")?;
    assert_eq!(late["status"]["reason"], "NodeShutdown", "{:#}", late["status"]);

    // Not after all: the node serves again, and what has ended stays ended.
    login.signal(LOGIND, false)?;
    wait_node(&cluster, "True")?;
    wait_locks(&cluster, &login, 1)?;
    cluster.create_pod(&PodManifest::script("after", STAYS))?;
    cluster.wait_ready("after")?;
    cluster.node.klet.restart()?;
    cluster.wait_ready("after")?;
    let pod = cluster.pod("web").context("no pod")?;
    assert_eq!((&pod["metadata"]["uid"], &pod["status"]["phase"]), (&json!(web), &json!("Failed")));
    Ok(())
}

#[test]
fn only_logind_can_say_so() -> Result<()> {
    let (cluster, login) = start()?;
    cluster.create_pod(&PodManifest::script("web", STAYS))?;
    cluster.wait_ready("web")?;
    let before = cluster.node.instances()?;
    login.signal(":1.66", true)?;
    cluster.node.wait_klet_logs("somebody who is not logind")?;
    cluster.create_pod(&PodManifest::script("more", STAYS))?;
    cluster.wait_ready("more")?;
    let mut after = cluster.node.instances()?;
    after.retain(|id, _| before.contains_key(id));
    assert_eq!(after, before);
    assert_eq!(login.locks_held(), 1);
    Ok(())
}
