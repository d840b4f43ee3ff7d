//! klet may die at any instant: no container notices, and it catches up.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::{Node, PodManifest};

#[test]
fn a_kill_leaves_every_container_alone() -> Result<()> {
    let mut node = Node::start()?;
    let two = PodManifest::script("two", "exec sleep 1000").container("side", "exec sleep 1000");
    node.manifests.put_pod(&two)?;
    node.manifests.put_pod(&PodManifest::pause("small"))?;
    node.manifests.put_pod(&PodManifest::script("done", "exit 0").restart("Never"))?;
    let before = [node.wait_running("two")?, node.wait_running("small")?];
    let done = node.eventually("done to be done", || {
        let pod = node.pod("done")?;
        ensure!(pod.phase == "Succeeded", "it is {pod:?}");
        Ok(pod)
    })?;
    let seen = node.instances()?;
    assert_eq!(seen.len(), 4);

    for _ in 0..3 {
        node.klet.restart()?;
        let after = [node.wait_running("two")?, node.wait_running("small")?];
        assert_eq!(after, before, "uids, addresses, ids, start times and counts are the same");
        let still = node.eventually("done to be known as done", || {
            let pod = node.pod("done")?;
            ensure!(pod.phase == "Succeeded", "it is {pod:?}");
            Ok(pod)
        })?;
        assert_eq!(still.uid, done.uid);
        assert_eq!(node.instances()?, seen);
    }
    assert!(seen.values().all(|instance| instance.attempt == 0));

    // What changes while klet is away is made up for.
    node.klet.kill9()?;
    node.manifests.remove_pod("small")?;
    node.manifests.put_pod(&PodManifest::pause("new"))?;
    node.klet.restart()?;
    node.wait_running("new")?;
    node.wait_gone("small")?;
    assert_eq!(node.wait_running("two")?, before[0]);

    // A polite end is clean, and leaves the containers too.
    let status = node.klet.stop()?;
    assert!(status.success(), "klet ended with {status}");
    let left = node.instances()?;
    for container in &before[0].containers {
        assert_eq!(left.get(&container.id), seen.get(&container.id));
    }
    Ok(())
}

#[test]
fn a_kill_while_pods_come_up_loses_and_doubles_nothing() -> Result<()> {
    let mut node = Node::start()?;
    let names: Vec<String> = (0..8).map(|n| format!("pod-{n}")).collect();
    for name in &names {
        node.manifests.put_pod(&PodManifest::pause(name))?;
    }
    // Several times, to hit different steps of coming up.
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(250));
        node.klet.restart()?;
    }
    for name in &names {
        node.wait_running(name)?;
    }
    node.eventually("one sandbox and one container per pod", || {
        for name in &names {
            let (sandboxes, containers) = node.in_runtime(name)?;
            let ready = sandboxes.iter().filter(|sandbox| sandbox.state == 0).count();
            let running = containers.iter().filter(|container| container.state == 1).count();
            ensure!(ready == 1 && running == 1, "{name}: {sandboxes:?} {containers:?}");
        }
        Ok(())
    })?;
    node.manifests.clear()?;
    for name in &names {
        node.wait_gone(name)?;
    }
    Ok(())
}

#[test]
fn time_runs_on_while_klet_is_away() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(30);
    let mut node = Node::start()?;
    let stays = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let seconds = json!(LIMIT.as_secs());
    let pod = PodManifest::script("late", stays).spec("activeDeadlineSeconds", seconds);
    node.manifests.put_pod(&pod)?;
    node.wait_running("late")?;
    let seen = Instant::now();
    node.klet.kill9()?;
    std::thread::sleep(LIMIT.saturating_sub(seen.elapsed()) + Duration::from_secs(1));
    let back = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    node.klet.launch()?;
    let failed = node.wait_pod("late", "to fail and end", |pod| {
        pod.phase == "Failed" && pod.container("main").is_ok_and(|main| main.state == "terminated")
    })?;
    assert_eq!(failed.reason, "DeadlineExceeded");
    assert_eq!(failed.container("main")?.restarts, 0);
    // Not after the whole time once more.
    let ended = u128::try_from(node.container_status("late", "main")?.finished_at)?;
    let after = Duration::from_nanos(u64::try_from(ended.saturating_sub(back))?);
    assert!(ended > back && after < LIMIT * 2 / 3, "it ended {after:?} after klet came back");
    Ok(())
}
