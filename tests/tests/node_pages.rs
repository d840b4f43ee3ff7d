//! Pages of the node's own API that few read: `/statusz`, `/flagz`, `/checkpoint`.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use anyhow::{Context, Result};
use testkit::{ApiOptions, Cluster, PodManifest, https_client};

const MASTERS: Option<&str> = Some("system:masters");

#[test]
fn a_node_tells_since_when_it_runs() -> Result<()> {
    let gates = serde_json::json!({"featureGates": {"ComponentStatusz": true}});
    let cluster = Cluster::start_with(ApiOptions::default(), gates)?;
    let answer = cluster.node_get("admin", MASTERS, "/statusz")?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let lines: Vec<&str> = answer.body.trim().lines().collect();
    assert_eq!(lines.first(), Some(&"kubelet statusz"), "{}", answer.body);
    let field = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.with_context(|| format!("no {name} in {}", answer.body))
    };
    // It has just been started, and is of the version that the node's object names.
    assert!(field("Up")?.starts_with("0 hr 0"), "{}", answer.body);
    let name = cluster.node.klet.node_name();
    let node = cluster.node.eventually("the node to be registered", || {
        cluster.api.object("nodes", "", name).context("no node")
    })?;
    let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().context("no version")?;
    assert_eq!(version.trim_start_matches('v'), field("Binary version")?);
    assert!(field("Paths")?.contains("/healthz"), "{}", answer.body);
    assert_eq!(cluster.node_get("somebody", None, "/statusz")?.status, 403);
    let without = https_client::ask(cluster.port, "GET", "/statusz", None, None)?;
    assert_eq!(without.status, 401, "{}", without.body);
    Ok(())
}

#[test]
fn a_runtime_that_makes_no_checkpoints_says_so() -> Result<()> {
    let cluster = Cluster::start()?;
    let script = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    cluster.create_pod(&PodManifest::script("web", script))?;
    cluster.wait_ready("web")?;
    let before = cluster.node.instances()?;
    let own = cluster.api.authority().client("admin", MASTERS, jiff::Timestamp::now())?;
    let post = |path: &str| {
        let identity = Some((own.certificate.as_str(), own.key.as_str()));
        https_client::ask(cluster.port, "POST", path, identity, None)
    };
    // containerd before 2.0 does not know the call; upstream says so with 500.
    let answer = post("/checkpoint/default/web/main")?;
    let version = cluster.node.cri().block_on(async |cri| cri.version().await)?.runtime_version;
    if version.trim_start_matches('v').starts_with("1.") {
        assert_eq!(answer.status, 500, "{}", answer.body);
        let begin = "checkpointing of default/web/main failed (";
        assert!(answer.body.starts_with(begin), "{}", answer.body);
        assert!(answer.body.contains("CheckpointContainer"), "{}", answer.body);
    } else {
        assert!([200, 500].contains(&answer.status), "{}: {}", answer.status, answer.body);
    }
    for (path, says) in [
        ("/checkpoint/default/none/main", "pod does not exist"),
        ("/checkpoint/default/web/other", "container other does not exist"),
    ] {
        let answer = post(path)?;
        assert_eq!((answer.status, answer.body.trim()), (404, says), "{path}");
    }
    assert_eq!(cluster.node_get("admin", MASTERS, "/checkpoint/default/web/main")?.status, 405);
    assert_eq!(cluster.node.instances()?, before, "nobody was disturbed");
    Ok(())
}

#[test]
fn a_uid_in_a_path_means_that_pod_and_no_other() -> Result<()> {
    let cluster = Cluster::start()?;
    let script = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let first = cluster.create_pod(&PodManifest::script("web", script).grace(1))?;
    cluster.node.manifests.put_pod(&PodManifest::script("static", script))?;
    cluster.wait_ready("web")?;
    let static_name = format!("static-{}", cluster.node.klet.node_name());
    let mirror = cluster.wait_ready(&static_name)?;
    let mirror = mirror["metadata"]["uid"].as_str().context("a mirror without uid")?.to_owned();
    let own = cluster.api.authority().client("admin", MASTERS, jiff::Timestamp::now())?;
    let port = cluster.port;
    let run = |pod: &str, uid: &str| {
        let identity = Some((own.certificate.as_str(), own.key.as_str()));
        let path = format!("/run/default/{pod}{uid}/main?cmd=echo%20hi");
        let answer = https_client::ask(port, "POST", &path, identity, None)?;
        Ok::<_, anyhow::Error>((answer.status, answer.body.trim().to_owned()))
    };
    let ran = || (200, "hi".to_owned());
    assert_eq!(run("web", "")?, ran());
    assert_eq!(run("web", &format!("/{first}"))?, ran());
    assert_eq!(run(&static_name, &format!("/{mirror}"))?, ran(), "a mirror's is its pod's");
    let refused = run("web", &format!("/{mirror}"))?;
    assert_eq!((refused.0, refused.1.contains("not found")), (500, true), "{refused:?}");

    // Another pod of that name is another pod.
    cluster.delete_pod("web", None)?;
    cluster.wait_gone("web")?;
    let second = cluster.create_pod(&PodManifest::script("web", script).grace(1))?;
    cluster.wait_ready("web")?;
    let refused = run("web", &format!("/{first}"))?;
    assert_eq!((refused.0, refused.1.contains("not found")), (500, true), "{refused:?}");
    assert_eq!(run("web", &format!("/{second}"))?, ran());
    let identity = Some((own.certificate.as_str(), own.key.as_str()));
    let path = format!("/portForward/default/web/{first}");
    let answer = https_client::ask(port, "POST", &path, identity, None)?;
    assert_eq!((answer.status, answer.body.trim()), (404, "pod not found"));
    Ok(())
}
