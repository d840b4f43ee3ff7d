//! Resizing a running pod: a manifest that names its uid is edited in place.

use std::fs;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Node, PodManifest, binaries, control_group};

const UID: &str = "6f1c1f9e-0001-4000-8000-000000000001";
const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";
const MIB: u64 = 1 << 20;

/// Requests of `cpu` thousandths and `memory` mebibytes, limits of twice that.
fn sizes(cpu: u64, memory: u64) -> Value {
    let list = |times: u64| json!({"cpu": format!("{}m", times * cpu), "memory": format!("{}Mi", times * memory)});
    json!({"requests": list(1), "limits": list(2)})
}

fn sized(script: &str, cpu: u64, memory: u64) -> PodManifest {
    PodManifest::script("web", script).uid(UID).with("resources", sizes(cpu, memory))
}

fn klet(node: &Node, args: &[&str]) -> Result<String> {
    let mut command = Command::new(binaries::klet_binary()?);
    command.args(args).env("KLET_SOCKET", node.klet.root_dir().join("klet.sock"));
    let Output { status, stdout, stderr } = command.output()?;
    let (stdout, stderr) = (String::from_utf8(stdout)?, String::from_utf8(stderr)?);
    ensure!(status.success(), "klet {args:?} ended with {status}: {stdout}{stderr}");
    Ok(stdout)
}

/// The status of `web` as JSON.
fn status(node: &Node) -> Result<Value> {
    let list: Value = serde_json::from_str(&klet(node, &["pods", "-o", "json"])?)?;
    let items = list["items"].as_array().context("no items")?;
    let web = items.iter().find(|pod| pod["metadata"]["name"] == "web-n1");
    Ok(web.context("no web-n1")?["status"].clone())
}

fn condition(status: &Value, kind: &str) -> Option<Value> {
    let all = status["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind).cloned()
}

/// Waits until the kernel and the status have this size, and nothing is under way.
fn wait_size(node: &Node, cpu: u64, memory: u64) -> Result<()> {
    let pod = format!("{}/kubepods/burstable/pod{UID}", node.containerd.cgroup_root());
    node.eventually(&format!("web to have {cpu}m and {memory}Mi"), || {
        let id = node.pod("web")?.container("main")?.id.clone();
        let wanted = (2 * memory * MIB, 200 * cpu);
        for path in [pod.clone(), format!("{pod}/{id}")] {
            let found = control_group::limits(&path)?;
            ensure!(found == wanted, "{path} has {found:?}, not {wanted:?}");
        }
        let status = status(node)?;
        let container = &status["containerStatuses"][0];
        let wanted = sizes(cpu, memory);
        ensure!(container["resources"] == wanted, "status says {}", container["resources"]);
        ensure!(
            container["allocatedResources"] == wanted["requests"],
            "allocated are {}",
            container["allocatedResources"]
        );
        for kind in ["PodResizePending", "PodResizeInProgress"] {
            let found = condition(&status, kind);
            ensure!(found.is_none(), "{kind} is {found:?}");
        }
        Ok(())
    })
}

#[test]
fn in_place() -> Result<()> {
    let mut node = Node::start()?;
    node.manifests.put_pod(&sized(STAYS, 100, 24))?;
    node.wait_running("web")?;
    wait_size(&node, 100, 24)?;
    let before = node.instances()?;
    for (cpu, memory) in [(200, 32), (50, 24), (150, 48)] {
        node.manifests.put_pod(&sized(STAYS, cpu, memory))?;
        wait_size(&node, cpu, memory)?;
    }
    let events = klet(&node, &["events"])?;
    for reason in ["ResizeStarted", "ResizeCompleted"] {
        ensure!(events.contains(reason), "{reason} is missing from:\n{events}");
    }
    // What was given outlives the agent, and so does an edit made meanwhile.
    node.klet.kill9()?;
    node.manifests.put_pod(&sized(STAYS, 200, 24))?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    wait_size(&node, 200, 24)?;
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let text = fs::read_to_string(node.klet.root_dir().join(file))?;
        let state: Value = serde_json::from_str(&text)?;
        let data: Value = serde_json::from_str(state["data"].as_str().context("no data")?)?;
        let main = &data["entries"][UID]["ContainerResources"]["main"];
        assert_eq!(*main, sizes(200, 24), "{file}");
    }
    assert_eq!(node.instances()?, before, "nothing was restarted");
    Ok(())
}

#[test]
fn a_policy_restarts() -> Result<()> {
    let node = Node::start()?;
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let pod = |cpu, memory| sized(STAYS, cpu, memory).with("resizePolicy", policy.clone());
    node.manifests.put_pod(&pod(100, 24))?;
    node.wait_running("web")?;
    wait_size(&node, 100, 24)?;
    let before = node.pod("web")?.container("main")?.clone();
    node.manifests.put_pod(&pod(200, 24))?;
    wait_size(&node, 200, 24)?;
    assert_eq!(node.pod("web")?.container("main")?.id, before.id, "processors need no restart");
    node.manifests.put_pod(&pod(200, 32))?;
    wait_size(&node, 200, 32)?;
    let after = node.pod("web")?.container("main")?.clone();
    assert_ne!(after.id, before.id);
    assert_eq!(after.restarts, 1);
    let events = klet(&node, &["events"])?;
    ensure!(events.contains("resize requires restart"), "{events}");
    Ok(())
}

#[test]
fn what_does_not_fit_is_reported() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&sized(STAYS, 100, 24))?;
    node.wait_running("web")?;
    wait_size(&node, 100, 24)?;
    let before = node.instances()?;
    node.manifests.put_pod(&sized(STAYS, 10_000_000, 24))?;
    node.eventually("the resize to be deferred", || {
        let pending = condition(&status(&node)?, "PodResizePending").context("not pending")?;
        let text = pending["message"].as_str().unwrap_or_default();
        ensure!(pending["reason"] == "Deferred", "{pending}");
        ensure!(text.contains("enough resource: cpu, requested: 10000000"), "{pending}");
        Ok(())
    })?;
    let why = klet(&node, &["why", "web"])?;
    ensure!(why.contains("no room"), "{why}");
    // A class cannot change.
    let guaranteed = json!({"limits": {"cpu": "200m", "memory": "48Mi"}});
    let pod = PodManifest::script("web", STAYS).uid(UID).with("resources", guaranteed);
    node.manifests.put_pod(&pod)?;
    node.eventually("the resize to be refused", || {
        let pending = condition(&status(&node)?, "PodResizePending").context("not pending")?;
        ensure!(pending["reason"] == "Infeasible", "{pending}");
        Ok(())
    })?;
    ensure!(klet(&node, &["events"])?.contains("ResizeInfeasible"), "no event");
    node.manifests.put_pod(&sized(STAYS, 100, 24))?;
    wait_size(&node, 100, 24)?;
    assert_eq!(node.instances()?, before, "the pod ran on");
    Ok(())
}

#[test]
fn memory_in_use_is_not_taken_away() -> Result<()> {
    let node = Node::start()?;
    let holds =
        "x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo up; while true; do sleep 1; done";
    node.manifests.put_pod(&sized(holds, 100, 64))?;
    node.wait_running("web")?;
    node.wait_word("web", "main", "up")?;
    let before = node.instances()?;
    node.manifests.put_pod(&sized(holds, 100, 5))?;
    node.eventually("the resize to fail", || {
        let progress = condition(&status(&node)?, "PodResizeInProgress").context("none")?;
        ensure!(progress["reason"] == "Error", "{progress}");
        let text = progress["message"].as_str().unwrap_or_default();
        ensure!(text.starts_with("cannot decrease memory limits"), "{progress}");
        Ok(())
    })?;
    ensure!(klet(&node, &["events"])?.contains("ResizeError"), "no event");
    ensure!(klet(&node, &["why", "web"])?.contains("below what is used now"), "why is silent");
    node.manifests.put_pod(&sized(holds, 100, 48))?;
    wait_size(&node, 100, 48)?;
    assert_eq!(node.instances()?, before, "the container ran on");
    Ok(())
}
