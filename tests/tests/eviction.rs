//! Pods that put more on the node's disks than they may: a real containerd, a small API
//! server.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use anyhow::{Context, Result, ensure};
use api_client::{Call, path};
use serde_json::{Value, json};
use testkit::cluster::condition;
use testkit::{Cluster, Node, PodManifest};

/// Writes so many KiB to a file, then waits to be ended.
fn writer(name: &str, file: &str, kib: u32) -> PodManifest {
    let script = format!(
        "trap 'exit 0' TERM; dd if=/dev/zero of={file} bs=1024 count={kib}; \
         echo written; while true; do sleep 0.1; done"
    );
    PodManifest::script(name, &script)
}

fn with_volume(pod: PodManifest, source: Value) -> PodManifest {
    pod.with("volumeMounts", json!([{"name": "data", "mountPath": "/data"}]))
        .spec("volumes", json!([{"name": "data", "emptyDir": source}]))
}

fn wait_evicted(cluster: &Cluster, name: &str, message: &str) -> Result<Value> {
    let pod = cluster.wait_pod(name, "to be evicted", |pod| pod["status"]["phase"] == "Failed")?;
    let status = &pod["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    assert_eq!(status["message"], message, "{status:#}");
    assert_eq!(condition(&pod, "DisruptionTarget"), None, "a limit is the pod's own");
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert!(ended["exitCode"].is_i64(), "how its container ended is told: {status:#}");
    Ok(pod)
}

fn events(cluster: &Cluster, name: &str) -> Result<Vec<String>> {
    let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
    let all = events["items"].as_array().into_iter().flatten();
    let all = all.filter(|event| event["involvedObject"]["name"] == name);
    let line = |event: &Value| {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", text("type"), text("reason"), text("message"))
    };
    Ok(all.map(line).collect())
}

#[test]
fn a_volume_that_is_overfilled_costs_its_pod_and_no_other() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.create_pod(&with_volume(
        writer("modest", "/data/file", 64),
        json!({"sizeLimit": "8Mi"}),
    ))?;
    cluster.create_pod(&with_volume(writer("free", "/data/file", 4096), json!({})))?;
    cluster.wait_ready("modest")?;
    cluster.wait_ready("free")?;
    let before = cluster.node.instances()?;

    let uid = cluster.create_pod(&with_volume(
        writer("greedy", "/data/file", 4096),
        json!({"sizeLimit": "1Mi"}),
    ))?;
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    wait_evicted(&cluster, "greedy", message)?;
    cluster.node.eventually("the event", || {
        let told = events(&cluster, "greedy")?;
        let expected = format!("Warning Evicted: {}", message.trim_end());
        ensure!(told.iter().any(|line| line.trim_end() == expected), "{told:?}");
        Ok(())
    })?;
    // What it wrote is given back, though nobody has deleted the pod.
    let volume = cluster.node.klet.root_dir().join("pods").join(&uid);
    let volume = volume.join("volumes/kubernetes.io~empty-dir/data");
    cluster.node.eventually("its volume to be gone", || {
        ensure!(!volume.exists(), "{} is there", volume.display());
        Ok(())
    })?;
    cluster.node.eventually("its containers to be gone", || {
        let now = cluster.node.instances()?;
        ensure!(now == before, "{now:?}");
        Ok(())
    })?;
    cluster.node.wait_says(
        &["why", "greedy"],
        &["The pod has failed: Evicted.", "exceeds the limit", "emptyDir.sizeLimit"],
    )?;
    let metrics = cluster.node_get("admin", Some("system:masters"), "/metrics")?;
    let counted = "kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1";
    assert!(metrics.body.contains(counted), "{}", metrics.body);

    // It stays so, whatever becomes of the agent.
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.wait_ready("modest")?;
    assert_eq!(cluster.node.instances()?, before, "the others are as they were");
    let pod = cluster.pod("greedy").context("it is there")?;
    assert_eq!(
        (&pod["status"]["phase"], &pod["status"]["reason"]),
        (&json!("Failed"), &json!("Evicted"))
    );
    cluster.delete_pod("greedy", None)?;
    cluster.wait_gone("greedy")
}

/// Nobody hides files by nesting them deeper than any path can name.
#[test]
fn depth_hides_nothing() -> Result<()> {
    let cluster = Cluster::start()?;
    let script = "trap 'exit 0' TERM; cd /data; i=0; \
        while [ $i -lt 3000 ]; do mkdir d && cd -P d || exit 1; i=$((i+1)); done; \
        dd if=/dev/zero of=file bs=1024 count=4096; echo written; while true; do sleep 0.1; done";
    let pod = PodManifest::script("deep", script);
    cluster.create_pod(&with_volume(pod, json!({"sizeLimit": "1Mi"})))?;
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    wait_evicted(&cluster, "deep", message)?;
    Ok(())
}

#[test]
fn a_container_may_write_as_much_as_its_limit() -> Result<()> {
    let cluster = Cluster::start()?;
    let limited = |pod: PodManifest, limit: &str| {
        pod.with("resources", json!({"limits": {"ephemeral-storage": limit}}))
    };
    cluster.create_pod(&limited(writer("modest", "/file", 64), "64Mi"))?;
    // Two containers: the whole pod may have what one of them may not.
    let other = limited(writer("greedy", "/file", 4096), "1Mi")
        .container("other", "trap 'exit 0' TERM; while true; do sleep 0.1; done");
    cluster.create_pod(&limited(other, "1Gi"))?;
    cluster.wait_ready("modest")?;
    let message = "Container main exceeded its local ephemeral storage limit \"1Mi\". ";
    wait_evicted(&cluster, "greedy", message)?;
    let modest = cluster.pod("modest").context("it is there")?;
    assert_eq!(condition(&modest, "Ready"), Some("True"));
    // The pod itself knows its limit.
    let told = json!([{"name": "MAY", "valueFrom": {"resourceFieldRef":
        {"resource": "limits.ephemeral-storage", "divisor": "1Mi"}}}]);
    let asks = PodManifest::script("asks", "echo may $MAY; exec sleep 1000").with("env", told);
    cluster.create_pod(&limited(asks, "5Mi"))?;
    cluster.wait_ready("asks")?;
    cluster.node.wait_word("asks", "main", "may 5")?;
    Ok(())
}

/// As upstream: the node cannot do without a pod of a manifest.
#[test]
fn a_pod_of_a_manifest_stays_and_is_told_of() -> Result<()> {
    let node = Node::start()?;
    let greedy = with_volume(writer("greedy", "/data/file", 4096), json!({"sizeLimit": "1Mi"}));
    node.manifests.put_pod(&greedy)?;
    node.wait_running("greedy")?;
    node.wait_says(
        &["events"],
        &[
            "StorageLimitExceeded",
            "Usage of EmptyDir volume",
            "The pod is critical and is not evicted.",
        ],
    )?;
    let pod = node.pod("greedy")?;
    assert_eq!((pod.phase.as_str(), pod.container("main")?.restarts), ("Running", 0));
    Ok(())
}
