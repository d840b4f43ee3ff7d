//! What happens after a container ends: Always, OnFailure, Never, and back-off.

use std::time::Duration;

use anyhow::{Result, ensure};
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
