//! From the checked configuration to how the server is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cluster::certificates::StoreError;
use kubelet_config::{Config, Flags};
use node_server::{Handlers, PemError, TlsOptions, TlsOptionsError};

use super::certificate::CertificateError;

/// `streamingConnectionIdleTimeout`, unless configured.
const STREAM_IDLE: Duration = Duration::from_secs(4 * 3600);

/// Why the node's API is not served.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// TLS cannot be had as it was asked for.
    #[error("{0}")]
    Tls(#[from] TlsOptionsError),
    /// A certificate or a key cannot be used.
    #[error("{0}")]
    Pem(#[from] PemError),
    /// A certificate cannot be had.
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    /// A certificate that is signed cannot be kept.
    #[error("serving certificate: {0}")]
    Store(#[from] StoreError),
    /// Access is to be reviewed, and there is nobody to do it.
    #[error(
        "authorization.mode Webhook needs an API server; give --kubeconfig, or set AlwaysAllow"
    )]
    NoReviewer,
    /// The port is taken.
    #[error("cannot listen on {address} for the node API: {source}; is another kubelet running?")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// How the server is.
#[derive(Debug, Clone)]
pub struct SecureSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Versions, ciphers and curves.
    pub tls: TlsOptions,
    /// Certificate and key; without them one is made.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Where a certificate that is made or signed is kept.
    pub cert_dir: PathBuf,
    /// The cluster signs the certificate.
    pub signed: bool,
    /// A certificate without addresses may be asked for.
    pub dns_only: bool,
    /// Who signs clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether somebody unknown is somebody.
    pub anonymous: bool,
    /// Whether the API server reviews tokens.
    pub reviews_tokens: bool,
    /// How long a review of a token holds.
    pub token_ttl: Duration,
    /// Whether the API server reviews access, and how long a yes and a no hold.
    pub reviews_access: Option<(Duration, Duration)>,
    /// Whether commands in containers need the right to create, however asked for.
    pub create_for_streams: bool,
}

/// What is shown, at whatever port.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Which handlers there are.
    pub handlers: Handlers,
    /// How long a stream may be silent.
    pub stream_idle: Duration,
    /// `syncFrequency`: how late the agent's loop may be.
    pub sync_frequency: Duration,
    /// The container runtime's control group, `--runtime-cgroups`.
    pub runtime_group: Option<String>,
    /// The configuration, as `/configz` shows it.
    pub configz: String,
    /// Every flag and its value, secrets masked.
    pub flags: BTreeMap<&'static str, String>,
    /// How the agent was started, secrets masked.
    pub command: Vec<String>,
}

impl SecureSettings {
    /// Somebody could get in without an API server: on a node of its own, a server that
    /// turns everybody away need not listen.
    pub fn knows_anybody(&self) -> bool {
        self.anonymous || self.client_ca.is_some()
    }
}

/// What the configuration says; `None` if the server is switched off.
pub fn settings(config: &Config, flags: &Flags) -> Option<SecureSettings> {
    let address = config.server.api?;
    let wire = config.wire();
    let path = |text: &Option<String>| text.clone().filter(|t| !t.is_empty()).map(PathBuf::from);
    let authentication = wire.authentication.clone().unwrap_or_default();
    let authorization = wire.authorization.clone().unwrap_or_default();
    let x509 = authentication.x509.unwrap_or_default();
    let webhook = authentication.webhook.unwrap_or_default();
    let access = authorization.webhook.unwrap_or_default();
    let gate = |name: &str| config.feature_gates.enabled(name);
    let seconds = Duration::from_secs;
    Some(SecureSettings {
        address,
        tls: TlsOptions {
            min_version: wire.tls_min_version.clone().unwrap_or_default(),
            cipher_suites: wire.tls_cipher_suites.clone().unwrap_or_default(),
            curves: {
                let all = wire.tls_curve_preferences.iter().flatten();
                all.filter_map(|curve| u16::try_from(*curve).ok()).collect()
            },
        },
        files: path(&wire.tls_cert_file).zip(path(&wire.tls_private_key_file)),
        cert_dir: flags.cert_dir.clone(),
        signed: wire.server_tls_bootstrap.unwrap_or(false)
            && gate("RotateKubeletServerCertificate"),
        dns_only: gate("AllowDNSOnlyNodeCSR"),
        client_ca: path(&x509.client_ca_file),
        anonymous: authentication.anonymous.and_then(|a| a.enabled).unwrap_or(false),
        reviews_tokens: webhook.enabled.unwrap_or(true),
        token_ttl: webhook.cache_ttl.map_or(seconds(120), |ttl| ttl.to_std()),
        reviews_access: (authorization.mode.as_deref() != Some("AlwaysAllow")).then(|| {
            (
                access.cache_authorized_ttl.map_or(seconds(300), |ttl| ttl.to_std()),
                access.cache_unauthorized_ttl.map_or(seconds(30), |ttl| ttl.to_std()),
            )
        }),
        create_for_streams: flags.streams_need_create(),
    })
}

/// What the configuration lets be shown.
pub fn shown(config: &Config, flags: &Flags) -> Shown {
    let wire = config.wire();
    let gate = |name: &str| config.feature_gates.enabled(name);
    Shown {
        handlers: Handlers {
            debugging: wire.enable_debugging_handlers.unwrap_or(true),
            system_log: wire.enable_system_log_handler.unwrap_or(true),
            system_log_query: wire.enable_system_log_query.unwrap_or(false),
            profiling: wire.enable_profiling_handler.unwrap_or(true),
            debug_flags: wire.enable_debug_flags_handler.unwrap_or(true),
            checkpoint: gate("ContainerCheckpoint"),
            statusz: gate("ComponentStatusz"),
            flagz: gate("ComponentFlagz"),
            split_log_streams: gate("PodLogsQuerySplitStreams"),
            websockets: gate("ExtendWebSocketsToKubelet"),
        },
        stream_idle: wire
            .streaming_connection_idle_timeout
            .map_or(STREAM_IDLE, |idle| idle.to_std()),
        sync_frequency: config.sync_frequency,
        runtime_group: flags.runtime_cgroups.clone(),
        configz: configz(config),
        flags: kubelet_config::flags::values(flags),
        command: command(flags),
    }
}

/// The command line as it can be shown: the flags that were given, in order of names.
fn command(flags: &Flags) -> Vec<String> {
    let program = std::env::args().next().unwrap_or_else(|| "kubelet".to_owned());
    let given = flags.given.iter().map(|(name, value)| format!("--{name}={value}"));
    std::iter::once(program).chain(given).collect()
}

/// Without headers for the manifest URL: they hold passwords.
fn configz(config: &Config) -> String {
    let mut wire = config.wire().clone();
    wire.static_pod_url_header = None;
    serde_json::json!({"kubeletconfig": wire}).to_string()
}
