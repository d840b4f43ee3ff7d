//! The checked configuration: strong types, every field present.
//!
//! Built only from a configuration that passed every check, so whoever holds a
//! [`Config`] need not check again. What no part of the agent uses yet stays
//! readable through [`Config::wire`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kubelet_model::manifest::Origin;

use crate::gates::FeatureGates;
use crate::go_duration::GoDuration;
use crate::problem::Problem;
use crate::wire::KubeletConfiguration;

/// A configuration that passed every check.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where pods come from.
    pub pod_sources: PodSources,
    /// How the runtime is reached.
    pub runtime: Runtime,
    /// Where the agent listens.
    pub server: Server,
    /// The agent's log.
    pub logging: Logging,
    /// The agent's own process.
    pub process: Process,
    /// Longest time between two synchronisations of a pod.
    pub sync_frequency: Duration,
    /// Root of pod log directories.
    pub pod_logs_dir: PathBuf,
    /// Longest wait between restarts of a container.
    pub max_container_restart_period: Duration,
    /// Refuse to start on cgroup v1.
    pub fail_cgroup_v1: bool,
    /// Which features are on.
    pub feature_gates: FeatureGates,
    wire: KubeletConfiguration,
}

/// Where pods come from, besides the API server.
#[derive(Clone, PartialEq, Eq)]
pub struct PodSources {
    /// Directory of manifests, or one manifest.
    pub static_pod_path: Option<PathBuf>,
    /// How often it is read again.
    pub file_check_frequency: Duration,
    /// URL of manifests.
    pub static_pod_url: Option<String>,
    /// Headers sent to it. Secret.
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    /// How often it is read again.
    pub http_check_frequency: Duration,
}

impl std::fmt::Debug for PodSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodSources")
            .field("static_pod_path", &self.static_pod_path)
            .field("file_check_frequency", &self.file_check_frequency)
            .field(
                "static_pod_url",
                &self.static_pod_url.clone().map(|url| Origin::Url(url).to_string()),
            )
            .field("static_pod_url_header", &self.static_pod_url_header.keys())
            .field("http_check_frequency", &self.http_check_frequency)
            .finish()
    }
}

/// How the runtime is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Socket of the runtime.
    pub endpoint: String,
    /// Socket of the image service; the runtime's unless configured.
    pub image_endpoint: String,
    /// Limit of one call.
    pub request_timeout: Duration,
}

/// Where the agent listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// The authenticated API; none when switched off.
    pub api: Option<SocketAddr>,
    /// The read-only API; none when switched off.
    pub read_only: Option<SocketAddr>,
    /// The health endpoint; none when switched off.
    pub healthz: Option<SocketAddr>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The agent's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logging {
    /// How lines look.
    pub format: LogFormat,
    /// How much is logged; 0 is the least.
    pub verbosity: u32,
}

/// The agent's own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Out-of-memory score adjustment, -1000 to 1000.
    pub oom_score_adj: i16,
    /// Limit of open files.
    pub max_open_files: u64,
}

impl Config {
    /// Every field, with every default filled in.
    pub fn wire(&self) -> &KubeletConfiguration {
        &self.wire
    }
}

/// A configuration that passed validation, and the gates it was validated with.
pub(crate) struct Validated {
    pub(crate) wire: KubeletConfiguration,
    pub(crate) gates: FeatureGates,
}

impl TryFrom<Validated> for Config {
    type Error = Vec<Problem>;

    fn try_from(Validated { wire, gates }: Validated) -> Result<Self, Self::Error> {
        let mut problems = Vec::new();
        let c = &wire;
        let server = Server {
            api: socket(&mut problems, "address", &c.address, "port", c.port)
                .filter(|_| c.enable_server != Some(false)),
            read_only: socket(
                &mut problems,
                "address",
                &c.address,
                "readOnlyPort",
                c.read_only_port,
            )
            .filter(|_| c.enable_server != Some(false)),
            healthz: socket(
                &mut problems,
                "healthzBindAddress",
                &c.healthz_bind_address,
                "healthzPort",
                c.healthz_port,
            ),
        };
        let process = Process {
            oom_score_adj: narrow(
                &mut problems,
                "oomScoreAdj",
                c.oom_score_adj.unwrap_or_default(),
            ),
            max_open_files: narrow(
                &mut problems,
                "maxOpenFiles",
                c.max_open_files.unwrap_or_default(),
            ),
        };
        let config = Self {
            pod_sources: pod_sources(c),
            runtime: runtime(c),
            server,
            logging: logging(c),
            process,
            sync_frequency: std_duration(c.sync_frequency),
            pod_logs_dir: PathBuf::from(c.pod_logs_dir.clone().unwrap_or_default()),
            max_container_restart_period: max_restart_period(c),
            fail_cgroup_v1: c.fail_cgroup_v1.unwrap_or(true),
            feature_gates: gates,
            wire,
        };
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

fn std_duration(duration: Option<GoDuration>) -> Duration {
    duration.unwrap_or_default().to_std()
}

fn text(field: &Option<String>) -> Option<String> {
    field.clone().filter(|text| !text.is_empty())
}

fn pod_sources(c: &KubeletConfiguration) -> PodSources {
    PodSources {
        static_pod_path: text(&c.static_pod_path).map(PathBuf::from),
        file_check_frequency: std_duration(c.file_check_frequency),
        static_pod_url: text(&c.static_pod_url),
        static_pod_url_header: c.static_pod_url_header.clone().unwrap_or_default(),
        http_check_frequency: std_duration(c.http_check_frequency),
    }
}

fn runtime(c: &KubeletConfiguration) -> Runtime {
    let endpoint = c.container_runtime_endpoint.clone().unwrap_or_default();
    let image_endpoint = text(&c.image_service_endpoint).unwrap_or_else(|| endpoint.clone());
    Runtime { endpoint, image_endpoint, request_timeout: std_duration(c.runtime_request_timeout) }
}

fn logging(c: &KubeletConfiguration) -> Logging {
    let logging = c.logging.clone().unwrap_or_default();
    let format =
        if logging.format.as_deref() == Some("json") { LogFormat::Json } else { LogFormat::Text };
    Logging { format, verbosity: logging.verbosity.unwrap_or_default() }
}

/// The gate's absence leaves the field empty; the limit is then the old constant.
fn max_restart_period(c: &KubeletConfiguration) -> Duration {
    let period =
        c.crash_loop_back_off.as_ref().and_then(|back_off| back_off.max_container_restart_period);
    period.map_or(Duration::from_secs(300), GoDuration::to_std)
}

fn socket(
    problems: &mut Vec<Problem>,
    address_field: &str,
    address: &Option<String>,
    port_field: &str,
    port: Option<i32>,
) -> Option<SocketAddr> {
    let port: u16 = narrow(problems, port_field, port.unwrap_or_default());
    if port == 0 {
        return None;
    }
    let address = address.as_deref().unwrap_or_default();
    match address.parse::<IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, port)),
        Err(error) => {
            problems.push(Problem::field(address_field, format!("{address:?}"), error.to_string()));
            None
        }
    }
}

fn narrow<T: TryFrom<i64> + Default>(
    problems: &mut Vec<Problem>,
    field: &str,
    value: impl Into<i64>,
) -> T {
    let value = value.into();
    T::try_from(value).unwrap_or_else(|_| {
        problems.push(Problem::field(field, value, "is out of range"));
        T::default()
    })
}
