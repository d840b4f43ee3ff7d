//! The agent as a process of a real machine: real ports, servers, directories.
//!
//! Owns nothing but what it hands to the agent. Upstream: cmd/kubelet/app.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::{ClientConfig, CriClient, EndpointError};
use kubelet_config::{Config, Flags};

use crate::ports::{Fs, HyperFetch, Jitter, Ports, RealFs, SystemClock, Tasks};
use crate::server::local::{self, Local, Place};
use crate::server::{self, ListenError, View};
use crate::settings::Settings;
use crate::wiring::Agent;

/// Where flat links to container logs lie; log shippers expect them there.
pub const CONTAINER_LOG_LINKS: &str = "/var/log/containers";

/// Why the agent could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No node name.
    #[error("this machine has no usable host name ({0:?}); set --hostname-override")]
    NoHostname(String),
    /// An endpoint cannot be used.
    #[error("container runtime endpoint: {0}")]
    Endpoint(#[from] EndpointError),
    /// A directory cannot be made.
    #[error("cannot create {}: {source}", .path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A port cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A part that nothing works without has panicked.
    #[error("the {0} panicked, see the log; pods keep running, start the agent again")]
    Panicked(&'static str),
}

/// A node ready to run.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    runtime: ClientConfig,
    healthz: Option<SocketAddr>,
    read_only: Option<SocketAddr>,
}

impl Node {
    /// Reads what the machine tells and what the configuration says.
    pub fn new(config: &Config, flags: &Flags) -> Result<Self, NodeError> {
        let runtime = &config.runtime;
        let image_endpoint =
            Some(runtime.image_endpoint.clone()).filter(|image| image != &runtime.endpoint);
        Ok(Self {
            settings: settings(config, flags)?,
            runtime: ClientConfig {
                runtime_endpoint: runtime.endpoint.clone(),
                image_endpoint,
                request_timeout: runtime.request_timeout,
            },
            healthz: config.server.healthz,
            read_only: config.server.read_only,
        })
    }

    /// Runs until `shutdown`. Pods keep running after that.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), NodeError> {
        let fs = RealFs;
        let settings = &self.settings;
        make_dir(&fs, &settings.root_dir, 0o750)?;
        make_dir(&fs, &settings.pod_logs_dir, 0o750)?;
        make_dir(&fs, &settings.container_log_links_dir, 0o755)?;
        let tasks = Tasks::default();
        let ports = Ports {
            runtime: Arc::new(CriClient::new(self.runtime)?),
            fs: Arc::new(fs),
            http: Arc::new(HyperFetch::default()),
            clock: Arc::new(SystemClock::new()),
            jitter: Jitter::seeded(random_seed()),
            tasks: tasks.clone(),
        };
        tracing::info!(node = settings.node_name, "starting");
        let socket = settings.root_dir.join(local::SOCKET);
        let place = Place {
            node_name: settings.node_name.clone(),
            manifests: settings.static_pod_path.clone(),
            manifest_url: settings.static_pod_url.clone(),
            pod_logs_dir: settings.pod_logs_dir.clone(),
        };
        let outside = ports.clone();
        let agent = Agent::start(self.settings, ports);
        serve_locally(&tasks, &socket, agent.view(), outside, place);
        if let Some(address) = self.healthz {
            server::serve(&tasks, "health", address, server::health_router()).await?;
        }
        if let Some(address) = self.read_only {
            let router = server::read_only_router(agent.view());
            server::serve(&tasks, "read-only API", address, router).await?;
        }
        let ended = tokio::select! { biased;
            () = shutdown => Ok(()),
            task = tasks.vital_failure() => Err(NodeError::Panicked(task)),
        };
        tracing::info!("stopping; pods keep running");
        tasks.abort_all();
        ended
    }
}

/// Opens the socket for local commands. Pods matter more: without it the agent goes on.
fn serve_locally(tasks: &Tasks, socket: &Path, view: View, ports: Ports, place: Place) {
    let Ports { runtime, clock, fs, .. } = ports;
    let router = local::router(Local { view, runtime, clock, fs, place: Arc::new(place) });
    if let Err(error) = local::serve(tasks, socket, router) {
        tracing::error!(%error, "`klet pods` and the other local commands will not work");
    }
}

fn settings(config: &Config, flags: &Flags) -> Result<Settings, NodeError> {
    let sources = &config.pod_sources;
    let headers = sources.static_pod_url_header.iter();
    Ok(Settings {
        node_name: node_name(flags.hostname_override.as_deref())?,
        static_pod_path: sources.static_pod_path.clone(),
        file_check_frequency: sources.file_check_frequency,
        static_pod_url: sources.static_pod_url.clone(),
        static_pod_url_headers: headers
            .flat_map(|(name, values)| values.iter().map(move |v| (name.clone(), v.clone())))
            .collect(),
        http_check_frequency: sources.http_check_frequency,
        sync_frequency: config.sync_frequency,
        root_dir: flags.root_dir.clone(),
        pod_logs_dir: config.pod_logs_dir.clone(),
        container_log_links_dir: CONTAINER_LOG_LINKS.into(),
        max_restart_period: config.max_container_restart_period,
        lanes: lanes(),
        follow_events: follow_events(config),
        memory_bytes: memory_bytes(),
        node_ips: node_ips(flags.node_ip.as_deref()),
        max_dead_per_container: u32::try_from(flags.maximum_dead_containers_per_container)
            .unwrap_or(0),
    })
}

/// Events are followed unless upstream's gate for them is switched off by name;
/// its default is off there.
fn follow_events(config: &Config) -> bool {
    let gates = config.wire().feature_gates.as_ref();
    gates.and_then(|gates| gates.get("EventedPLEG")) != Some(&false)
}

/// The override or the machine's name, trimmed and in lower case.
fn node_name(override_: Option<&str>) -> Result<String, NodeError> {
    let uname = rustix::system::uname();
    let machine = uname.nodename().to_string_lossy().into_owned();
    let name = override_.filter(|name| !name.is_empty()).unwrap_or(&machine);
    let name = name.trim().to_lowercase();
    if name.is_empty() { Err(NodeError::NoHostname(machine)) } else { Ok(name) }
}

/// Enough to keep the processors busy while some calls wait for the kernel.
fn lanes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (4 * cores).max(16)
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    info.totalram.saturating_mul(unit)
}

/// The configured addresses, else the one that packets to the outside would carry.
fn node_ips(configured: Option<&str>) -> Vec<String> {
    let given: Vec<IpAddr> = configured
        .into_iter()
        .flat_map(|list| list.split(','))
        .filter_map(|ip| ip.trim().parse().ok())
        .filter(|ip: &IpAddr| !ip.is_unspecified())
        .collect();
    if !given.is_empty() {
        return given.iter().map(ToString::to_string).collect();
    }
    // Connecting a datagram socket sends nothing; it only chooses a route.
    let route = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    route().into_iter().collect()
}

/// The standard library seeds its hash maps from the kernel; that is random enough for jitter.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn make_dir(fs: &dyn Fs, path: &Path, mode: u32) -> Result<(), NodeError> {
    let fail = |source| NodeError::Directory { path: path.to_owned(), source };
    fs.create_dir_all(path, mode).map_err(fail)
}
