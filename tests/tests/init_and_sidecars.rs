//! Init containers one after the other, sidecars around the rest, both when all
//! goes well and when it does not.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::{Node, PodManifest};

/// Says when it is told to stop, and stops a moment later.
const STAYS: &str =
    "trap 'echo stop; sleep 0.5; exit 0' TERM; echo up; while true; do sleep 0.1; done";

/// A pod that runs once: two init containers, a sidecar after each, one container.
fn ordered() -> PodManifest {
    let slow = format!("sleep 1; touch /tmp/up; {STAYS}");
    let up = json!({"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1});
    PodManifest::new("ordered")
        .init("first", "echo first; sleep 1")
        .sidecar("slow", &slow)
        .with("startupProbe", up)
        .init("second", "echo second")
        .sidecar("late", STAYS)
        .container("main", "echo main; sleep 1")
        .restart("Never")
        .grace(20)
}

#[test]
fn each_waits_for_those_before_it() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&ordered())?;
    let first = node.wait_pod("ordered", "to begin", |pod| {
        pod.container("first").is_ok_and(|first| first.state == "running")
    })?;
    assert_eq!(first.phase, "Pending");
    assert_eq!(first.container("main")?.reason, "PodInitializing");
    assert!(!first.is("Initialized"), "{first:?}");

    let running = node.wait_pod("ordered", "to run", |pod| pod.phase == "Running")?;
    assert!(running.is("Initialized"), "{running:?}");
    assert!(running.container("slow")?.started && running.container("late")?.started);
    let done = node.wait_pod("ordered", "to be done", |pod| pod.phase == "Succeeded")?;
    for name in ["first", "slow", "second", "late", "main"] {
        let container = done.container(name)?;
        assert_eq!((container.state.as_str(), container.exit_code), ("terminated", Some(0)));
        assert_eq!(container.restarts, 0, "{name}");
    }

    let status = |name: &str| node.container_status("ordered", name);
    let (first, slow, second) = (status("first")?, status("slow")?, status("second")?);
    let (late, main) = (status("late")?, status("main")?);
    assert!(first.finished_at <= slow.started_at, "the sidecar waits for the init container");
    let gap = second.started_at - slow.started_at;
    assert!(gap >= 1_000_000_000, "the startup probe of the sidecar holds the rest: {gap} ns");
    assert!(second.finished_at <= late.started_at && late.started_at <= main.started_at);
    // The other way round at the end.
    assert!(main.finished_at <= late.finished_at, "sidecars outlive the containers");
    assert!(late.finished_at <= slow.finished_at, "the first to start is the last to stop");
    Ok(())
}

#[test]
fn a_removed_pod_stops_its_sidecars_last() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::new("leaving").sidecar("outer", STAYS).sidecar("inner", STAYS);
    node.manifests.put_pod(&pod.container("main", STAYS).grace(30))?;
    node.wait_running("leaving")?;
    let names = ["main", "inner", "outer"];
    let logs = names.map(|name| node.wait_word("leaving", name, "up"));
    node.manifests.remove_pod("leaving")?;
    node.wait_gone("leaving")?;
    let mut times = Vec::new();
    for log in logs {
        times.push(log?.time_of("stop")?);
    }
    assert!(times.is_sorted(), "{names:?} were told to stop at {times:?}");
    Ok(())
}

#[test]
fn failing_ones() -> Result<()> {
    let node = Node::start()?;
    let init = |name: &str, script: &str| PodManifest::new(name).init("prepare", script);
    let stuck = init("stuck", "echo no; exit 3").container("main", STAYS);
    node.manifests.put_pod(&stuck)?;
    let over = init("over", "exit 4").container("main", STAYS).restart("Never");
    node.manifests.put_pod(&over)?;
    // A sidecar that ends is started again, whatever the policy of its pod.
    let flaky = PodManifest::new("flaky").sidecar("side", "sleep 1; exit 0");
    node.manifests.put_pod(&flaky.container("main", STAYS).restart("Never"))?;

    let over = node.wait_pod("over", "to have failed", |pod| pod.phase == "Failed")?;
    assert_eq!(over.container("prepare")?.exit_code, Some(4));
    let main = over.container("main")?;
    assert_eq!((main.state.as_str(), main.id.as_str()), ("waiting", ""), "it never started");

    let stuck = node.wait_pod("stuck", "to back off", |pod| {
        pod.container("prepare").is_ok_and(|init| init.reason == "CrashLoopBackOff")
    })?;
    assert_eq!((stuck.phase.as_str(), stuck.container("prepare")?.exit_code), ("Pending", Some(3)));
    assert!(stuck.container("prepare")?.restarts >= 1);
    assert!(!stuck.is("Initialized"), "{stuck:?}");
    let (_, containers) = node.in_runtime("stuck")?;
    let only_init =
        containers.iter().all(|c| c.labels["io.kubernetes.container.name"] == "prepare");
    ensure!(only_init, "something started before its time: {containers:?}");

    let flaky = node.wait_pod("flaky", "to have its sidecar back", |pod| {
        pod.container("side").is_ok_and(|side| side.restarts >= 1 && side.state == "running")
    })?;
    assert_eq!((flaky.phase.as_str(), flaky.container("main")?.restarts), ("Running", 0));
    Ok(())
}
