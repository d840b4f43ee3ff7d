//! Pods of an API server that change while they run, and the node they run on:
//! ephemeral containers, readiness gates, classes of runtimes, the node's own facts.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use cri::v1;
use serde_json::{Value, json};
use testkit::image::{BUSYBOX, PAUSE};
use testkit::{Cluster, PodManifest};

const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";

fn condition(pod: &Value, kind: &str) -> Option<Value> {
    let all = pod["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind).cloned()
}

fn wait_event(cluster: &Cluster, words: &str) -> Result<()> {
    cluster.node.eventually(&format!("an event with {words:?}"), || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let mut messages = events["items"].as_array().into_iter().flatten();
        let found = messages
            .any(|event| event["message"].as_str().is_some_and(|message| message.contains(words)));
        ensure!(found, "{:#}", events["items"]);
        Ok(())
    })
}

#[test]
fn an_ephemeral_container_joins_and_stays() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.create_pod(&PodManifest::script("web", STAYS))?;
    let first = cluster.wait_ready("web")?;
    let add = |name: &str, script: &str| {
        let place = path("api/v1", "default", &["pods", "web", "ephemeralcontainers"]);
        let container = json!({"name": name, "image": BUSYBOX, "targetContainerName": "main",
            "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script]});
        let change = json!({"spec": {"ephemeralContainers": [container]}});
        cluster.api.ask(Call::patch(&place, Patch::Strategic, change))
    };
    add("debug", "cat /proc/1/cmdline | tr '\\0' ' '; echo; while true; do sleep 0.1; done")?;
    let running = |pod: &Value| {
        let all = pod["status"]["ephemeralContainerStatuses"].as_array().cloned();
        all.and_then(|all| all.into_iter().find(|one| one["name"] == "debug"))
            .filter(|one| one["state"]["running"].is_object())
    };
    let pod = cluster.wait_pod("web", "to be debugged", |pod| running(pod).is_some())?;
    let debug = running(&pod).context("not running")?;
    assert_eq!(debug["restartCount"], 0, "{debug:#}");
    assert_eq!(debug["image"], BUSYBOX, "{debug:#}");
    assert_eq!(pod["status"]["containerStatuses"], first["status"]["containerStatuses"]);
    // It sees the processes of the container that it is to debug.
    cluster.node.wait_word("web", "debug", &format!("/bin/sh -c {STAYS} "))?;

    // One that ends is not begun again, and nobody else notices.
    add("short", "exit 3")?;
    let ended = |pod: &Value| {
        let all = pod["status"]["ephemeralContainerStatuses"].as_array().cloned();
        all.and_then(|all| all.into_iter().find(|one| one["name"] == "short"))
            .filter(|one| one["state"]["terminated"]["exitCode"] == 3)
    };
    cluster.wait_pod("web", "to have one that ended", |pod| ended(pod).is_some())?;
    let before = cluster.node.eventually("the runtime to know it too", || {
        let all = cluster.node.instances()?;
        let exited = v1::ContainerState::ContainerExited as i32;
        ensure!(all.values().any(|one| one.state == exited), "{all:?}");
        Ok(all)
    })?;
    cluster.node.klet.kill9()?;
    cluster.node.klet.restart()?;
    cluster.create_pod(&PodManifest::script("later", STAYS))?;
    cluster.wait_ready("later")?;
    let pod = cluster.wait_ready("web")?;
    assert_eq!(running(&pod), Some(debug));
    assert_eq!(ended(&pod).context("it runs again")?["restartCount"], 0);
    assert_eq!(pod["status"]["containerStatuses"], first["status"]["containerStatuses"]);
    let mut after = cluster.node.instances()?;
    after.retain(|id, _| before.contains_key(id));
    assert_eq!(after, before, "nothing was restarted");
    Ok(())
}

#[test]
fn gates_are_opened_and_closed_by_others() -> Result<()> {
    let cluster = Cluster::start()?;
    let gates = json!([{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]);
    cluster.create_pod(&PodManifest::script("web", STAYS).spec("readinessGates", gates))?;
    let wait_shut = |message: &str| {
        cluster.wait_pod("web", "to wait for its gates", |pod| {
            let is = |kind: &str, status: &str| {
                condition(pod, kind).filter(|one| one["status"] == status)
            };
            is("ContainersReady", "True").is_some()
                && is("Ready", "False").is_some_and(|ready| {
                    ready["reason"] == "ReadinessGatesNotReady" && ready["message"] == message
                })
        })
    };
    let set = |gate: &str, status: &str| {
        let place = path("api/v1", "default", &["pods", "web", "status"]);
        let change = json!({"status": {"conditions": [{"type": gate, "status": status}]}});
        cluster.api.ask(Call::patch(&place, Patch::Strategic, change))
    };
    let absent = |gate: &str| {
        format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")
    };
    wait_shut(&format!("{}, {}", absent("example.com/a"), absent("example.com/b")))?;
    set("example.com/a", "True")?;
    wait_shut(&absent("example.com/b"))?;
    set("example.com/b", "True")?;
    let pod = cluster.wait_ready("web")?;
    assert_eq!(condition(&pod, "example.com/a").context("it is lost")?["status"], "True");
    set("example.com/a", "False")?;
    let gate = "the status of pod readiness gate \"example.com/a\" is not \"True\", but False";
    let pod = wait_shut(gate)?;
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
    set("example.com/a", "True")?;
    let pod = cluster.wait_ready("web")?;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    Ok(())
}

#[test]
fn a_class_names_the_handler() -> Result<()> {
    let cluster = Cluster::start()?;
    let pod = |name: &str| {
        PodManifest::script(name, STAYS).spec("runtimeClassName", json!(format!("for-{name}")))
    };
    let add = |name: &str, handler: &str| {
        let class = json!({"metadata": {"name": format!("for-{name}")}, "handler": handler});
        let place = path("apis/node.k8s.io/v1", "", &["runtimeclasses"]);
        cluster.api.ask(Call::post(&place, class))
    };
    // There before the pod, and without any handler.
    add("first", "runc")?;
    cluster.create_pod(&pod("first"))?;
    cluster.wait_ready("first")?;
    cluster.create_pod(&PodManifest::script("none", STAYS))?;
    cluster.wait_ready("none")?;
    // Not there yet: the pod waits, and says for what.
    cluster.create_pod(&pod("late"))?;
    wait_event(&cluster, "runtimeclass.node.k8s.io \"for-late\" not found")?;
    assert_eq!(cluster.pod("late").context("no pod")?["status"]["phase"], "Pending");
    add("late", "runc")?;
    cluster.wait_ready("late")?;
    for (name, handler) in [("first", "runc"), ("none", ""), ("late", "runc")] {
        let (sandboxes, _) = cluster.node.in_runtime(name)?;
        assert_eq!(sandboxes[0].runtime_handler, handler, "{name}");
    }
    // A handler that the runtime does not have is the runtime's to refuse.
    add("odd", "no-such-handler")?;
    cluster.create_pod(&pod("odd"))?;
    wait_event(&cluster, "no-such-handler")?;
    assert_eq!(cluster.pod("odd").context("no pod")?["status"]["phase"], "Pending");
    Ok(())
}

#[test]
fn a_node_tells_what_it_is() -> Result<()> {
    let cluster = Cluster::start()?;
    let name = cluster.node.klet.node_name();
    let node = cluster.node.eventually("the node to tell", || {
        let node = cluster.api.object("nodes", "", name).context("no node")?;
        ensure!(node["status"]["images"].is_array(), "{:#}", node["status"]);
        Ok(node)
    })?;
    let status = &node["status"];
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], cluster.port);
    let images = status["images"].as_array().context("no images")?;
    for image in [BUSYBOX, PAUSE] {
        let named = images
            .iter()
            .find(|one| one["names"].as_array().is_some_and(|names| names.contains(&image.into())));
        let bytes =
            named.with_context(|| format!("no {image} in {images:?}"))?["sizeBytes"].as_u64();
        assert!(bytes.is_some_and(|bytes| bytes > 0), "{image} has {bytes:?}");
    }
    let said = cluster.node.cri().block_on(async |cri| cri.status().await)?;
    let handlers: Vec<&str> = said.runtime_handlers.iter().map(|one| one.name.as_str()).collect();
    let told = status["runtimeHandlers"].as_array().cloned().unwrap_or_default();
    let told: Vec<&str> = told.iter().map(|one| one["name"].as_str().unwrap_or("")).collect();
    assert_eq!(told, handlers, "{status:#}");
    let policy = said.features.map(|features| features.supplemental_groups_policy);
    assert_eq!(status["features"]["supplementalGroupsPolicy"].as_bool(), policy, "{status:#}");

    let read =
        |file: &str| Ok::<_, std::io::Error>(std::fs::read_to_string(file)?.trim().to_owned());
    let host = rustix::system::uname();
    let info = &status["nodeInfo"];
    assert_eq!(info["kernelVersion"], host.release().to_string_lossy().as_ref());
    assert_eq!(info["bootID"], read("/proc/sys/kernel/random/boot_id")?);
    assert_eq!(info["operatingSystem"], "linux");
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    assert_eq!(info["architecture"], architecture);
    let release = read("/etc/os-release")?;
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    assert_eq!(info["osImage"], pretty.context("no name")?.trim_matches('"'));
    let version = cluster.node.cri().block_on(async |cri| cri.version().await)?;
    let runtime = format!("{}://{}", version.runtime_name, version.runtime_version);
    assert_eq!(info["containerRuntimeVersion"], runtime);
    let own = info["kubeletVersion"].as_str().unwrap_or_default();
    assert!(own.starts_with("v1."), "{info:#}");
    if let Ok(id) = read("/etc/machine-id") {
        assert_eq!(info["machineID"], id);
    }
    Ok(())
}
