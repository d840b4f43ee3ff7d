//! What the server serves, and from whom it has it.
//!
//! The server knows nothing of pods: whoever runs the node answers through [`NodeView`].

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

/// Content that comes bit by bit; it ends with the stream, or breaks off at an error.
pub type Chunks = BoxStream<'static, std::io::Result<Bytes>>;

/// What a body is made of.
pub enum Content {
    /// All of it.
    Bytes(Bytes),
    /// Bit by bit.
    Chunks(Chunks),
}

/// Something to show.
pub struct Answer {
    /// Its type, such as `application/json`.
    pub content_type: &'static str,
    /// It.
    pub content: Content,
    /// What a `Warning` header says about it.
    pub warning: Option<&'static str>,
}

impl Answer {
    /// JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::text("application/json", body)
    }

    /// Text of a type of its own, such as that of Prometheus.
    pub fn text(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { content_type, content: Content::Bytes(body.into()), warning: None }
    }
}

/// Why there is nothing to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ViewError {
    /// The HTTP status.
    pub status: u16,
    /// What is said about it.
    pub message: String,
    /// After how many seconds to ask again.
    pub retry_after: Option<u32>,
}

impl ViewError {
    /// An error with a status and a text.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None }
    }

    /// What this node does not do.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(501, format!("{what} is not available on this node"))
    }

    /// What a runtime says, by the number of its gRPC code: 5 is not found, 8 too much.
    /// Upstream: cri-streaming (errors.go).
    pub fn of_runtime(code: i32, message: impl Into<String>) -> Self {
        let (status, retry_after) = match code {
            5 => (404, None),
            8 => (429, Some(60)),
            _ => (500, None),
        };
        Self { status, message: message.into(), retry_after }
    }
}

/// A pod, as far as paths and errors need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: String,
    /// Names of all its containers: init containers and ephemeral ones as well.
    pub containers: Vec<String>,
}

/// One of the metrics' pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metrics {
    /// `/metrics`
    Node,
    /// `/metrics/cadvisor`
    Cadvisor,
    /// `/metrics/probes`
    Probes,
    /// `/metrics/resource`
    Resource,
}

/// A page about the node as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// `/pods`: a `PodList` of those that are to run.
    Pods,
    /// `/runningpods/`: a `PodList` of those that the runtime runs.
    RunningPods,
    /// `/configz`: `{"kubeletconfig": …}`.
    Configz,
    /// `/statusz`
    Statusz,
    /// `/flagz`
    Flagz,
    /// `/stats/summary`
    Summary {
        /// Only CPU and memory were asked for.
        only_cpu_and_memory: bool,
    },
    /// Metrics, in the format that the `Accept` header asks for.
    Metrics(Metrics),
}

/// Which streams of a container's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogStreams {
    /// Both.
    #[default]
    All,
    /// Only what it wrote to standard output.
    Stdout,
    /// Only what it wrote to standard error.
    Stderr,
}

/// Options of a container's log, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on as it grows.
    pub follow: bool,
    /// Of the container before this one.
    pub previous: bool,
    /// Not older than this many seconds.
    pub since_seconds: Option<i64>,
    /// Not older than this.
    pub since_time: Option<Timestamp>,
    /// With the time before each line.
    pub timestamps: bool,
    /// Only so many lines at its end.
    pub tail_lines: Option<i64>,
    /// Only so many bytes.
    pub limit_bytes: Option<i64>,
    /// Which streams.
    pub streams: LogStreams,
}

/// A container in a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerRef {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid, if the path has one.
    pub uid: Option<String>,
    /// The container's name.
    pub container: String,
}

/// Streams that a command has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stdio {
    /// It is given input.
    pub stdin: bool,
    /// Its output is wanted.
    pub stdout: bool,
    /// Its complaints are wanted.
    pub stderr: bool,
    /// It has a terminal.
    pub tty: bool,
}

/// For what the runtime is to open a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamAsk {
    /// A command in a container.
    Exec {
        /// Where.
        container: ContainerRef,
        /// The command and its arguments.
        command: Vec<String>,
        /// Its streams.
        stdio: Stdio,
    },
    /// What a container runs already. Whether it has a terminal says its specification.
    Attach {
        /// Which.
        container: ContainerRef,
        /// The streams that are wanted.
        stdio: Stdio,
    },
    /// Ports of a pod.
    PortForward {
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// Its uid, which the pod has.
        uid: String,
        /// The ports, if they must be known before the stream begins.
        ports: Vec<u16>,
    },
}

/// Answers what the server is asked. Calls are dropped when the client goes away.
#[async_trait]
pub trait NodeView: Send + Sync + 'static {
    /// Names of health checks, in order, besides `ping`: `log`, `syncloop` and more.
    fn health_checks(&self) -> Vec<&'static str>;
    /// Runs one of them.
    async fn health(&self, check: &str) -> Result<(), String>;
    /// A page; `accept` is what the client says that it reads.
    async fn page(&self, page: Page, accept: &str) -> Result<Answer, ViewError>;
    /// A pod that is to run here, or runs still.
    async fn pod(&self, namespace: &str, name: &str) -> Option<PodFacts>;
    /// The log of a container of a pod that exists.
    async fn logs(&self, of: ContainerRef, options: LogOptions) -> Result<Chunks, ViewError>;
    /// Where the runtime serves a stream, such as `http://127.0.0.1:40000/exec/token`.
    async fn stream_url(&self, ask: StreamAsk) -> Result<String, ViewError>;
    /// Runs a command to its end; what it wrote, both streams together.
    async fn run(&self, container: ContainerRef, command: Vec<String>) -> Result<Bytes, ViewError>;
    /// Saves the state of a container, within so many seconds if told; the path of the
    /// archive.
    async fn checkpoint(
        &self,
        container: ContainerRef,
        timeout_seconds: Option<i64>,
    ) -> Result<String, ViewError>;
    /// Changes how much is logged.
    async fn set_verbosity(&self, level: &str) -> Result<String, ViewError>;
    /// A profile by its name below `/debug/pprof/`, with the query as it came.
    async fn profile(&self, name: &str, query: &str) -> Result<Answer, ViewError> {
        let _ = (name, query);
        Err(ViewError::not_implemented("profiling"))
    }
}
