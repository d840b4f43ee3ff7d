//! How the kernel confines containers: system calls, privilege, scores.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Node, PodManifest};

const STAYS: &str = "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done";

fn confined(name: &str, context: Value) -> PodManifest {
    PodManifest::script(name, STAYS).with("securityContext", context)
}

fn seccomp(name: &str, profile: Value) -> PodManifest {
    confined(name, json!({"seccompProfile": profile}))
}

#[test]
fn system_calls() -> Result<()> {
    let node = Node::start()?;
    let dir = node.klet.root_dir().join("seccomp/team");
    fs::create_dir_all(&dir).context("cannot make a directory")?;
    // All but one.
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}],
    });
    fs::write(dir.join("no-mkdir.json"), profile.to_string())?;
    let local = |file: &str| json!({"type": "Localhost", "localhostProfile": file});
    node.manifests.put_pod(&seccomp("local", local("team/no-mkdir.json")))?;
    node.manifests.put_pod(&seccomp("free", json!({"type": "Unconfined"})))?;
    node.manifests.put_pod(&seccomp("usual", json!({"type": "RuntimeDefault"})))?;
    node.manifests.put_pod(&PodManifest::script("unsaid", STAYS))?;
    // What the pod says holds for containers that say nothing.
    let of_pod = json!({"seccompProfile": local("team/no-mkdir.json")});
    node.manifests
        .put_pod(&PodManifest::script("of-pod", STAYS).spec("securityContext", of_pod))?;
    node.manifests.put_pod(&seccomp("absent", local("team/absent.json")))?;

    // A filter is mode 2.
    let look = "mkdir /tmp/x 2>/dev/null && rmdir /tmp/x && echo makes; \
                grep '^Seccomp:' /proc/self/status";
    for (name, said) in [
        ("local", "Seccomp:\t2\n"),
        ("of-pod", "Seccomp:\t2\n"),
        ("free", "makes\nSeccomp:\t0\n"),
        ("usual", "makes\nSeccomp:\t2\n"),
        ("unsaid", "makes\nSeccomp:\t0\n"),
    ] {
        node.wait_running(name)?;
        assert_eq!(node.run_in(name, "main", look)?, said, "{name}");
    }
    let absent = node.wait_pod("absent", "to say what is missing", |pod| {
        pod.container("main").is_ok_and(|main| main.reason == "CreateContainerError")
    })?;
    let message = &absent.container("main")?.message;
    let path = dir.join("absent.json").display().to_string();
    assert!(message.contains(&path) && message.contains("no such file"), "{message}");
    node.wait_says(&["why", "absent"], &[&path])?;
    // It is there: the next try succeeds.
    fs::write(&path, profile.to_string())?;
    node.wait_running("absent")?;
    Ok(())
}

/// Capabilities that a process of this host can have at all, as /proc writes them.
fn all_capabilities() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    Ok(line.context("a process has capabilities")?.trim().to_owned())
}

#[test]
fn privileged_containers() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&confined("mighty", json!({"privileged": true})))?;
    node.manifests.put_pod(&confined("plain", json!({})))?;
    let few = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CHOWN"]}});
    node.manifests.put_pod(&confined("few", few))?;
    node.wait_running("plain")?;
    let capabilities = |name: &str| -> Result<String> {
        let text = node.run_in(name, "main", "grep '^CapEff:' /proc/1/status")?;
        Ok(text.trim_start_matches("CapEff:").trim().to_owned())
    };
    let devices = |name: &str| node.run_in(name, "main", "ls /dev | wc -l");
    // The runtime's usual ones, whatever the host has.
    assert_eq!(capabilities("plain")?, "00000000a80425fb");
    node.wait_running("few")?;
    assert_eq!(capabilities("few")?, "0000000000000401");
    let sent = node.sent_config("plain", "main")?["linux"]["security_context"].take();
    assert_ne!(sent["privileged"], json!(true), "{sent}");
    let masked = |name: &str| node.run_in(name, "main", "grep -c ' /proc/' /proc/mounts || true");
    assert_ne!(masked("plain")?.trim(), "0", "nothing is masked");

    node.wait_running("mighty")?;
    assert_eq!(capabilities("mighty")?, all_capabilities()?);
    let sent = node.sent_config("mighty", "main")?["linux"]["security_context"].take();
    assert_eq!(sent["privileged"], json!(true), "{sent}");
    assert_eq!(masked("mighty")?.trim(), "0", "something is masked");
    // It has the host's devices.
    let count = |text: String| text.trim().parse::<usize>().context("a number");
    let (few, many) = (count(devices("plain")?)?, count(devices("mighty")?)?);
    ensure!(few < many, "{few} devices without privilege, {many} with it");
    Ok(())
}

#[test]
fn scores_for_when_memory_runs_out() -> Result<()> {
    let node = Node::start()?;
    let sized = |name: &str, resources: Value| {
        PodManifest::script(name, STAYS).with("resources", resources)
    };
    let full = json!({"limits": {"cpu": "100m", "memory": "32Mi"}});
    node.manifests.put_pod(&sized("sure", full))?;
    let critical =
        sized("critical", json!({})).spec("priorityClassName", json!("system-node-critical"));
    node.manifests.put_pod(&critical)?;
    node.manifests.put_pod(&sized("begs", json!({})))?;
    for (name, score) in [("sure", -997), ("critical", -997), ("begs", 1000)] {
        node.wait_running(name)?;
        let sent = node.sent_config(name, "main")?["linux"]["resources"]["oom_score_adj"].clone();
        assert_eq!(sent, json!(score), "{name}");
        // A runtime that is itself confined gives nothing better than its own.
        let own: i64 = fs::read_to_string("/proc/self/oom_score_adj")?.trim().parse()?;
        let has: i64 = node.run_in(name, "main", "cat /proc/1/oom_score_adj")?.trim().parse()?;
        ensure!(has == score || has == score.max(own), "{name} has {has}; this process {own}");
    }
    Ok(())
}
