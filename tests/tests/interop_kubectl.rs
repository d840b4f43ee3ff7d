//! More of what kubectl and a stock control plane ask of a node: options of logs, streams
//! over SPDY, terminals, debugging, and a node that has only a token to begin with.
//!
//! Needs upstream's binaries (`KUBEBUILDER_ASSETS`) and says so where they are missing.
//! `make interop` runs this.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::control_plane::{self, ControlPlane};
use testkit::{Node, process};

const IMAGE: &str = "docker.io/library/busybox:latest";
const TOKEN_ID: &str = "abcdef";
const TOKEN_SECRET: &str = "0123456789abcdef";
/// Streams as kubectl made them before it had WebSockets.
const SPDY: [&str; 2] = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
            }],
        },
    })
}

fn start(binaries: &Path, dir: &Path) -> Result<(Node, ControlPlane)> {
    let plane = ControlPlane::start(binaries, dir)?;
    let mut node = plane.prepare_node()?;
    plane.eventually_has("serviceaccount", "default", &node)?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    plane.wait_until_ready("node", "n1", &node)?;
    Ok((node, plane))
}

#[test]
fn options_of_logs_and_streams() -> Result<()> {
    let Some(binaries) = control_plane::binaries("options_of_logs_and_streams") else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let (node, plane) = start(&binaries, dir.path())?;
    let mut two = pod("two", "for i in 1 2 3 4; do echo line $i; done; exec sleep 1000");
    let mut other = two["spec"]["containers"][0].clone();
    other["name"] = json!("other");
    other["command"] = json!(["sh", "-c", "echo other; exec sleep 1000"]);
    two["spec"]["containers"].as_array_mut().context("containers")?.push(other);
    plane.apply(&two)?;
    plane.wait_until_ready("pod", "two", &node)?;
    logs(&plane)?;
    spdy(&plane)?;
    terminal(&plane)?;
    copies(&plane, dir.path())?;
    debugging(&plane, &node)?;
    node_logs(&plane)
}

fn logs(plane: &ControlPlane) -> Result<()> {
    let logs = |options: &[&str]| plane.kubectl(&[&["logs", "two"], options].concat());
    let first = ["-c", "app"];
    ensure!(logs(&[&first[..], &["--tail=2"]].concat())? == "line 3\nline 4", "--tail");
    ensure!(logs(&[&first[..], &["--limit-bytes=6"]].concat())? == "line 1", "--limit-bytes");
    ensure!(logs(&[&first[..], &["--since=1h"]].concat())?.lines().count() == 4, "--since");
    ensure!(logs(&[&first[..], &["--since-time=2100-01-01T00:00:00Z"]].concat())?.is_empty());
    let stamped = logs(&[&first[..], &["--timestamps", "--tail=1"]].concat())?;
    let (stamp, line) = stamped.split_once(' ').context("no stamp")?;
    ensure!(stamp.starts_with("20") && stamp.contains('T') && line == "line 4", "{stamped:?}");
    let all = logs(&["--all-containers", "--prefix"])?;
    ensure!(all.contains("[pod/two/app] line 1") && all.contains("[pod/two/other] other"), "{all}");
    Ok(())
}

/// Both ways that kubectl knows lead to the runtime.
fn spdy(plane: &ControlPlane) -> Result<()> {
    for way in ["false", "true"] {
        let exec = |args: &[&str]| {
            let mut command = plane.kubectl_command(args);
            command.envs(SPDY.map(|variable| (variable, way)));
            command
        };
        let script = "echo out; echo err >&2; exit 3";
        let ended = exec(&["exec", "two", "-c", "app", "--", "sh", "-c", script]).output()?;
        ensure!(ended.status.code() == Some(3), "{way}: {ended:?}");
        ensure!(ended.stdout == b"out\n", "{way}: {ended:?}");
        ensure!(ended.stderr.starts_with(b"err\n"), "{way}: {ended:?}");
    }
    Ok(())
}

/// `script` lends kubectl a terminal.
fn terminal(plane: &ControlPlane) -> Result<()> {
    let inner = plane.kubectl_command(&["exec", "-it", "two", "-c", "app", "--", "tty"]);
    let words = std::iter::once(inner.get_program()).chain(inner.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let told = process::run(Command::new("script").args(["-qec", &line, "/dev/null"]))?;
    ensure!(told.contains("/dev/pts/"), "tty said {told:?}");
    Ok(())
}

fn copies(plane: &ControlPlane, dir: &Path) -> Result<()> {
    let (there, back) = (dir.join("there"), dir.join("back"));
    std::fs::write(&there, vec![b'x'; 300_000])?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    plane.kubectl(&["cp", &text(&there), "two:/tmp/file", "-c", "app"])?;
    plane.kubectl(&["cp", "two:/tmp/file", &text(&back), "-c", "app"])?;
    ensure!(std::fs::read(&there)? == std::fs::read(&back)?, "a copy differs");
    Ok(())
}

fn debugging(plane: &ControlPlane, node: &Node) -> Result<()> {
    let image = format!("--image={IMAGE}");
    let target = ["debug", "two", &image, "--image-pull-policy=Never", "-c", "look"];
    let script = ["--target=app", "--", "sh", "-c", "cat /proc/1/cmdline; echo; sleep 1000"];
    plane.kubectl(&[&target[..], &script].concat())?;
    node.eventually("the debugger to see its target's processes", || {
        let told = plane.kubectl(&["logs", "two", "-c", "look"])?;
        ensure!(told.contains("sleep"), "it said {told:?}");
        Ok(())
    })?;
    let of_node = ["debug", "node/n1", &image, "--image-pull-policy=Never", "--profile=sysadmin"];
    plane
        .kubectl(&[&of_node[..], &["--", "sh", "-c", "ls -d /host/proc/1; sleep 1000"]].concat())?;
    let pods = plane.kubectl(&["get", "pods", "-o", "name"])?;
    let name = pods.lines().find(|name| name.contains("node-debugger")).context("no debugger")?;
    node.eventually("the debugger to see the node's files", || {
        let told = plane.kubectl(&["logs", name])?;
        ensure!(told == "/host/proc/1", "it said {told:?}");
        Ok(())
    })
}

fn node_logs(plane: &ControlPlane) -> Result<()> {
    let listed = plane.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/logs/"])?;
    ensure!(listed.contains("<a href="), "logs of the node: {listed}");
    let healthy = plane.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/healthz"])?;
    ensure!(healthy == "ok", "{healthy}");
    Ok(())
}

/// A bootstrap token, and who may do what with one, as kubeadm sets it up.
fn allow_bootstrap(plane: &ControlPlane) -> Result<()> {
    plane.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{TOKEN_ID}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": TOKEN_ID, "token-secret": TOKEN_SECRET,
            "usage-bootstrap-authentication": "true",
        },
    }))?;
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    for (name, role, group) in [
        ("create", "system:node-bootstrapper".to_owned(), "system:bootstrappers"),
        ("first", format!("{requests}:nodeclient"), "system:bootstrappers"),
        ("next", format!("{requests}:selfnodeclient"), "system:nodes"),
    ] {
        let api = "rbac.authorization.k8s.io";
        plane.apply(&json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
        }))?;
    }
    Ok(())
}

#[test]
fn a_token_becomes_a_node_of_a_stock_cluster() -> Result<()> {
    let test = "a_token_becomes_a_node_of_a_stock_cluster";
    let Some(binaries) = control_plane::binaries(test) else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let plane = ControlPlane::start(&binaries, dir.path())?;
    if !plane.is_whole() {
        eprintln!("SKIPPED {test}: no kube-controller-manager, who signs certificates");
        return Ok(());
    }
    let mut node = plane.prepare_node()?;
    plane.eventually_has("serviceaccount", "default", &node)?;
    allow_bootstrap(&plane)?;
    let token = format!("{TOKEN_ID}.{TOKEN_SECRET}");
    let bootstrap = plane.token_kubeconfig("bootstrap", &token)?;
    node.klet.drop_flag("kubeconfig");
    node.klet.add_flag("kubeconfig", &dir.path().join("made-by-klet.conf"));
    node.klet.add_flag("bootstrap-kubeconfig", &bootstrap);
    node.klet.add_switch("rotate-certificates");
    node.klet.add_switch("rotate-server-certificates");
    node.klet.launch()?;
    plane.wait_until_ready("node", "n1", &node)?;

    // The controller manager approves what a node asks to be, not what it serves with.
    node.eventually("a serving certificate", || {
        let text = plane.kubectl(&["get", "csr", "-o", "json"])?;
        let all: Value = serde_json::from_str(&text)?;
        for request in all["items"].as_array().context("no list")? {
            let of_server = request["spec"]["signerName"] == "kubernetes.io/kubelet-serving";
            if of_server && request["status"]["certificate"].is_null() {
                let name = request["metadata"]["name"].as_str().context("no name")?;
                plane.kubectl(&["certificate", "approve", name])?;
            }
        }
        let pki = node.containerd.dir().join("pki/kubelet-server-current.pem");
        ensure!(pki.exists(), "{text}");
        Ok(())
    })?;
    plane.apply(&pod("p", "echo here; exec sleep 1000"))?;
    plane.wait_until_ready("pod", "p", &node)?;
    node.eventually("its log", || {
        let told = plane.kubectl(&["logs", "p"])?;
        ensure!(told == "here", "it said {told:?}");
        Ok(())
    })
}
