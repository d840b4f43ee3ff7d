//! Resizing running pods through the API server: the part `resize` of a pod.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use anyhow::{Context, Result, ensure};
use api_client::{Call, Patch, path};
use serde_json::{Value, json};
use testkit::{Cluster, PodManifest, control_group};

const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";
const MIB: u64 = 1 << 20;

/// Requests of `cpu` thousandths and `memory` mebibytes, limits of twice that.
fn sizes(cpu: u64, memory: u64) -> Value {
    let list = |times: u64| json!({"cpu": format!("{}m", times * cpu), "memory": format!("{}Mi", times * memory)});
    json!({"requests": list(1), "limits": list(2)})
}

fn sized(name: &str, cpu: u64, memory: u64) -> PodManifest {
    PodManifest::script(name, STAYS).with("resources", sizes(cpu, memory))
}

fn resize(cluster: &Cluster, name: &str, resources: Value) -> Result<Value> {
    let place = path("api/v1", "default", &["pods", name, "resize"]);
    let change = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}});
    cluster.api.ask(Call::patch(&place, Patch::Strategic, change))
}

fn condition(pod: &Value, kind: &str) -> Option<Value> {
    let all = pod["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind).cloned()
}

fn main_of(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// Waits until the server shows this size, the kernel has it, and nothing is under way.
fn wait_size(cluster: &Cluster, name: &str, cpu: u64, memory: u64) -> Result<Value> {
    cluster.node.eventually(&format!("{name} to have {cpu}m and {memory}Mi"), || {
        let pod = cluster.pod(name).context("no pod")?;
        let (main, wanted) = (main_of(&pod), sizes(cpu, memory));
        ensure!(main["resources"] == wanted, "shown are {}", main["resources"]);
        let given = &main["allocatedResources"];
        ensure!(*given == wanted["requests"], "allocated are {given}");
        for kind in ["PodResizePending", "PodResizeInProgress"] {
            ensure!(condition(&pod, kind).is_none(), "{kind} is {:?}", condition(&pod, kind));
        }
        let generation = &pod["metadata"]["generation"];
        ensure!(pod["status"]["observedGeneration"] == *generation, "{:#}", pod["status"]);
        let root = cluster.node.containerd.cgroup_root();
        let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
        let group = format!("{root}/kubepods/burstable/pod{uid}");
        let id = main["containerID"].as_str().and_then(|id| id.split_once("://"));
        let id = id.context("no container")?.1;
        for group in [group.clone(), format!("{group}/{id}")] {
            let (found, wanted) = (control_group::limits(&group)?, (2 * memory * MIB, 200 * cpu));
            ensure!(found == wanted, "{group} has {found:?}, not {wanted:?}");
        }
        Ok(pod)
    })
}

fn wait_condition(cluster: &Cluster, name: &str, kind: &str, reason: &str) -> Result<Value> {
    cluster.node.eventually(&format!("{name} to have {kind} {reason:?}"), || {
        let pod = cluster.pod(name).context("no pod")?;
        let found = condition(&pod, kind).context("it is not there")?;
        ensure!(found["status"] == "True", "{found}");
        ensure!(found["reason"].as_str().unwrap_or_default() == reason, "{found}");
        Ok(found)
    })
}

#[test]
fn a_size_changes_in_place_and_outlives_the_agent() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.create_pod(&sized("web", 100, 24))?;
    let first = wait_size(&cluster, "web", 100, 24)?;
    let before = cluster.node.instances()?;
    for (cpu, memory) in [(200, 32), (50, 24)] {
        resize(&cluster, "web", sizes(cpu, memory))?;
        let pod = wait_size(&cluster, "web", cpu, memory)?;
        assert_eq!(main_of(&pod)["containerID"], main_of(&first)["containerID"]);
    }
    // The server holds another wish while nobody listens.
    cluster.node.klet.kill9()?;
    resize(&cluster, "web", sizes(150, 48))?;
    cluster.node.klet.restart()?;
    let pod = wait_size(&cluster, "web", 150, 48)?;
    assert_eq!(main_of(&pod)["restartCount"], 0);
    assert_eq!(cluster.node.instances()?, before, "nothing was restarted");
    Ok(())
}

/// Files of a volume tell the size that the container has been given.
#[test]
fn files_about_the_pod_follow_its_size() -> Result<()> {
    let cluster = Cluster::start()?;
    let file = |path: &str, resource: &str, divisor: &str| {
        json!({"path": path, "resourceFieldRef":
            {"containerName": "main", "resource": resource, "divisor": divisor}})
    };
    let items = [
        file("memory", "limits.memory", "1Mi"),
        file("cpu", "limits.cpu", "1m"),
        file("asked", "requests.memory", "1Mi"),
    ];
    let pod = sized("web", 100, 24)
        .with("volumeMounts", json!([{"name": "about", "mountPath": "/about"}]))
        .spec("volumes", json!([{"name": "about", "downwardAPI": {"items": items}}]));
    cluster.create_pod(&pod)?;
    wait_size(&cluster, "web", 100, 24)?;
    let sees = |wanted: &str| {
        cluster.node.eventually(&format!("the files to say {wanted}"), || {
            let read = "cd /about; echo $(cat memory) $(cat cpu) $(cat asked)";
            let seen = cluster.node.run_in("web", "main", read)?;
            ensure!(seen.trim() == wanted, "they say {seen:?}");
            Ok(())
        })
    };
    sees("48 200 24")?;
    let before = cluster.node.instances()?;
    resize(&cluster, "web", sizes(150, 32))?;
    wait_size(&cluster, "web", 150, 32)?;
    sees("64 300 32")?;
    assert_eq!(cluster.node.instances()?, before, "nothing was restarted");
    Ok(())
}

#[test]
fn one_that_is_under_way_is_shown_and_finished_by_the_next_agent() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.create_pod(&sized("web", 100, 24))?;
    wait_size(&cluster, "web", 100, 24)?;
    let before = cluster.node.instances()?;
    // The runtime hangs: what is given cannot come into force.
    cluster.node.containerd.pause()?;
    resize(&cluster, "web", sizes(200, 32))?;
    wait_condition(&cluster, "web", "PodResizeInProgress", "")?;
    let pod = cluster.pod("web").context("no pod")?;
    assert_eq!(main_of(&pod)["allocatedResources"], sizes(200, 32)["requests"], "{pod:#}");
    assert_eq!(main_of(&pod)["resources"], sizes(100, 24), "{pod:#}");
    cluster.node.klet.kill9()?;
    cluster.node.containerd.resume()?;
    cluster.node.klet.restart()?;
    wait_size(&cluster, "web", 200, 32)?;
    assert_eq!(cluster.node.instances()?, before, "nothing was restarted");
    Ok(())
}

#[test]
fn a_policy_restarts_the_container() -> Result<()> {
    let cluster = Cluster::start()?;
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    cluster.create_pod(&sized("web", 100, 24).with("resizePolicy", policy))?;
    let first = wait_size(&cluster, "web", 100, 24)?;
    resize(&cluster, "web", sizes(200, 24))?;
    let pod = wait_size(&cluster, "web", 200, 24)?;
    assert_eq!(main_of(&pod)["containerID"], main_of(&first)["containerID"]);
    resize(&cluster, "web", sizes(200, 32))?;
    let pod = wait_size(&cluster, "web", 200, 32)?;
    assert_ne!(main_of(&pod)["containerID"], main_of(&first)["containerID"]);
    assert_eq!(main_of(&pod)["restartCount"], 1);
    Ok(())
}

#[test]
fn one_without_room_waits_until_there_is_some() -> Result<()> {
    let cluster = Cluster::start()?;
    let name = cluster.node.klet.node_name().to_owned();
    let cores = cluster.node.eventually("the node to be there", || {
        let node = cluster.api.object("nodes", "", &name).context("no node")?;
        let text = node["status"]["allocatable"]["cpu"].as_str().context("no cpu")?.to_owned();
        match text.strip_suffix('m') {
            Some(milli) => Ok(milli.parse::<u64>()?),
            None => Ok(text.parse::<u64>()? * 1000),
        }
    })?;
    // Odd ones: whole cores are written in another way.
    let (large, wanted) = (cores / 2 + 1, cores * 3 / 4 + 1);
    cluster.create_pod(&sized("neighbour", large, 24))?;
    cluster.create_pod(&sized("web", 100, 24))?;
    wait_size(&cluster, "neighbour", large, 24)?;
    wait_size(&cluster, "web", 100, 24)?;
    let (before, _) = cluster.node.in_runtime("web")?;
    resize(&cluster, "web", sizes(wanted, 24))?;
    let pending = wait_condition(&cluster, "web", "PodResizePending", "Deferred")?;
    let said = pending["message"].as_str().unwrap_or_default();
    let used = format!("requested: {wanted}, used: {large}, capacity: {cores}");
    assert_eq!(said, format!("Node didn't have enough resource: cpu, {used}"));
    let pod = cluster.pod("web").context("no pod")?;
    assert_eq!(main_of(&pod)["allocatedResources"], sizes(100, 24)["requests"], "{pod:#}");
    assert_eq!(pending["observedGeneration"], pod["metadata"]["generation"], "{pod:#}");
    cluster.delete_pod("neighbour", Some(1))?;
    wait_size(&cluster, "web", wanted, 24)?;
    assert_eq!(cluster.node.in_runtime("web")?.0, before);
    cluster.node.eventually("the events", || {
        let events = cluster.api.ask(Call::get(&path("api/v1", "default", &["events"])))?;
        let all = events["items"].to_string();
        for reason in ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"] {
            ensure!(all.contains(reason), "{reason} is missing in {all}");
        }
        Ok(())
    })
}

#[test]
fn a_class_cannot_change_and_memory_in_use_stays() -> Result<()> {
    let cluster = Cluster::start()?;
    let holds =
        "x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo up; while true; do sleep 1; done";
    let pod = PodManifest::script("web", holds).with("resources", sizes(100, 64));
    cluster.create_pod(&pod)?;
    wait_size(&cluster, "web", 100, 64)?;
    cluster.node.wait_word("web", "main", "up")?;
    let before = cluster.node.instances()?;
    let equal = json!({"cpu": "200m", "memory": "128Mi"});
    let guaranteed = json!({"requests": equal, "limits": equal});
    // The server refuses it; a node that is asked nevertheless does as well.
    let refused = resize(&cluster, "web", guaranteed.clone()).unwrap_err();
    assert!(format!("{refused:#}").contains("QOS Class may not change"), "{refused:#}");
    put_past_the_rules(&cluster, "web", guaranteed)?;
    let pending = wait_condition(&cluster, "web", "PodResizePending", "Infeasible")?;
    let said = pending["message"].as_str().unwrap_or_default();
    assert!(said.contains("QOS Class may not change"), "{pending}");
    put_past_the_rules(&cluster, "web", sizes(100, 64))?;
    wait_size(&cluster, "web", 100, 64)?;

    resize(&cluster, "web", sizes(100, 5))?;
    let progress = wait_condition(&cluster, "web", "PodResizeInProgress", "Error")?;
    let said = progress["message"].as_str().unwrap_or_default();
    assert!(said.starts_with("cannot decrease memory limits"), "{progress}");
    resize(&cluster, "web", sizes(100, 48))?;
    wait_size(&cluster, "web", 100, 48)?;
    assert_eq!(cluster.node.instances()?, before, "the container ran on");
    Ok(())
}

/// Writes resources into the server's store as no request can.
fn put_past_the_rules(cluster: &Cluster, name: &str, resources: Value) -> Result<()> {
    let (namespace, name) = ("default".to_owned(), name.to_owned());
    let key = apiserver::store::Key { resource: "pods".into(), namespace, name };
    cluster.node.eventually("the store to take it", || {
        let stored = cluster.api.store().get(&key).context("no pod")?;
        let mut pod = stored.value();
        pod["spec"]["containers"][0]["resources"] = resources.clone();
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or_default();
        pod["metadata"]["generation"] = (generation + 1).into();
        cluster.api.store().update(&key, stored.revision, pod).map(drop).context("not taken")
    })
}
