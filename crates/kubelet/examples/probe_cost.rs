//! What a thousand probes a second cost this process, for each kind of probe.
//!
//! `cargo run --release -p kubelet --example probe_cost [SECONDS]` prints a share
//! of one core per kind. The servers run in a process of their own. Every probe
//! that did not succeed is counted, so that a cheap failure cannot pass for a
//! cheap success.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures real time, spawns servers

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cri::health::health_check_response::ServingStatus;
use cri::health::health_server::{Health, HealthServer};
use cri::health::{HealthCheckRequest, HealthCheckResponse};
use cri::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use cri::{ClientConfig, CriClient, v1};
use kubelet::events::{Event, Recorder};
use kubelet::ports::{HttpAnswer, HttpRequest, Ports, ProbeNet, RealProbeNet, Tasks};
use kubelet::probe_manager::Probes;
use kubelet::status_manager::Statuses;
use kubelet_model::{ContainerId, DesiredPod, ProbeKind, ProbeResult, Source};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{Request, Response, Status};

const PODS: u32 = 100;
const CONTAINERS: u32 = 10;
/// The unit of `/proc/self/stat`; the kernel shows programs this one whatever its own is.
const TICKS_PER_SECOND: f64 = 100.0;
const WARM_UP: Duration = Duration::from_secs(2);

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match std::env::args().nth(1).as_deref() {
        Some("serve") => runtime.block_on(serve()),
        seconds => {
            let seconds = seconds.map_or(Ok(10), str::parse)?;
            runtime.block_on(measure(Duration::from_secs(seconds)))
        }
    }
}

/// The process that is probed, and where it listens.
struct Servers {
    child: Child,
    tcp: u16,
    http: u16,
    grpc: u16,
    socket: String,
}

impl Servers {
    fn start() -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output of the servers")?;
        BufReader::new(output).read_line(&mut line)?;
        let words: Vec<_> = line.split_whitespace().collect();
        let [tcp, http, grpc, socket] = words[..] else {
            return Err(format!("the servers said {line:?}").into());
        };
        let socket = socket.to_owned();
        Ok(Self { child, tcp: tcp.parse()?, http: http.parse()?, grpc: grpc.parse()?, socket })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Its input ends with this process; there is nobody left to tell otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn measure(duration: Duration) -> Result<(), Failure> {
    let servers = Servers::start()?;
    let kinds = [
        ("tcpSocket", json!({"tcpSocket": {"port": servers.tcp}})),
        ("httpGet", json!({"httpGet": {"port": servers.http, "path": "/healthz"}})),
        ("grpc", json!({"grpc": {"port": servers.grpc}})),
        ("exec", json!({"exec": {"command": ["true"]}})),
    ];
    println!("{} probes, one each per second, for {duration:?}", PODS * CONTAINERS);
    for (name, handler) in kinds {
        let cost = cost(&servers, &handler, duration).await?;
        let rate = cost.tries / duration.as_secs_f64();
        let each = cost.cores / rate * 1e6;
        println!(
            "{name:<10} {:.3} cores at {rate:.0} a second, {each:.0} µs each; {} without success",
            cost.cores, cost.unwell
        );
        if let Some(event) = cost.events.first() {
            let total: u32 = cost.events.iter().map(|event| event.count).sum();
            println!("{:<10} {total} failures, the first: {}", "", event.message);
        }
    }
    Ok(())
}

/// What came of measuring one kind.
struct Cost {
    /// Share of one core.
    cores: f64,
    /// Probes begun while measuring.
    tries: f64,
    /// Probes that have not succeeded.
    unwell: usize,
    /// Failures on the way.
    events: Vec<Event>,
}

async fn cost(servers: &Servers, handler: &Value, duration: Duration) -> Result<Cost, Failure> {
    let runtime = CriClient::new(ClientConfig {
        runtime_endpoint: format!("unix://{}", servers.socket),
        image_endpoint: None,
        request_timeout: Duration::from_secs(10),
    })?;
    let tasks = Tasks::default();
    let net = Arc::new(Counted::default());
    let ports = Ports {
        probe_net: Arc::clone(&net) as Arc<dyn ProbeNet>,
        tasks: tasks.clone(),
        ..Ports::around(Arc::new(runtime))
    };
    let statuses = Statuses::default();
    let recorder = Recorder::new(Arc::clone(&ports.clock));
    let probes = Probes::new(&ports, statuses.clone(), recorder.clone());
    let pods = (0..PODS).map(|n| pod(n, handler)).collect::<Result<Vec<_>, _>>()?;
    for (n, pod) in (0..PODS).zip(&pods) {
        statuses.set(pod, serde_json::from_value(status(n))?);
        probes.ensure(pod);
    }
    tokio::time::sleep(WARM_UP).await;
    let (before, tries) = (cpu_seconds()?, net.tries());
    let began = std::time::Instant::now();
    tokio::time::sleep(duration).await;
    let used = cpu_seconds()? - before;
    let cores = used / began.elapsed().as_secs_f64();
    let unwell = pods
        .iter()
        .flat_map(|pod| {
            let results = probes.results(pod.uid());
            (0..CONTAINERS)
                .map(move |c| results.get(&ContainerId::new(format!("c{c}")), ProbeKind::Readiness))
        })
        .filter(|result| *result != Some(ProbeResult::Success))
        .count();
    tasks.abort_all();
    let tries = match net.tries() - tries {
        0 => f64::from(PODS * CONTAINERS) * duration.as_secs_f64(),
        // Far below the precision of a float.
        tries => tries as f64,
    };
    Ok(Cost { cores, tries, unwell, events: recorder.all() })
}

fn pod(n: u32, handler: &Value) -> Result<DesiredPod, Failure> {
    let mut probe = handler.clone();
    probe["periodSeconds"] = json!(1);
    // A busy machine makes the servers slow; that must not make probes cheap.
    probe["timeoutSeconds"] = json!(30);
    let container = |c: u32| json!({"name": format!("c{c}"), "readinessProbe": probe});
    let pod = json!({
        "metadata": {"name": format!("p{n}"), "namespace": "default", "uid": format!("u{n}")},
        "spec": {"containers": (0..CONTAINERS).map(container).collect::<Vec<_>>()},
    });
    let pod = DesiredPod::new(Source::File, Arc::new(serde_json::from_value(pod)?));
    pod.ok_or_else(|| "a pod without a name".into())
}

/// A pod of which everything runs, at an address of its own.
fn status(n: u32) -> Value {
    let container = |c: u32| {
        json!({
            "name": format!("c{c}"), "containerID": format!("bench://c{c}"), "started": true,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "image": "", "imageID": "", "ready": false, "restartCount": 0,
        })
    };
    let containers: Vec<_> = (0..CONTAINERS).map(container).collect();
    json!({"phase": "Running", "podIP": format!("127.0.0.{}", n + 1), "containerStatuses": containers})
}

/// Time on a processor, in user and kernel mode.
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("odd /proc/self/stat")?.1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_SECOND)
}

/// Counts what is asked of the network; commands do not pass here, and are taken
/// to have run once a second.
#[derive(Default)]
struct Counted {
    net: RealProbeNet,
    tries: AtomicU64,
}

impl Counted {
    fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }
    fn count(&self) {
        self.tries.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl ProbeNet for Counted {
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String> {
        self.count();
        self.net.http(request).await
    }
    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), String> {
        self.count();
        self.net.tcp(host, port, timeout).await
    }
    async fn grpc(
        &self,
        host: &str,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<(), String> {
        self.count();
        self.net.grpc(host, port, service, timeout).await
    }
}

async fn serve() -> Result<(), Failure> {
    let (tcp, http, grpc) = (listen().await?, listen().await?, listen().await?);
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("runtime.sock");
    let unix = UnixListener::bind(&socket)?;
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    println!("{} {} {} {}", port(&tcp)?, port(&http)?, port(&grpc)?, socket.display());
    std::io::stdout().flush()?;
    tokio::spawn(async move { while tcp.accept().await.is_ok() {} });
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = http.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            });
        }
    });
    let health = tonic::transport::Server::builder().add_service(HealthServer::new(Well));
    tokio::spawn(health.serve_with_incoming(TcpListenerStream::new(grpc)));
    let runtime = tonic::transport::Server::builder().add_service(RuntimeServiceServer::new(Well));
    runtime.serve_with_incoming(UnixListenerStream::new(unix)).await?;
    Ok(())
}

async fn listen() -> std::io::Result<TcpListener> {
    TcpListener::bind("0.0.0.0:0").await
}

struct Well;

#[tonic::async_trait]
impl Health for Well {
    async fn check(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = ServingStatus::Serving.into();
        Ok(Response::new(HealthCheckResponse { status }))
    }
}

#[tonic::async_trait]
impl RuntimeService for Well {
    async fn exec_sync(
        &self,
        _request: Request<v1::ExecSyncRequest>,
    ) -> Result<Response<v1::ExecSyncResponse>, Status> {
        Ok(Response::new(v1::ExecSyncResponse::default()))
    }
}
