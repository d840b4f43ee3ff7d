//! klet as a node of a stock control plane, and in turns with the upstream kubelet.
//!
//! Needs upstream's binaries (`KUBEBUILDER_ASSETS`, and `UPSTREAM_KUBELET` for handing
//! pods over) and says so where they are missing. `make interop` runs this.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::cluster::condition;
use testkit::control_plane::{self, ControlPlane};
use testkit::{Node, process, upstream};

const IMAGE: &str = "docker.io/library/busybox:latest";

/// A control plane and a node that is not launched yet.
fn start(binaries: &std::path::Path, dir: &std::path::Path) -> Result<(Node, ControlPlane)> {
    let plane = ControlPlane::start(binaries, dir)?;
    let node = plane.prepare_node()?;
    plane.eventually_has("serviceaccount", "default", &node)?;
    Ok((node, plane))
}

fn pod(name: &str, node: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
            }],
        },
    })
}

#[test]
fn kubectl_works_on_its_pods() -> Result<()> {
    let Some(binaries) = control_plane::binaries("kubectl_works_on_its_pods") else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let (mut node, plane) = start(&binaries, dir.path())?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    plane.wait_until_ready("node", "n1", &node)?;

    let script = "echo hello; mkdir /www; echo web > /www/index.html; httpd -p 8080 -h /www; \
                  trap 'exit 0' TERM; while :; do sleep 0.2; done";
    plane.apply(&pod("a", "n1", script))?;
    plane.wait_until_ready("pod", "a", &node)?;
    let logs = plane.kubectl(&["logs", "a"])?;
    ensure!(logs == "hello", "logs: {logs:?}");
    let env = plane.kubectl(&["exec", "a", "--", "env"])?;
    ensure!(env.contains("KUBERNETES_SERVICE_HOST=10.96.0.1"), "variables: {env}");

    let exit = plane.kubectl_command(&["exec", "a", "--", "sh", "-c", "exit 7"]).output()?;
    ensure!(exit.status.code() == Some(7), "exec ended with {exit:?}");
    let mut cat = plane.kubectl_command(&["exec", "-i", "a", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    cat.stdin.take().context("stdin")?.write_all(b"through\n")?;
    ensure!(cat.wait_with_output()?.stdout == b"through\n", "exec -i");

    let file = dir.path().join("file");
    std::fs::write(&file, "copied")?;
    let place = file.to_string_lossy().into_owned();
    plane.kubectl(&["cp", &place, "a:/tmp/file"])?;
    ensure!(plane.kubectl(&["exec", "a", "--", "cat", "/tmp/file"])? == "copied", "cp");

    port_forward(&plane)?;
    attach(&plane, &node)?;
    older_logs(&plane, &node)?;
    resize(&plane, &node)?;
    figures(&plane, &node)?;
    debug(&plane, &node)?;
    readiness_gate(&plane, &node)?;

    plane.kubectl(&["delete", "pod", "a", "--wait=true", "--timeout=60s"])?;
    node.wait_gone("a")
}

fn port_forward(plane: &ControlPlane) -> Result<()> {
    let mut command = plane.kubectl_command(&["port-forward", "pod/a", ":8080"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let told = || -> Result<String> {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("stdout")?).read_line(&mut line)?;
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
        let port: u16 = port.with_context(|| format!("it said {line:?}"))?.parse()?;
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }();
    child.kill()?;
    child.wait()?;
    let text = told?;
    ensure!(text.contains("web"), "port-forward: {text:?}");
    Ok(())
}

fn attach(plane: &ControlPlane, node: &Node) -> Result<()> {
    let mut echo = pod("echo", "n1", "while read line; do echo got $line; done");
    echo["spec"]["containers"][0]["stdin"] = json!(true);
    plane.apply(&echo)?;
    plane.wait_until_ready("pod", "echo", node)?;
    let mut child = plane.kubectl_command(&["attach", "-i", "echo"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let told = || -> Result<String> {
        child.stdin.as_mut().context("stdin")?.write_all(b"word\n")?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("stdout")?).read_line(&mut line)?;
        Ok(line)
    }();
    child.kill()?;
    child.wait()?;
    let told = told?;
    ensure!(told == "got word\n", "attach: {told:?}");
    Ok(())
}

/// Logs that are followed to their end, and those of the container before.
fn older_logs(plane: &ControlPlane, node: &Node) -> Result<()> {
    let mut again = pod("again", "n1", "echo one; sleep 2; echo two");
    again["spec"]["restartPolicy"] = json!("Always");
    plane.apply(&again)?;
    node.eventually("its log", || {
        let followed = plane.kubectl(&["logs", "-f", "again"])?;
        ensure!(followed.starts_with("one"), "it said {followed:?}");
        Ok(())
    })?;
    node.eventually("the log of the container before", || {
        let before = plane.kubectl(&["logs", "-p", "again"])?;
        ensure!(before == "one\ntwo", "it said {before:?}");
        Ok(())
    })
}

/// In place: the container keeps its id, and its status tells what it has now.
fn resize(plane: &ControlPlane, node: &Node) -> Result<()> {
    let mut sized = pod("sized", "n1", "exec sleep 1000");
    sized["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}});
    plane.apply(&sized)?;
    let before = plane.wait_until_ready("pod", "sized", node)?;
    let more = r#"{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"60m"},"limits":{"cpu":"200m"}}}]}}"#;
    plane.kubectl(&["patch", "pod", "sized", "--subresource=resize", "-p", more])?;
    node.eventually("the new size", || {
        let pod = plane.get("pod", "sized")?;
        let of = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
        let (now, before) = (of(&pod), of(&before));
        ensure!(now["resources"]["limits"]["cpu"] == "200m", "{now:#}");
        ensure!(now["allocatedResources"]["cpu"] == "60m", "{now:#}");
        ensure!(now["containerID"] == before["containerID"], "{now:#}");
        ensure!(now["restartCount"] == 0, "{now:#}");
        Ok(())
    })
}

/// What `kubectl top` is told: metrics servers read this of each node.
fn figures(plane: &ControlPlane, node: &Node) -> Result<()> {
    node.eventually("figures of the pod", || {
        let all = plane.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/metrics/resource"])?;
        for of in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
            let line = all.lines().find(|line| {
                line.starts_with(of) && line.contains("pod=\"a\"") && !line.contains("} 0 ")
            });
            ensure!(line.is_some(), "no {of} of a: {all}");
        }
        ensure!(all.contains("node_memory_working_set_bytes"), "{all}");
        Ok(())
    })
}

/// An ephemeral container that only an API server can bring.
fn debug(plane: &ControlPlane, node: &Node) -> Result<()> {
    let script = "echo found; sleep 1000";
    let image = format!("--image={IMAGE}");
    plane.kubectl(&[
        "debug",
        "a",
        &image,
        "--image-pull-policy=Never",
        "-c",
        "look",
        "--",
        "sh",
        "-c",
        script,
    ])?;
    node.eventually("the ephemeral container to speak", || {
        let logs = plane.kubectl(&["logs", "a", "-c", "look"])?;
        ensure!(logs == "found", "it said {logs:?}");
        Ok(())
    })?;
    let pod = plane.get("pod", "a")?;
    ensure!(pod["status"]["containerStatuses"][0]["restartCount"] == 0, "{:#}", pod["status"]);
    Ok(())
}

fn readiness_gate(plane: &ControlPlane, node: &Node) -> Result<()> {
    let mut gated = pod("gated", "n1", "exec sleep 1000");
    gated["spec"]["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
    plane.apply(&gated)?;
    node.eventually("the gated pod to wait for its gate", || {
        let pod = plane.get("pod", "gated")?;
        ensure!(condition(&pod, "ContainersReady") == Some("True"), "{:#}", pod["status"]);
        ensure!(condition(&pod, "Ready") == Some("False"), "{:#}", pod["status"]);
        Ok(())
    })?;
    let open = r#"{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}"#;
    plane.kubectl(&["patch", "pod", "gated", "--subresource=status", "-p", open])?;
    plane.wait_until_ready("pod", "gated", node).map(drop)
}

/// What must not change while others take over: nothing was started, ready or restarted anew.
fn traces(plane: &ControlPlane, name: &str) -> Result<Value> {
    let pod = plane.get("pod", name)?;
    let conditions = pod["status"]["conditions"].as_array().context("conditions")?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready").context("Ready")?;
    let containers = pod["status"]["containerStatuses"].as_array().context("containers")?;
    let containers = containers.iter().map(|one| {
        json!([one["containerID"], one["restartCount"], one["ready"], one["state"]["running"]])
    });
    Ok(json!({
        "phase": pod["status"]["phase"],
        "ready": [ready["status"], ready["lastTransitionTime"]],
        "containers": containers.collect::<Vec<_>>(),
    }))
}

#[test]
fn pods_of_a_cluster_change_hands_both_ways() -> Result<()> {
    let test = "pods_of_a_cluster_change_hands_both_ways";
    let (Some(binaries), Some(kubelet)) = (control_plane::binaries(test), upstream::binary(test))
    else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let (mut node, plane) = start(&binaries, dir.path())?;
    node.klet.launch_upstream_alike(&kubelet)?;
    node.klet.wait_healthy()?;
    plane.wait_until_ready("node", "n1", &node)?;
    plane.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"},
    }))?;
    let mut probed =
        pod("probed", "n1", "touch /tmp/ok; trap 'exit 0' TERM; while :; do sleep 0.2; done");
    let container = &mut probed["spec"]["containers"][0];
    container["readinessProbe"] =
        json!({"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 1});
    container["livenessProbe"] = container["readinessProbe"].clone();
    container["resources"] = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
    container["volumeMounts"] = json!([
        {"name": "c", "mountPath": "/c"}, {"name": "scratch", "mountPath": "/scratch"},
    ]);
    probed["spec"]["volumes"] = json!([
        {"name": "c", "configMap": {"name": "c"}}, {"name": "scratch", "emptyDir": {}},
    ]);
    plane.apply(&probed)?;
    plane.apply(&pod("plain", "n1", "exec sleep 1000"))?;
    plane.wait_until_ready("pod", "probed", &node)?;
    plane.wait_until_ready("pod", "plain", &node)?;
    let before = (node.instances()?, traces(&plane, "probed")?, traces(&plane, "plain")?);
    // Upstream leaves ready only containers that started ten seconds before it did.
    std::thread::sleep(Duration::from_secs(12));

    for round in 0..2 {
        for is_klet in [true, false] {
            node.klet.stop()?;
            match is_klet {
                true => node.klet.launch()?,
                false => node.klet.launch_upstream_alike(&kubelet)?,
            }
            node.klet.wait_healthy()?;
            let whose = if is_klet { "klet" } else { "upstream" };
            // Whoever holds the node now can be told apart by what it is asked to run.
            let name = format!("{whose}-{round}");
            plane.apply(&pod(&name, "n1", "exec sleep 1000"))?;
            plane.wait_until_ready("pod", &name, &node)?;
            plane.kubectl(&["delete", "pod", &name, "--wait=true", "--timeout=60s"])?;
            node.wait_gone(&name)?;
            let now = (node.instances()?, traces(&plane, "probed")?, traces(&plane, "plain")?);
            assert_eq!(now, before, "{whose} took over, round {round}");
        }
    }
    node.klet.stop()?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    plane.kubectl(&["delete", "pod", "probed", "plain", "--wait=true", "--timeout=60s"])?;
    node.wait_gone("probed")?;
    node.wait_gone("plain")
}

#[test]
fn a_deployment_rolls_out() -> Result<()> {
    let Some(binaries) = control_plane::binaries("a_deployment_rolls_out") else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let (mut node, plane) = start(&binaries, dir.path())?;
    if !plane.is_whole() {
        eprintln!("SKIPPED a_deployment_rolls_out: no kube-controller-manager, kube-scheduler");
        return Ok(());
    }
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    plane.wait_until_ready("node", "n1", &node)?;
    let template = |word: &str| {
        let mut pod = pod("d", "", &format!("echo {word}; exec sleep 1000"));
        pod["spec"].as_object_mut().map(|spec| spec.remove("nodeName"));
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "d"}},
                "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod["spec"]},
            },
        })
    };
    for word in ["one", "two"] {
        plane.apply(&template(word))?;
        plane.kubectl(&["rollout", "status", "deployment/d", "--timeout=120s"])?;
        node.eventually(&format!("every replica to say {word}"), || {
            let logs = plane.kubectl(&["logs", "-l", "app=d", "--prefix=false"])?;
            ensure!(logs.lines().collect::<Vec<_>>() == [word; 3], "they said {logs:?}");
            Ok(())
        })?;
    }
    plane.kubectl(&["delete", "deployment", "d"])?;
    node.eventually("every pod to be gone", || {
        let left = plane.kubectl(&["get", "pods", "-o", "name"])?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(())
    })
}

/// The API server's own store goes and comes back: no container notices.
#[test]
fn a_restart_of_etcd_disturbs_no_pod() -> Result<()> {
    let Some(binaries) = control_plane::binaries("a_restart_of_etcd_disturbs_no_pod") else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let (mut node, mut plane) = start(&binaries, dir.path())?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    plane.wait_until_ready("node", "n1", &node)?;
    plane.apply(&pod("stays", "n1", "exec sleep 1000"))?;
    plane.apply(&pod("goes", "n1", "exec sleep 1000"))?;
    plane.wait_until_ready("pod", "stays", &node)?;
    plane.wait_until_ready("pod", "goes", &node)?;
    let before = (node.instances()?, traces(&plane, "stays")?);
    plane.restart_etcd(Duration::from_secs(20))?;
    let now = (node.instances()?, traces(&plane, "stays")?);
    assert_eq!(now, before, "etcd was away");
    plane.kubectl(&["delete", "pod", "goes", "--wait=true", "--timeout=60s"])?;
    plane.apply(&pod("comes", "n1", "exec sleep 1000"))?;
    plane.wait_until_ready("pod", "comes", &node)?;
    plane.wait_until_ready("node", "n1", &node)?;
    assert_eq!(traces(&plane, "stays")?, before.1);
    Ok(())
}

/// What a conformance run of upstream's suite takes is too long for here: see
/// `cargo xtask conformance`. This only says that such a suite would find its way.
#[test]
fn the_version_is_the_one_upstream_has() -> Result<()> {
    let Some(kubelet) = upstream::binary("the_version_is_the_one_upstream_has") else {
        return Ok(());
    };
    let of =
        |binary: &std::path::Path, args: &[&str]| process::run(Command::new(binary).args(args));
    let upstream = of(&kubelet, &["--version"])?;
    let own = of(&testkit::binaries::klet_binary()?, &["kubelet", "--version"])?;
    ensure!(upstream.trim() == own.trim(), "{upstream:?} and {own:?}");
    Ok(())
}
