//! Containers with restart policies and rules of their own, pods that start over,
//! back-off with a maximum, and pods whose time is up.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Node, PodManifest};

const STAYS: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

fn rule(action: &str, code: i32) -> Value {
    json!([{"action": action, "exitCodes": {"operator": "In", "values": [code]}}])
}

#[test]
fn rules_of_containers() -> Result<()> {
    let node = Node::start()?;
    let own = PodManifest::new("own")
        .container("again", "sleep 1; exit 42")
        .with("restartPolicy", json!("Never"))
        .with("restartPolicyRules", rule("Restart", 42))
        .container("once", "exit 43")
        .with("restartPolicy", json!("Never"))
        .with("restartPolicyRules", rule("Restart", 42))
        .container("always", "sleep 1; exit 0")
        .with("restartPolicy", json!("Always"))
        .restart("Never");
    node.manifests.put_pod(&own)?;
    let over = PodManifest::new("over")
        .init("prepare", "echo prepared")
        .container("work", STAYS)
        .container("trigger", "sleep 2; exit 5")
        .with("restartPolicy", json!("Never"))
        .with("restartPolicyRules", rule("RestartAllContainers", 5))
        .restart("Never");
    node.manifests.put_pod(&over)?;

    let pod = node.wait_pod("own", "to be started again", |pod| {
        ["again", "always"].iter().all(|n| pod.container(n).is_ok_and(|c| c.restarts >= 1))
    })?;
    let once = pod.container("once")?;
    assert_eq!((once.state.as_str(), once.exit_code, once.restarts), ("terminated", Some(43), 0));
    assert_eq!(pod.phase, "Running");

    let pod = node.wait_pod("over", "to start over", |pod| {
        let again = |name: &&str| pod.container(name).is_ok_and(|c| c.restarts >= 1);
        ["prepare", "work", "trigger"].iter().all(again)
    })?;
    assert_eq!(pod.phase, "Running", "{pod:?}");
    Ok(())
}

#[test]
fn a_pod_that_starts_over_says_so() -> Result<()> {
    let node = Node::start()?;
    let over = PodManifest::new("over")
        .init("prepare", "sleep 1")
        .container("work", STAYS)
        .container("trigger", "sleep 3; exit 5")
        .with("restartPolicy", json!("Never"))
        .with("restartPolicyRules", rule("RestartAllContainers", 5))
        .restart("Never");
    node.manifests.put_pod(&over)?;
    let before = node.wait_running("over")?;
    assert_eq!(before.condition("AllContainersRestarting")?.status, "False");
    // It is soon over, but not before `prepare` has slept: looked at without a pause.
    let mut condition = false;
    node.eventually("the pod to have started over", || {
        for _ in 0..20 {
            let pod = node.pod("over")?;
            condition |= pod.is("AllContainersRestarting");
            if pod.container("work")?.restarts >= 1 && pod.phase == "Running" {
                return Ok(());
            }
        }
        ensure!(false, "it is {:?}", node.pod("over")?);
        Ok(())
    })?;
    ensure!(condition, "the condition was never true");
    let after = node.wait_running("over")?;
    assert_eq!(after.condition("AllContainersRestarting")?.status, "False");
    for name in ["work", "trigger"] {
        let one = after.container(name)?;
        assert_eq!((one.last_reason.as_str(), one.restarts), ("RestartingAllContainers", 1));
        assert_ne!(one.id, before.container(name)?.id);
    }
    Ok(())
}

#[test]
fn back_off_has_a_maximum() -> Result<()> {
    let config = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}});
    let node = Node::start_configured(config)?;
    node.manifests.put_pod(&PodManifest::script("crash", "exit 1"))?;
    // With the usual 10, 20 and 40 seconds this takes longer than anybody waits.
    node.wait_pod("crash", "to crash often", |pod| {
        pod.container("main").is_ok_and(|main| main.restarts >= 5)
    })?;
    // What happens again and again is one event, and counted.
    let events = node.klet_says(&["events", "crash"])?;
    let started: Vec<_> = events.match_indices("Normal Started default/crash-n1 [main]").collect();
    let [(at, _)] = started.as_slice() else { anyhow::bail!("not one event: {events}") };
    let count = events[..*at].rsplit_once("(x").and_then(|(_, rest)| rest.split(' ').next());
    let count: u32 = count.and_then(|count| count.parse().ok()).context("it is not counted")?;
    // Not all: who has too many events is heard less often.
    assert!(count >= 3, "{events}");
    Ok(())
}

#[test]
fn a_pod_whose_time_is_up_fails() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::script("late", STAYS).spec("activeDeadlineSeconds", json!(3));
    node.manifests.put_pod(&pod)?;
    node.wait_running("late")?;
    let failed = node.wait_pod("late", "to fail and end", |pod| {
        pod.phase == "Failed" && pod.container("main").is_ok_and(|main| main.state == "terminated")
    })?;
    assert_eq!(failed.reason, "DeadlineExceeded");
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(failed.message, message);
    assert_eq!(failed.container("main")?.restarts, 0);
    Ok(())
}
