//! Hooks after the start and before the stop: commands, requests and pauses,
//! within the pod's grace, also when klet was away.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testkit::https::HttpsServer;
use testkit::{Node, PodManifest, http};

/// Says when it is told to stop.
const STAYS: &str = "trap 'echo term; exit 0' TERM; echo up; while true; do sleep 0.1; done";

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["/bin/sh", "-c", script]}})
}

fn pod(name: &str, lifecycle: Value) -> PodManifest {
    PodManifest::script(name, STAYS).with("lifecycle", lifecycle).grace(30)
}

/// Before its signal the container hears of its end, and the signal waits for that.
fn check_pre_stop_order(log: &testkit::ContainerLog) -> Result<()> {
    let texts: Vec<String> = log.lines()?.into_iter().map(|line| line.text).collect();
    assert_eq!(texts, ["up", "before", "after", "term"]);
    Ok(())
}

/// A command that tells of itself in the container's own log.
fn told() -> Value {
    exec("echo before >/proc/1/fd/1; sleep 1; echo after >/proc/1/fd/1")
}

#[test]
fn commands_run_after_the_start_and_before_the_signal() -> Result<()> {
    let mut node = Node::start()?;
    let hooks = json!({"postStart": exec("echo hook >/tmp/hook"), "preStop": told()});
    node.manifests.put_pod(&pod("both", hooks.clone()))?;
    node.manifests.put_pod(&pod("orphan", json!({"preStop": told()})))?;
    node.wait_running("both")?;
    node.wait_running("orphan")?;
    assert_eq!(node.run_in("both", "main", "cat /tmp/hook")?, "hook\n");
    let log = node.wait_word("both", "main", "up")?;
    let orphan = node.wait_word("orphan", "main", "up")?;

    node.manifests.remove_pod("both")?;
    node.wait_gone("both")?;
    check_pre_stop_order(&log)?;

    // Without its manifest, a pod ends as the annotations of its containers say.
    node.klet.kill9()?;
    node.manifests.remove_pod("orphan")?;
    node.klet.launch()?;
    node.klet.wait_healthy()?;
    node.wait_gone("orphan")?;
    check_pre_stop_order(&orphan)
}

#[test]
fn grace_covers_pauses_and_slow_hooks() -> Result<()> {
    let node = Node::start()?;
    let pause = json!({"preStop": {"sleep": {"seconds": 2}}});
    node.manifests.put_pod(&pod("pause", pause))?;
    node.manifests.put_pod(&pod("slow", json!({"preStop": exec("sleep 600")})).grace(3))?;
    for name in ["pause", "slow"] {
        node.wait_running(name)?;
        node.wait_word(name, "main", "up")?;
    }
    let removed = |name: &str| -> Result<Duration> {
        let start = Instant::now();
        node.manifests.remove_pod(name)?;
        node.wait_gone(name)?;
        Ok(start.elapsed())
    };
    let took = removed("pause")?;
    assert!(
        took >= Duration::from_secs(2),
        "it was stopped after {took:?}, before its pause ended"
    );
    assert!(took < Duration::from_secs(60), "it took {took:?}");
    let took = removed("slow")?;
    assert!(took >= Duration::from_secs(3), "its hook had only {took:?}");
    assert!(took < Duration::from_secs(60), "its hook had {took:?} of 3 s");
    Ok(())
}

/// A server on this host that says what it was asked for, in plain HTTP.
fn server() -> Result<(u16, mpsc::Receiver<String>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
    let port = listener.local_addr()?.port();
    let (sender, asked) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            let size = stream.read(&mut head).unwrap_or(0);
            let _ = stream.write_all(b"HTTP/1.1 500 Oh no\r\nContent-Length: 0\r\n\r\n");
            if sender.send(String::from_utf8_lossy(&head[..size]).into_owned()).is_err() {
                return;
            }
        }
    });
    Ok((port, asked))
}

#[test]
fn requests_are_sent_with_their_headers() -> Result<()> {
    let node = Node::start()?;
    let (port, asked) = server()?;
    let get = |path: &str| {
        json!({"httpGet": {"host": "127.0.0.1", "port": port, "path": path,
            "httpHeaders": [{"name": "X-Hook", "value": "yes"}]}})
    };
    let hooks = json!({"postStart": get("/started?a=b"), "preStop": get("/stopping")});
    node.manifests.put_pod(&pod("asks", hooks))?;
    // That there is an answer is enough, whatever it says.
    node.wait_running("asks")?;
    let next = || asked.recv_timeout(Duration::from_secs(30)).context("no request came");
    let started = next()?;
    assert!(started.starts_with("GET /started?a=b HTTP/1.1\r\n"), "{started}");
    assert!(started.to_lowercase().contains("x-hook: yes\r\n"), "{started}");
    assert!(started.to_lowercase().contains("user-agent: kube-lifecycle/"), "{started}");
    node.manifests.remove_pod("asks")?;
    let stopping = next()?;
    assert!(stopping.starts_with("GET /stopping HTTP/1.1\r\n"), "{stopping}");
    node.wait_gone("asks")
}

#[test]
fn a_request_goes_to_the_pod_and_a_port_by_name() -> Result<()> {
    let node = Node::start()?;
    let get = json!({"httpGet": {"port": "web", "path": "/cgi-bin/asked"}});
    let script = "mkdir -p /tmp/www/cgi-bin; cd /tmp/www/cgi-bin; \
        printf '#!/bin/sh\\necho; echo asked $REQUEST_URI > /proc/1/fd/1' > asked; chmod +x asked; \
        httpd -p 8080 -h /tmp/www; trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let pod = PodManifest::script("asked", script)
        .with("ports", json!([{"name": "web", "containerPort": 8080}]))
        .with("lifecycle", json!({"preStop": get}));
    node.manifests.put_pod(&pod)?;
    let ip = node.wait_running("asked")?.ip.context("a pod that runs has an address")?;
    node.eventually("the pod to listen", || {
        Ok(std::net::TcpStream::connect((ip.as_str(), 8080)).map(drop)?)
    })?;
    let log = node.log("asked", "main", 0)?;
    node.manifests.remove_pod("asked")?;
    node.wait_gone("asked")?;
    log.time_of("asked /cgi-bin/asked")?;
    Ok(())
}

#[test]
fn failing_hooks() -> Result<()> {
    let node = Node::start()?;
    let bad = exec("echo not today; exit 7");
    node.manifests.put_pod(&pod("starts-badly", json!({"postStart": bad})).grace(2))?;
    node.manifests.put_pod(&pod("stops-badly", json!({"preStop": bad})))?;

    // A container whose hook fails is stopped and tried again.
    let failed = node.wait_pod("starts-badly", "to be stopped by its hook", |pod| {
        pod.container("main").is_ok_and(|main| main.reason == "PostStartHookError")
    })?;
    let message = &failed.container("main")?.message;
    assert!(message.contains("exited with 7: not today"), "{message}");
    node.wait_pod("starts-badly", "to be tried again", |pod| {
        pod.container("main").is_ok_and(|main| main.restarts >= 1)
    })?;

    // A hook that fails before the stop delays nothing.
    node.wait_running("stops-badly")?;
    let log = node.wait_word("stops-badly", "main", "up")?;
    node.manifests.remove_pod("stops-badly")?;
    node.wait_gone("stops-badly")?;
    log.time_of("term")?;
    Ok(())
}

fn get(scheme: &str, port: u16, path: &str) -> Value {
    json!({"httpGet": {"scheme": scheme, "host": "127.0.0.1", "port": port, "path": path,
        "httpHeaders": [{"name": "Authorization", "value": "Basic eDp5"}]}})
}

#[test]
fn requests_are_encrypted_if_that_is_asked_for() -> Result<()> {
    let node = Node::start()?;
    // Nobody vouches for its certificate.
    let server = HttpsServer::start("404 Not Found")?;
    let hook = |path: &str| get("HTTPS", server.port(), path);
    let hooks = json!({"postStart": hook("/started"), "preStop": hook("/stopping")});
    node.manifests.put_pod(&pod("secret", hooks))?;
    node.wait_running("secret")?;
    let heads = |count: usize| {
        node.eventually("the requests", || {
            let asked = server.asked();
            anyhow::ensure!(asked.len() == count, "{asked:?}");
            Ok(asked)
        })
    };
    let first = heads(1)?.remove(0);
    assert!(first.starts_with("GET /started HTTP/1.1\r\n"), "{first}");
    assert!(first.to_lowercase().contains("authorization: basic edp5\r\n"), "{first}");
    node.manifests.remove_pod("secret")?;
    node.wait_gone("secret")?;
    let second = heads(2)?.remove(1);
    assert!(second.starts_with("GET /stopping HTTP/1.1\r\n"), "{second}");
    Ok(())
}

#[test]
fn a_server_without_encryption_is_asked_again_in_the_clear() -> Result<()> {
    let node = Node::start()?;
    let (port, asked) = server()?;
    node.manifests.put_pod(&pod("clear", json!({"postStart": get("HTTPS", port, "/clear")})))?;
    node.wait_running("clear")?;
    let next = || asked.recv_timeout(Duration::from_secs(30)).context("no request came");
    let hello = next()?;
    assert!(!hello.starts_with("GET"), "the first try is TLS: {hello}");
    let plain = next()?;
    assert!(plain.starts_with("GET /clear HTTP/1.1\r\n"), "{plain}");
    assert!(!plain.to_lowercase().contains("authorization"), "a secret in the clear: {plain}");
    let words = format!(
        "Warning LifecycleHTTPFallback default/clear-n1 request to HTTPS lifecycle hook \
         127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
    );
    node.wait_says(&["events", "clear"], &[&words])?;
    let metrics = http::get_ok(node.klet.read_only_port(), "/metrics")?;
    let counted = "kubelet_lifecycle_handler_http_fallbacks_total 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    Ok(())
}

#[test]
fn a_pause_after_the_start_holds_back_the_next_container() -> Result<()> {
    let node = Node::start()?;
    let pause = json!({"postStart": {"sleep": {"seconds": 4}}});
    node.manifests.put_pod(&pod("paused", pause).container("next", STAYS))?;
    node.wait_running("paused")?;
    let started =
        |name: &str| Ok::<_, anyhow::Error>(node.container_status("paused", name)?.started_at);
    let apart = started("next")? - started("main")?;
    assert!(apart >= 4_000_000_000, "the next one started after {apart} ns");
    Ok(())
}
