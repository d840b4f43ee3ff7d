//! `klet why` on a real node: whatever a pod waits for, it says what that is, since
//! when, the last error, what comes next, and what the user can do.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Node, NodeOptions, PodManifest, binaries};

const STUBBORN: &str = "trap '' TERM; while true; do sleep 1; done";

fn says(node: &Node, pod: &str, needles: &[&str]) -> Result<()> {
    let text = node.wait_says(&["why", pod], needles)?;
    ensure!(text.contains("What you can do: 1. "), "no advice: {text}");
    Ok(())
}

#[test]
fn a_runtime_that_is_away_or_hangs() -> Result<()> {
    let mut node = Node::start_configured(json!({"runtimeRequestTimeout": "8s"}))?;
    node.manifests.put_pod(&PodManifest::pause("old"))?;
    node.wait_running("old")?;
    let usable = [
        "The container runtime is not usable.",
        "Waits for: the container runtime (since ",
        "Last error: ",
        "`systemctl status containerd`",
        "klet goes on by itself once the runtime answers. Running containers are not touched.",
    ];

    node.containerd.kill()?;
    node.manifests.put_pod(&PodManifest::pause("new"))?;
    says(&node, "new", &usable)?;
    says(
        &node,
        "node",
        &["no pod can be started or stopped", "Last error: ", "--container-runtime-endpoint"],
    )?;
    node.containerd.restart()?;
    node.wait_says(&["why", "new"], &["The pod runs and is ready. It waits for nothing."])?;

    // One that hangs: first its call is in flight, then the runtime is to blame.
    node.containerd.pause()?;
    node.manifests.put_pod(&PodManifest::pause("hung"))?;
    says(
        &node,
        "hung",
        &["In flight: RunPodSandbox, for ", "(since ", "`journalctl -u containerd"],
    )?;
    says(&node, "node", &["no pod can be started", "the runtime has not answered within 3 s"])?;
    says(&node, "hung", &usable)?;
    node.containerd.resume()?;
    node.wait_says(&["why", "hung"], &["The pod runs and is ready."])?;
    Ok(())
}

#[test]
fn a_network_that_is_not_ready() -> Result<()> {
    let node = Node::start()?;
    let config = node.containerd.dir().join("cni/10-testkit.conflist");
    let content = fs::read(&config).context("the node has a network")?;
    fs::remove_file(&config)?;
    node.manifests.put_pod(&PodManifest::pause("web"))?;
    let own = PodManifest::pause("own").spec("hostNetwork", json!(true));
    node.manifests.put_pod(&own)?;
    node.wait_running("own")?;
    says(
        &node,
        "web",
        &[
            "The pod network is not ready.",
            "Waits for: the runtime's network (CNI) (since ",
            "Last error: ",
            "cni",
            "Put a CNI configuration into /etc/cni/net.d",
            "A pod with hostNetwork: true starts without.",
        ],
    )?;
    fs::write(&config, content)?;
    node.wait_says(&["why", "web"], &["The pod runs and is ready."])?;
    Ok(())
}

#[test]
fn a_pod_that_takes_its_time_to_end_and_one_that_has_its_name() -> Result<()> {
    let node = Node::start()?;
    let slow = PodManifest::script("slow", STUBBORN).grace(600).uid("old");
    node.manifests.put_pod(&slow)?;
    node.wait_running("slow")?;
    node.manifests.remove_pod("slow")?;
    let ending = [
        "The pod is being removed.",
        "Waits for: its containers to end, within 600 s (terminationGracePeriodSeconds) (since ",
        "In flight: StopContainer main, which kills after 600 s, for ",
        "Next: kill what has not ended, in 9m",
        "ignores SIGTERM",
        "no manifest has this pod any more",
    ];
    says(&node, "slow", &ending)?;

    let next = PodManifest::script("slow", STUBBORN).grace(600).uid("new");
    node.manifests.put_pod(&next)?;
    says(
        &node,
        "slow",
        &[
            "A pod of the same name is still ending.",
            "Waits for: the end of the pod that had this name before (since ",
            "it starts as soon as the old one is gone",
            "slow.json",
        ],
    )?;
    Ok(())
}

#[test]
fn containers_that_fail_and_containers_that_wait() -> Result<()> {
    let node = Node::start()?;
    let script = |name: &str, script: &str| PodManifest::script(name, script);
    let runs = "exec sleep 1000";
    let absent = script("pull", runs).with("image", json!("registry.invalid/team/app:1"));
    let hook =
        json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", "echo not yet; exit 9"]}}});
    let probe = json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "periodSeconds": 2});
    let lives =
        json!({"exec": {"command": ["/bin/false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let pods = [
        absent,
        script("crash", "echo cannot read /etc/app.conf; exit 3"),
        script("hook", runs).with("lifecycle", hook),
        script("probe", runs).with("readinessProbe", probe),
        script("live", STUBBORN).with("livenessProbe", lives.clone()).grace(1),
        script("deaf", STUBBORN).with("livenessProbe", lives).grace(600),
        PodManifest::new("init").init("first", runs).container("main", runs),
    ];
    for pod in &pods {
        node.manifests.put_pod(pod)?;
    }
    says(
        &node,
        "pull",
        &[
            "The image of main cannot be pulled",
            "registry.invalid cannot be resolved",
            "Waits for: the next try to pull \"registry.invalid/team/app:1\"",
            "(since ",
            "Last error: Back-off pulling image",
            "Next: start main in ",
            "Check the image's name",
        ],
    )?;
    says(
        &node,
        "crash",
        &[
            "main keeps ending: exit code 3",
            "Waits for: the end of its back-off; restarted ",
            "(since ",
            "Last words: | cannot read /etc/app.conf",
            "Next: start main again ",
            "klet logs --previous -c main default/crash-n1",
        ],
    )?;
    says(
        &node,
        "hook",
        &[
            "The postStart hook of main failed",
            "(since ",
            "Last error: ",
            "Next: start main ",
            "Make lifecycle.postStart succeed",
        ],
    )?;
    says(
        &node,
        "probe",
        &[
            "main runs, but its readiness probe fails.",
            "Waits for: a success of its readiness probe (since ",
            "Last error: Readiness probe failed",
            "/tmp/healthy",
            "Next: probe main again, every 2 s",
            "klet exec -it -c main default/probe-n1 -- sh",
        ],
    )?;
    says(
        &node,
        "live",
        &[
            "main keeps ending",
            "Its liveness probe failed and so klet stopped it",
            "Next: start main again ",
        ],
    )?;
    says(
        &node,
        "deaf",
        &[
            "main is being stopped, because its liveness probe failed. The probe runs `/bin/false`.",
            "Waits for: its end: it was told to end",
            "(since ",
            "In flight: StopContainer main, which kills after ",
            "Last error: Liveness probe failed",
        ],
    )?;
    says(
        &node,
        "init",
        &[
            "main waits for the init containers before it.",
            "Waits for: init container first (1 of 1) (since ",
            "klet logs -c first default/init-n1",
        ],
    )?;
    Ok(())
}

/// Exit code and words of `klet why` for a pod that is not there.
fn absent(node: &Node, pod: &str) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(binaries::klet_binary()?);
    let socket = node.klet.root_dir().join("klet.sock");
    let output = command.args(["why", pod]).env("KLET_SOCKET", socket).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(text).context("not text")?))
}

/// Serves one answer over and over, until the process ends.
fn serve(body: String) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| !line.is_empty()) {}
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // Whoever went away asks again.
            let _ = (&stream).write_all(format!("{head}{body}").as_bytes());
        }
    });
    Ok(port)
}

#[test]
fn pods_that_are_not_there() -> Result<()> {
    let mut node = Node::start_with(NodeOptions { klet_absent: true, ..NodeOptions::default() })?;
    let wrong = |name: &str| PodManifest::pause(name).spec("restartPolicy", json!("Sometimes"));
    let port = serve(wrong("served").to_json())?;
    let url = format!("http://127.0.0.1:{port}/pods");
    node.klet.configure(json!({"staticPodURL": url}))?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    node.manifests.put_pod(&PodManifest::pause("web"))?;
    node.manifests.put_pod(&wrong("refused"))?;
    let half =
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: half\nspec:\n  containers: [{name: web\n";
    node.manifests.put("b.yaml", half)?;
    node.wait_running("web")?;

    let refused = [
        "There is no such pod: its manifest was refused.",
        "Waits for: a manifest that can be used",
    ];
    for (pod, place, why) in [
        ("refused", "refused.json", "restartPolicy"),
        ("half", "b.yaml", "line "),
        ("served", url.as_str(), "restartPolicy"),
    ] {
        says(&node, pod, &refused)?;
        says(&node, pod, &["Last error: ", place, why, "Mend the manifest where the error says"])?;
    }
    says(&node, "node", &["Some manifests cannot be used", "Last error: "])?;
    // A container's name is no pod's.
    let (code, text) = absent(&node, "nobody")?;
    ensure!(code == Some(1) && text.contains("there are default/web-n1"), "{code:?}: {text}");
    let text = node.klet_says(&["why", "web"])?;
    ensure!(!text.contains("b.yaml"), "{text}");
    Ok(())
}

#[test]
fn a_probe_is_still_named_after_many_restarts() -> Result<()> {
    let often = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
                       "featureGates": {"KubeletCrashLoopBackOffMax": true}});
    let node = Node::start_configured(often)?;
    let lives =
        json!({"exec": {"command": ["/bin/false"]}, "periodSeconds": 1, "failureThreshold": 1});
    let pod = PodManifest::script("live", STUBBORN).with("livenessProbe", lives).grace(1);
    node.manifests.put_pod(&pod)?;
    // Each restart has four events, of which 25 are let through.
    node.wait_pod("live", "to be restarted ten times", |pod| {
        pod.container("main").is_ok_and(|main| main.restarts >= 10)
    })?;
    says(&node, "live", &["Its liveness probe failed and so klet stopped it"])?;
    Ok(())
}
