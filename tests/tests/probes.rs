//! Probes on real containers: what they hold back, what they report, what they end.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cri::health::health_check_response::ServingStatus;
use cri::health::health_server::{Health, HealthServer};
use cri::health::{HealthCheckRequest, HealthCheckResponse};
use serde_json::{Value, json};
use testkit::{Node, PodManifest, http};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const STAYS: &str = "touch /tmp/alive; trap 'exit 0' TERM; while true; do sleep 0.1; done";
const WEB: &str = "mkdir /tmp/www; echo hi >/tmp/www/here; exec httpd -f -p 8080 -h /tmp/www";

/// A probe that asks every second and takes one answer for the truth.
fn every_second(mut handler: Value) -> Value {
    handler["periodSeconds"] = json!(1);
    // One answer decides, so a busy machine gets time to give it.
    handler["timeoutSeconds"] = json!(10);
    handler["failureThreshold"] = json!(1);
    handler
}

fn has_file(path: &str) -> Value {
    every_second(json!({"exec": {"command": ["test", "-e", path]}}))
}

fn get(path: &str, port: Value) -> Value {
    every_second(json!({"httpGet": {"path": path, "port": port}}))
}

fn wait_ready(node: &Node, name: &str, ready: bool) -> Result<()> {
    let pod = node.wait_pod(name, &format!("to have ready={ready}"), |pod| {
        pod.container("main").is_ok_and(|main| main.ready == ready)
    })?;
    assert_eq!((pod.is("Ready"), pod.is("ContainersReady")), (ready, ready), "{pod:?}");
    Ok(())
}

#[test]
fn startup_holds_back_the_rest_and_readiness_is_told() -> Result<()> {
    let node = Node::start()?;
    let mut startup = has_file("/tmp/started");
    startup["failureThreshold"] = json!(600);
    let pod = PodManifest::script("gated", STAYS)
        .with("startupProbe", startup)
        .with("readinessProbe", has_file("/tmp/ready"))
        // It would end the container at once, had it a say.
        .with("livenessProbe", has_file("/tmp/started"));
    node.manifests.put_pod(&pod)?;
    let before = node.wait_running("gated")?;
    assert!(!before.container("main")?.started && !before.container("main")?.ready);
    assert!(!before.is("Ready") && before.is("Initialized"), "{before:?}");

    node.run_in("gated", "main", "touch /tmp/started")?;
    node.wait_pod("gated", "to have started", |pod| {
        pod.container("main").is_ok_and(|main| main.started)
    })?;
    wait_ready(&node, "gated", false)?;
    node.run_in("gated", "main", "touch /tmp/ready")?;
    wait_ready(&node, "gated", true)?;
    node.run_in("gated", "main", "rm /tmp/ready")?;
    wait_ready(&node, "gated", false)?;
    node.run_in("gated", "main", "touch /tmp/ready")?;
    wait_ready(&node, "gated", true)?;
    assert_eq!(node.pod("gated")?.container("main")?.restarts, 0, "readiness ends nothing");
    let metrics = http::get_ok(node.klet.read_only_port(), "/metrics/probes")?;
    for (kind, result) in
        [("Startup", "successful"), ("Readiness", "successful"), ("Readiness", "failed")]
    {
        let series = format!(
            "prober_probe_total{{probe_type=\"{kind}\",result=\"{result}\",container=\"main\",pod=\"gated-n1\""
        );
        assert!(metrics.contains(&series), "{series}: {metrics}");
    }
    Ok(())
}

#[test]
fn what_has_started_is_asked_at_once() -> Result<()> {
    let node = Node::start()?;
    let mut rarely = every_second(json!({"exec": {"command": ["true"]}}));
    rarely["periodSeconds"] = json!(3600);
    node.manifests.put_pod(&PodManifest::script("rare", STAYS).with("readinessProbe", rarely))?;
    wait_ready(&node, "rare", true)
}

#[test]
fn readiness_does_not_flap_when_klet_restarts() -> Result<()> {
    let mut node = Node::start()?;
    let pod = PodManifest::script("steady", STAYS).with("readinessProbe", has_file("/tmp/alive"));
    node.manifests.put_pod(&pod)?;
    wait_ready(&node, "steady", true)?;
    // Younger containers may have been started by nobody but this klet.
    let start = Instant::now();
    node.eventually("the container to be old enough", || {
        ensure!(start.elapsed() > Duration::from_secs(11), "it is {:?} old", start.elapsed());
        Ok(())
    })?;
    node.klet.restart()?;
    let start = Instant::now();
    let mut seen = 0;
    // Some probes are made meanwhile.
    while start.elapsed() < Duration::from_secs(3) {
        if let Ok(pod) = node.pod("steady")
            && let Ok(main) = pod.container("main")
            && main.state == "running"
        {
            seen += 1;
            let ready = main.ready && main.started && pod.is("Ready");
            assert!(ready, "it flapped after {:?}: {pod:?}", start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    ensure!(seen > 0, "the pod was never seen");
    Ok(())
}

#[test]
fn requests_and_connections() -> Result<()> {
    let node = Node::start()?;
    let port = json!([{"name": "http", "containerPort": 8080}]);
    let web = |name: &str, probe: Value| {
        PodManifest::script(name, WEB).with("ports", port.clone()).with("readinessProbe", probe)
    };
    let tcp = |port: u16| every_second(json!({"tcpSocket": {"port": port}}));
    node.manifests.put_pod(&web("found", get("/here", json!("http"))))?;
    node.manifests.put_pod(&web("missing", get("/nowhere", json!(8080))))?;
    node.manifests.put_pod(&web("open", tcp(8080)))?;
    node.manifests.put_pod(&web("closed", tcp(8081)))?;
    // Nobody there speaks gRPC.
    node.manifests.put_pod(&web("grpc", every_second(json!({"grpc": {"port": 8080}}))))?;
    wait_ready(&node, "found", true)?;
    wait_ready(&node, "open", true)?;
    for name in ["missing", "closed", "grpc"] {
        node.wait_running(name)?;
        wait_ready(&node, name, false)?;
        assert_eq!(node.pod(name)?.container("main")?.restarts, 0, "{name}");
    }
    // What it asks for appears: the next answer counts.
    node.run_in("missing", "main", "touch /tmp/www/nowhere")?;
    wait_ready(&node, "missing", true)
}

/// Serves one service and is ill with another.
struct Checker;

#[tonic::async_trait]
impl Health for Checker {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let well = request.into_inner().service == "well";
        let status = if well { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }
}

/// A gRPC server on this host, which ends with the test.
fn health_server() -> Result<u16> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("0.0.0.0", 0)));
    let listener = listener.context("cannot listen")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        let server = tonic::transport::Server::builder().add_service(HealthServer::new(Checker));
        runtime.block_on(server.serve_with_incoming(TcpListenerStream::new(listener)))
    });
    Ok(port)
}

#[test]
fn grpc_services_are_asked_by_name() -> Result<()> {
    let node = Node::start()?;
    let port = health_server()?;
    // On the host's network the server is the pod's own, as far as a probe can tell.
    let pod = |name: &str| {
        let probe = json!({"grpc": {"port": port, "service": name}});
        let pod = PodManifest::script(name, STAYS).spec("hostNetwork", json!(true));
        pod.with("readinessProbe", every_second(probe))
    };
    node.manifests.put_pod(&pod("well"))?;
    node.manifests.put_pod(&pod("ill"))?;
    wait_ready(&node, "well", true)?;
    node.wait_running("ill")?;
    wait_ready(&node, "ill", false)
}

#[test]
fn what_does_not_live_is_started_again() -> Result<()> {
    let node = Node::start()?;
    let alive = PodManifest::script("alive", STAYS).with("livenessProbe", has_file("/tmp/alive"));
    let mut endless = every_second(json!({"exec": {"command": ["sleep", "60"]}}));
    endless["timeoutSeconds"] = json!(1);
    let slow = PodManifest::script("slow", STAYS).with("livenessProbe", endless);
    // It never comes up.
    let late = PodManifest::script("late", STAYS).with("startupProbe", has_file("/tmp/never"));
    // The probe has a grace of its own, shorter than the pod's.
    let mut hasty = has_file("/tmp/alive");
    hasty["terminationGracePeriodSeconds"] = json!(1);
    let deaf = "touch /tmp/alive; trap '' TERM; while true; do sleep 0.1; done";
    let deaf = PodManifest::script("deaf", deaf).with("livenessProbe", hasty).grace(600);
    let beside = PodManifest::new("beside")
        .sidecar("side", STAYS)
        .with("livenessProbe", has_file("/tmp/alive"))
        .container("main", STAYS);
    for pod in [&alive, &slow, &late, &deaf, &beside] {
        node.manifests.put_pod(pod)?;
    }
    node.wait_running("beside")?;
    node.eventually("its file", || node.run_in("beside", "side", "rm /tmp/alive"))?;
    for name in ["alive", "deaf"] {
        node.wait_running(name)?;
        // As soon as it runs it may not have made its file yet.
        node.eventually("its file", || node.run_in(name, "main", "rm /tmp/alive"))?;
    }
    for name in ["alive", "deaf", "slow", "late"] {
        let pod = node.wait_pod(name, "to be started again", |pod| {
            pod.container("main").is_ok_and(|main| main.restarts >= 1)
        })?;
        assert_eq!(pod.phase, "Running", "{pod:?}");
    }
    let pod = node.wait_pod("beside", "to have its sidecar started again", |pod| {
        pod.container("side").is_ok_and(|side| side.restarts >= 1)
    })?;
    assert_eq!(pod.container("main")?.restarts, 0, "{pod:?}");
    let again = node.wait_running("alive")?;
    assert_eq!(again.container("main")?.exit_code, Some(0), "it was asked to stop");
    // Or the pod would hold its node for its grace of ten minutes.
    node.manifests.put_pod(&deaf.grace(1))?;
    Ok(())
}
