//! Pods that a node refuses, with upstream's reasons and words; a critical pod for which
//! another has to go. A real containerd, a small API server.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use serde_json::{Value, json};
use testkit::{Cluster, Node, PodManifest};

const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";

fn stays(name: &str) -> PodManifest {
    PodManifest::script(name, STAYS).grace(5)
}

fn asks(pod: PodManifest, requests: Value) -> PodManifest {
    pod.with("resources", json!({"requests": requests}))
}

/// What pods may have of the node, in thousandths of processors.
fn allocatable_cpu(cluster: &Cluster) -> Result<u64> {
    cluster.node.eventually("the node's object", || {
        let node = cluster.api.object("nodes", "", cluster.node.klet.node_name());
        let text = node.context("no node")?["status"]["allocatable"]["cpu"].clone();
        let text = text.as_str().context("no cpu")?.to_owned();
        match text.strip_suffix('m') {
            Some(milli) => Ok(milli.parse()?),
            None => Ok(text.parse::<u64>()? * 1000),
        }
    })
}

/// Waits until the server knows that a pod was refused, and that it never ran.
fn refused(cluster: &Cluster, name: &str, reason: &str, message: &str) -> Result<()> {
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    let pod = cluster.wait_pod(name, "to be refused", failed)?;
    let status = &pod["status"];
    assert_eq!(status["reason"], reason, "{status:#}");
    assert_eq!(status["message"], format!("Pod was rejected: {message}"));
    assert!(status["containerStatuses"].is_null(), "{status:#}");
    let (sandboxes, containers) = cluster.node.in_runtime(name)?;
    assert!(sandboxes.is_empty() && containers.is_empty());
    let uid = pod["metadata"]["uid"].clone();
    cluster.node.eventually("the event", || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let mut all = events["items"].as_array().into_iter().flatten();
        let event =
            all.find(|event| event["involvedObject"]["uid"] == uid && event["reason"] == reason);
        let event = event.with_context(|| format!("{events:#}"))?;
        ensure!(event["message"] == message && event["type"] == "Warning", "{event:#}");
        Ok(())
    })
}

#[test]
fn pods_that_a_node_has_no_use_for() -> Result<()> {
    let cluster = Cluster::start()?;
    let cpu = allocatable_cpu(&cluster)?;
    let (much, used) = (cpu + 1, 100);
    // What listens in the host's network has its port there.
    let host_port = |pod: PodManifest| {
        let pod = pod.spec("hostNetwork", json!(true));
        pod.with("ports", json!([{"containerPort": 39_471}]))
    };
    let first = host_port(asks(stays("first"), json!({"cpu": format!("{used}m")})));
    cluster.create_pod(&first)?;
    cluster.wait_ready("first")?;

    cluster.create_pod(&asks(stays("big"), json!({"cpu": format!("{much}m")})))?;
    refused(
        &cluster,
        "big",
        "OutOfcpu",
        &format!(
            "Node didn't have enough resource: cpu, requested: {much}, used: {used}, capacity: {cpu}"
        ),
    )?;
    cluster.create_pod(&stays("elsewhere").spec("nodeSelector", json!({"zone": "moon"})))?;
    let affinity =
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    refused(&cluster, "elsewhere", "NodeAffinity", affinity)?;
    let ports = json!([{"containerPort": 80, "hostPort": 39_471}]);
    cluster.create_pod(&stays("second").with("ports", ports))?;
    refused(
        &cluster,
        "second",
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    )?;
    let sysctls = json!({"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]});
    cluster.create_pod(&stays("tuned").spec("securityContext", sysctls))?;
    refused(
        &cluster,
        "tuned",
        "SysctlForbidden",
        "forbidden sysctl: \"kernel.msgmax\" not allowlisted",
    )?;
    let why = cluster.node.klet_says(&["why", "elsewhere"])?;
    assert!(why.contains("The node refused the pod: NodeAffinity"), "{why}");
    assert!(why.contains("--node-labels"), "{why}");

    // A label that has just been given counts; the port is free once its pod is gone.
    let node = path("api/v1", "", &["nodes", cluster.node.klet.node_name()]);
    let label = json!({"metadata": {"labels": {"zone": "moon"}}});
    cluster.api.ask(Call::patch(&node, Patch::Strategic, label))?;
    cluster.create_pod(&stays("there").spec("nodeSelector", json!({"zone": "moon"})))?;
    cluster.wait_ready("there")?;
    cluster.delete_pod("first", None)?;
    cluster.wait_gone("first")?;
    cluster.create_pod(&host_port(stays("third")))?;
    cluster.wait_ready("third")?;
    let metrics = cluster.node_get("admin", Some("system:masters"), "/metrics")?;
    for line in [
        "kubelet_admission_rejections_total{reason=\"OutOfcpu\"} 1",
        "kubelet_admission_rejections_total{reason=\"SysctlForbidden\"} 1",
        "kubelet_admission_rejections_total{reason=\"Other\"} 2",
    ] {
        assert!(metrics.body.contains(line), "{line} is missing in {}", metrics.body);
    }
    Ok(())
}

#[test]
fn what_ran_before_the_agent_is_judged_again() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let cpu = allocatable_cpu(&cluster)?;
    let node = path("api/v1", "", &["nodes", cluster.node.klet.node_name()]);
    let label = |value: Value| json!({"metadata": {"labels": {"zone": value}}});
    cluster.api.ask(Call::patch(&node, Patch::Strategic, label(json!("moon"))))?;
    let most = format!("{}m", cpu - 100);
    cluster.create_pod(&asks(stays("large"), json!({"cpu": most})))?;
    cluster.create_pod(&stays("moon").spec("nodeSelector", json!({"zone": "moon"})))?;
    cluster.wait_ready("large")?;
    cluster.wait_ready("moon")?;
    let before = cluster.node.instances()?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.create_pod(&stays("later"))?;
    cluster.wait_ready("later")?;
    let after = cluster.node.instances()?;
    assert!(before.iter().all(|(id, one)| after.get(id) == Some(one)), "{before:?} {after:?}");
    cluster.node.klet.kill9()?;
    cluster.api.ask(Call::patch(&node, Patch::Strategic, label(Value::Null)))?;
    cluster.node.klet.restart()?;
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    let pod = cluster.wait_pod("moon", "to be refused", failed)?;
    assert_eq!(pod["status"]["reason"], "NodeAffinity", "{:#}", pod["status"]);
    cluster.node.eventually("nothing of it to run", || {
        let (sandboxes, _) = cluster.node.in_runtime("moon")?;
        ensure!(sandboxes.iter().all(|one| one.state != 0), "{sandboxes:?}");
        Ok(())
    })?;
    cluster.wait_ready("large")?;
    Ok(())
}

#[test]
fn a_critical_pod_has_room_made_for_it() -> Result<()> {
    let cluster = Cluster::start()?;
    let cpu = allocatable_cpu(&cluster)?;
    let half = |times: u64| json!({"cpu": format!("{}m", cpu * times / 4)});
    cluster.create_pod(&asks(stays("large"), half(2)))?;
    cluster.create_pod(&asks(stays("small"), half(1)))?;
    cluster.wait_ready("large")?;
    cluster.wait_ready("small")?;
    let critical = asks(stays("critical"), half(2)).spec("priority", json!(2_000_000_000));
    cluster.create_pod(&critical)?;
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    let pod = cluster.wait_pod("small", "to make room", failed)?;
    let status = &pod["status"];
    assert_eq!(status["reason"], "Preempting", "{status:#}");
    assert_eq!(status["message"], "Preempted in order to admit critical pod");
    let conditions = status["conditions"].as_array().context("no conditions")?;
    let disrupted = conditions.iter().find(|one| one["type"] == "DisruptionTarget");
    let disrupted = disrupted.with_context(|| format!("{status:#}"))?;
    assert_eq!(disrupted["reason"], "TerminationByKubelet");
    assert_eq!(disrupted["message"], "Pod was preempted by Kubelet to accommodate a critical pod.");
    cluster.wait_ready("critical")?;
    assert_eq!(cluster.pod("large").context("no pod")?["status"]["phase"], "Running");
    cluster.node.eventually("the metric", || {
        let metrics = cluster.node_get("admin", Some("system:masters"), "/metrics")?.body;
        ensure!(metrics.contains("kubelet_preemptions{preemption_signal=\"cpu\"} 1"), "{metrics}");
        Ok(())
    })
}

/// A node of its own judges by what the machine has.
#[test]
fn a_manifest_that_asks_for_another_node() -> Result<()> {
    let node = Node::start_configured(json!({"maxPods": 2}))?;
    let elsewhere = stays("elsewhere").spec("nodeSelector", json!({"zone": "moon"}));
    node.manifests.put_pod(&elsewhere)?;
    node.wait_says(
        &["why", "elsewhere"],
        &["The node refused the pod: NodeAffinity", "--node-labels"],
    )?;
    for name in ["one", "two"] {
        node.manifests.put_pod(&stays(name))?;
        node.wait_running(name)?;
    }
    node.manifests.put_pod(&stays("three"))?;
    node.wait_says(
        &["why", "three"],
        &["The node refused the pod: UnexpectedAdmissionError", "(res: pods, q: 1)"],
    )?;
    let (sandboxes, _) = node.in_runtime("three")?;
    assert!(sandboxes.is_empty());
    // A refused pod holds nothing: with one of the two gone there is room again.
    node.manifests.remove_pod("one")?;
    node.wait_gone("one")?;
    node.manifests.put_pod(&stays("four"))?;
    node.wait_running("four").map(drop)
}
