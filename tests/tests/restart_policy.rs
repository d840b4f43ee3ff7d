//! What happens after a container ends: Always, OnFailure, Never, and back-off.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Node, PodManifest, PodView};

fn wait_phase(node: &Node, name: &str, phase: &str) -> Result<PodView> {
    node.eventually(&format!("{name} to be {phase}"), || {
        let pod = node.pod(name)?;
        ensure!(pod.phase == phase, "it is {pod:?}");
        Ok(pod)
    })
}

fn wait_restarts(node: &Node, name: &str, restarts: i64) -> Result<PodView> {
    node.eventually(&format!("{name} to be restarted"), || {
        let pod = node.pod(name)?;
        ensure!(pod.container("main")?.restarts >= restarts, "it is {pod:?}");
        Ok(pod)
    })
}

#[test]
fn each_policy_is_kept() -> Result<()> {
    let node = Node::start()?;
    let put = |name: &str, policy: &str, script: &str| {
        node.manifests.put_pod(&PodManifest::script(name, script).restart(policy))
    };
    put("always", "Always", "sleep 1; exit 0")?;
    put("failure-bad", "OnFailure", "sleep 1; exit 3")?;
    put("failure-good", "OnFailure", "exit 0")?;
    put("never-bad", "Never", "exit 7")?;
    put("never-good", "Never", "exit 0")?;

    wait_phase(&node, "never-good", "Succeeded")?;
    wait_phase(&node, "failure-good", "Succeeded")?;
    let failed = wait_phase(&node, "never-bad", "Failed")?;
    let main = failed.container("main")?;
    assert_eq!((main.state.as_str(), main.reason.as_str()), ("terminated", "Error"));
    assert_eq!(main.exit_code, Some(7));

    wait_restarts(&node, "always", 1)?;
    let restarted = wait_restarts(&node, "failure-bad", 1)?;
    assert_eq!(restarted.container("main")?.exit_code, Some(3));

    // After the first restart comes a wait, and its reason is told.
    for name in ["always", "failure-bad"] {
        node.eventually(&format!("{name} to back off"), || {
            let pod = node.pod(name)?;
            let main = pod.container("main")?;
            ensure!(main.state == "waiting" && main.reason == "CrashLoopBackOff", "it is {pod:?}");
            ensure!(
                main.message.starts_with("back-off 10s restarting failed container=main"),
                "it says {:?}",
                main.message
            );
            ensure!(pod.phase == "Running", "its phase is {}", pod.phase);
            Ok(())
        })?;
    }
    wait_restarts(&node, "always", 2)?;

    // What has ended for good stays so, and is not run again.
    for name in ["failure-good", "never-good", "never-bad"] {
        assert_eq!(node.pod(name)?.container("main")?.restarts, 0, "{name}");
        let (_, containers) = node.in_runtime(name)?;
        assert!(containers.iter().all(|c| c.metadata.as_ref().is_some_and(|m| m.attempt == 0)));
    }
    Ok(())
}

#[test]
fn an_end_is_noticed_at_once() -> Result<()> {
    let node = Node::start()?;
    // They end while the runtime is still busy starting them or their
    // neighbours, when its events and its listing may disagree for a moment.
    let names: Vec<String> = (0..6).map(|n| format!("brief-{n}")).collect();
    for name in &names {
        node.manifests.put_pod(&PodManifest::script(name, "exit 0").restart("Never"))?;
    }
    for name in &names {
        // A listing, each minute, would notice it too.
        node.within(Duration::from_secs(45), &format!("{name} to be done"), || {
            let pod = node.pod(name)?;
            ensure!(pod.phase == "Succeeded", "it is {pod:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Its container could go on, but a sandbox whose process is gone is lost.
#[test]
fn a_pod_that_never_restarts_fails_with_its_sandbox() -> Result<()> {
    let node = Node::start()?;
    let pod = PodManifest::script("lost", "trap 'exit 0' TERM; while true; do sleep 0.1; done");
    // By its own policy the end of the container is not that of its work.
    let pod = pod.with("restartPolicy", serde_json::json!("Always"));
    node.manifests.put_pod(&pod.restart("Never").grace(5))?;
    node.wait_running("lost")?;
    let (sandboxes, _) = node.in_runtime("lost")?;
    let [sandbox] = &sandboxes[..] else { anyhow::bail!("not one sandbox: {sandboxes:?}") };
    let pid = Pid::from_raw(node.cri().sandbox_pid(&sandbox.id)?).context("no process")?;
    kill_process(pid, Signal::KILL).context("cannot kill the sandbox's process")?;
    let failed = wait_phase(&node, "lost", "Failed")?;
    assert_eq!(failed.reason, "SandboxLost", "{failed:?}");
    node.wait_says(&["events", "lost"], &["Warning", "SandboxLost", "sandbox was lost"])?;
    let needles = ["The pod has failed: SandboxLost", "look at the runtime's log", "restartPolicy"];
    node.wait_says(&["why", "lost"], &needles)?;
    // It stays failed, and nothing of it runs.
    node.eventually("its container to end", || {
        let lost = node.pod("lost")?;
        ensure!(lost.container("main")?.state == "terminated", "it is {lost:?}");
        Ok(())
    })?;
    let (sandboxes, _) = node.in_runtime("lost")?;
    assert!(sandboxes.iter().all(|one| one.id == sandbox.id), "another sandbox: {sandboxes:?}");
    let lost = node.pod("lost")?;
    assert_eq!((lost.phase.as_str(), lost.reason.as_str()), ("Failed", "SandboxLost"));
    Ok(())
}
