//! A node of a cluster: registration, pods from the API server, statuses, objects,
//! tokens, events, mirrors, absence of the server. A real containerd, real sockets.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use serde_json::{Value, json};
use testkit::cluster::condition;
use testkit::{ApiOptions, Cluster, PodManifest};

/// Says one word, and stays until it is told to end.
fn talker(name: &str, word: &str) -> PodManifest {
    let script = format!("trap 'exit 0' TERM; echo {word}; while true; do sleep 0.1; done");
    PodManifest::script(name, &script)
}

fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(-1)
}

#[test]
fn a_node_registers_and_stays_alive() -> Result<()> {
    let cluster = Cluster::start_with(
        ApiOptions::default(),
        json!({"nodeLeaseDurationSeconds": 4, "maxPods": 42,
            "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}),
    )?;
    let name = cluster.node.klet.node_name().to_owned();
    let node = cluster.node.eventually("the node to be ready", || {
        let node = cluster.api.object("nodes", "", &name).context("no node")?;
        ensure!(condition(&node, "Ready") == Some("True"), "{:#}", node["status"]["conditions"]);
        Ok(node)
    })?;
    let status = &node["status"];
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], name.as_str());
    assert_eq!(node["spec"]["taints"][0]["key"], "a");
    assert_eq!(status["capacity"]["pods"], "42");
    assert!(
        status["nodeInfo"]["containerRuntimeVersion"]
            .as_str()
            .is_some_and(|version| { version.starts_with("containerd://") })
    );
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind), Some("False"), "{kind}");
    }
    assert!(status["addresses"].as_array().is_some_and(|all| all.len() >= 2), "{status:#}");
    let renewed = || {
        let lease = cluster.api.object("leases.coordination.k8s.io", "kube-node-lease", &name);
        lease.map(|lease| lease["spec"]["renewTime"].clone()).context("no lease")
    };
    let first = cluster.node.eventually("a lease", renewed)?;
    cluster.node.eventually("the lease to be renewed", || {
        ensure!(renewed()? != first, "it is not");
        Ok(())
    })
}

#[test]
fn a_pod_lives_and_is_deleted() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let uid = cluster.create_pod(&talker("web", "hello").grace(20))?;
    let pod = cluster.wait_ready("web")?;
    let status = &pod["status"];
    assert_eq!(status["phase"], "Running");
    assert!(status["podIP"].is_string() && status["hostIP"].is_string(), "{status:#}");
    assert!(status["containerStatuses"][0]["containerID"].is_string());
    cluster.node.eventually("events", || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let all: Vec<&str> = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|event| event["involvedObject"]["uid"] == uid.as_str())
            .filter_map(|event| event["reason"].as_str())
            .collect();
        for reason in ["Created", "Started"] {
            ensure!(all.contains(&reason), "{reason} is missing in {all:?}");
        }
        Ok(())
    })?;

    // Neither the agent's death nor the server's absence is the containers' concern.
    let before = cluster.node.instances()?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.wait_ready("web")?;
    cluster.api.pause()?;
    std::thread::sleep(Duration::from_secs(3));
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(cluster.node.instances()?, before, "without its server the node left all as it was");
    cluster.api.resume()?;
    let pod = cluster.wait_ready("web")?;
    assert_eq!(restarts(&pod), 0);
    assert_eq!(cluster.node.instances()?, before);

    cluster.delete_pod("web", None)?;
    let end = cluster.node.eventually("the end to be told", || match cluster.pod("web") {
        None => Ok(None),
        Some(pod) if pod["status"]["phase"] == "Succeeded" => Ok(Some(pod)),
        Some(pod) => anyhow::bail!("{:#}", pod["status"]),
    })?;
    if let Some(pod) = end {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["exitCode"], 0, "{:#}", pod["status"]);
    }
    cluster.wait_gone("web")?;
    cluster.node.eventually("nothing of it to be left", || {
        let (sandboxes, containers) = cluster.node.in_runtime("web")?;
        ensure!(sandboxes.is_empty() && containers.is_empty(), "{sandboxes:?} {containers:?}");
        let dir = cluster.node.klet.root_dir().join("pods").join(&uid);
        ensure!(!dir.exists(), "{} is there", dir.display());
        Ok(())
    })
}

#[test]
fn a_pod_that_ends_says_how_and_does_not_run_again() -> Result<()> {
    let mut cluster = Cluster::start()?;
    for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
        let pod = PodManifest::script(name, &format!("exit {code}")).restart("Never");
        cluster.create_pod(&pod)?;
        let pod = cluster.wait_pod(name, "to end", |pod| pod["status"]["phase"] == phase)?;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["exitCode"], code, "{name}");
    }
    let told = |cluster: &Cluster| {
        let status = cluster.pod("bad").context("no pod")?["status"].clone();
        anyhow::Ok((status["phase"].clone(), status["containerStatuses"].clone()))
    };
    let before = told(&cluster)?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.create_pod(&talker("later", "x"))?;
    cluster.wait_ready("later")?;
    assert_eq!(told(&cluster)?, before);
    cluster.delete_pod("bad", Some(30))?;
    cluster.wait_gone("bad")
}

#[test]
fn configuration_comes_from_the_server_and_changes_with_it() -> Result<()> {
    let cluster = Cluster::start_with(
        ApiOptions { mounts_tokens: true, ..ApiOptions::default() },
        json!({"syncFrequency": "10s"}),
    )?;
    let script = "echo var $WORD; cat /etc/map/key; \
                  cat /var/run/secrets/kubernetes.io/serviceaccount/token | wc -c; \
                  trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let pod = PodManifest::script("web", script)
        .with(
            "env",
            json!([{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "w"}}}]),
        )
        .with("volumeMounts", json!([{"name": "map", "mountPath": "/etc/map"}]))
        .spec("volumes", json!([{"name": "map", "configMap": {"name": "m"}}]));
    cluster.create_pod(&pod)?;
    cluster.node.eventually("the pod to say what it waits for", || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let all = events["items"].to_string();
        ensure!(all.contains("configmap \\\"m\\\" not found"), "{all}");
        Ok(())
    })?;
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"key": "one\n"}}))?;
    cluster.create("secrets", json!({"metadata": {"name": "s"}, "data": {"w": "c2VjcmV0"}}))?;
    cluster.wait_ready("web")?;
    cluster.node.wait_word("web", "main", "var secret")?;
    cluster.node.wait_word("web", "main", "one")?;
    let place = path("api/v1", "default", &["configmaps", "m"]);
    cluster.api.ask(Call::patch(&place, Patch::Merge, json!({"data": {"key": "two\n"}})))?;
    cluster.node.eventually("the file to change", || {
        let text = cluster.node.run_in("web", "main", "cat /etc/map/key")?;
        ensure!(text.trim() == "two", "it says {text:?}");
        Ok(())
    })?;
    // Another pod's coming changes nothing for this one.
    cluster.create_pod(&talker("other", "x"))?;
    cluster.wait_ready("other")?;
    let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
    assert!(!events.to_string().contains("it was not given"), "{:#}", events["items"]);
    let token = "cat /var/run/secrets/kubernetes.io/serviceaccount/token";
    let token = cluster.node.run_in("web", "main", token)?;
    let review = json!({"spec": {"token": token.trim()}});
    let review =
        cluster.api.ask(Call::post("/apis/authentication.k8s.io/v1/tokenreviews", review))?;
    assert_eq!(review["status"]["authenticated"], true, "{review:#}");
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:default");
    Ok(())
}

#[test]
fn static_pods_are_shown_at_the_server() -> Result<()> {
    let cluster = Cluster::start()?;
    cluster.node.manifests.put_pod(&talker("fixed", "one"))?;
    let name = format!("fixed-{}", cluster.node.klet.node_name());
    let mirror = cluster.wait_ready(&name)?;
    let uid = mirror["metadata"]["uid"].clone();
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    // Whoever deletes the copy does not end the pod.
    let before = cluster.node.instances()?;
    cluster.delete_pod(&name, Some(0))?;
    cluster.wait_pod(&name, "to be shown again", |pod| {
        pod["metadata"]["uid"] != uid && condition(pod, "Ready") == Some("True")
    })?;
    assert_eq!(cluster.node.instances()?, before);
    cluster.node.manifests.remove_pod("fixed")?;
    cluster.wait_gone(&name)
}

#[test]
fn what_this_release_cannot_run_is_refused() -> Result<()> {
    let cluster = Cluster::start()?;
    let pod =
        talker("odd", "x").spec("volumes", json!([{"name": "v", "gitRepo": {"repository": "x"}}]));
    cluster.create_pod(&pod)?;
    let pod = cluster.wait_pod("odd", "to fail", |pod| pod["status"]["phase"] == "Failed")?;
    assert_eq!(pod["status"]["reason"], "Unsupported");
    let message = pod["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.volumes[0].gitRepo"), "{message}");
    Ok(())
}

#[test]
fn the_nodes_own_api_asks_who_and_whether() -> Result<()> {
    let cluster = Cluster::start()?;
    cluster.create_pod(&talker("web", "hello"))?;
    cluster.wait_ready("web")?;
    cluster.node.wait_word("web", "main", "hello")?;
    let log = "/containerLogs/default/web/main";
    let masters = Some("system:masters");
    let answer = cluster.node_get("admin", masters, log)?;
    assert_eq!((answer.status, answer.body.trim()), (200, "hello"));
    let answer = cluster.node_get("admin", masters, "/containerLogs/default/web/other")?;
    assert_eq!(answer.status, 404, "{}", answer.body);
    let pods: Value = serde_json::from_str(&cluster.node_get("admin", masters, "/pods")?.body)?;
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    let running = cluster.node_get("admin", masters, "/runningpods/")?;
    assert!(running.body.contains("\"web\""), "{}", running.body);
    let config = cluster.node_get("admin", masters, "/configz")?;
    assert!(config.body.contains("\"clientCAFile\""), "{}", config.body);
    let summary = cluster.node_get("admin", masters, "/stats/summary")?;
    let summary: Value = serde_json::from_str(&summary.body).context(summary.body)?;
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"]["name"], "web", "{summary:#}");
    for used in [&pod["containers"][0]["memory"], &pod["memory"], &summary["node"]["memory"]] {
        assert!(used["workingSetBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{summary:#}");
    }
    assert!(summary["node"]["fs"]["capacityBytes"].as_u64().is_some_and(|bytes| bytes > 0));
    let metrics = cluster.node_get("admin", masters, "/metrics/resource")?;
    let series =
        "container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"web\"}";
    assert!(metrics.body.contains(series), "{}", metrics.body);
    // The cluster knows this one, and gives it nothing.
    let answer = cluster.node_get("somebody", None, log)?;
    assert_eq!(answer.status, 403, "{}", answer.body);
    let answer = testkit::https_client::ask(cluster.port, "GET", log, None, None)?;
    assert_eq!(answer.status, 401, "{}", answer.body);
    let answer = testkit::https_client::ask(cluster.port, "GET", log, None, Some("odd"))?;
    assert_eq!(answer.status, 401, "{}", answer.body);
    let issued = cluster.api.authority().client("admin", masters, jiff::Timestamp::now())?;
    let identity = Some((issued.certificate.as_str(), issued.key.as_str()));
    let run = "/run/default/web/main?cmd=echo%20done";
    let answer = testkit::https_client::ask(cluster.port, "POST", run, identity, None)?;
    assert_eq!((answer.status, answer.body.trim()), (200, "done"));
    Ok(())
}
