//! The node's API on port 10250: what it shows, its certificate and its policy.
//!
//! Owns nothing but the wiring: the crate node-server listens, authenticates and
//! authorizes, this module answers from what the agent knows. The serving certificate
//! and the authority of clients are read again when their files change; or the cluster
//! signs the certificate.
//! Upstream: pkg/kubelet/server, cmd/kubelet/app/server.go.

mod certificate;
mod config;
mod debug;
mod pods;
mod serving;
mod stats;
mod view;
mod zpages;

pub use certificate::CertificateError;
pub use config::{SecureError, SecureSettings, settings};
pub use debug::SetVerbosity;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api_client::Api;
use node_server::{
    AuthenticationOptions, AuthorizationOptions, ConnectionLimits, NodeServer, ServerOptions, Tls,
};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::local::Local;
use crate::ports::{PodCgroups, Tasks};
use stats::NodeStats;
use view::NodeViewer;

/// How often the files of certificates are looked at.
const FILES_EVERY: Duration = Duration::from_secs(60);
/// Where the node's logs are.
const LOG_DIR: &str = "/var/log";
/// Where machines mount control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Opens the port and serves until the agent ends. `api` reviews tokens and access,
/// `verbosity` changes how much is logged.
///
/// # Errors
/// The port, or a certificate, cannot be used.
pub async fn serve(
    tasks: &Tasks,
    settings: SecureSettings,
    api: Option<Arc<dyn Api>>,
    local: Local,
    cgroups: Arc<dyn PodCgroups>,
    verbosity: Option<SetVerbosity>,
) -> Result<(), SecureError> {
    let tls = Arc::new(Tls::new(&settings.tls)?);
    let now = local.clock.wall();
    let mut files = certificate::Files::new(&settings, Arc::clone(&tls));
    files.load(&*local.fs, &local.place.node_name, now)?;
    if settings.signed {
        serving::start(tasks, &settings, &tls, api.clone(), &local)?;
    }
    let address = settings.address;
    let busy = |source| SecureError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(busy)?;
    tracing::info!(%address, what = "node API", "listening");
    let clock = Arc::clone(&local.clock);
    let spawner = tasks.clone();
    let options = ServerOptions {
        node_name: local.place.node_name.clone(),
        tls,
        authentication: AuthenticationOptions {
            anonymous: settings.anonymous,
            webhook: api.clone().filter(|_| settings.reviews_tokens),
            cache_ttl: settings.token_ttl,
        },
        authorization: match (settings.reviews_access, api) {
            (Some((authorized_ttl, unauthorized_ttl)), Some(api)) => {
                AuthorizationOptions::Webhook { api, authorized_ttl, unauthorized_ttl }
            }
            (Some(_), None) => return Err(SecureError::NoReviewer),
            (None, _) => AuthorizationOptions::AlwaysAllow,
        },
        create_for_streams: settings.create_for_streams,
        handlers: settings.handlers,
        log_dir: Path::new(LOG_DIR).to_owned(),
        stream_idle: settings.stream_idle,
        connections: ConnectionLimits::default(),
        requests: local.view.metrics.requests.of_secure(),
        started: Some(now),
        clock: Arc::new(move || clock.wall()),
        spawn: Arc::new(move |work| drop(spawner.spawn(work))),
    };
    let fs = Arc::clone(&local.fs);
    let stats = NodeStats::new(&local, cgroups, Path::new(CGROUPS));
    let SecureSettings { configz, flags, command, handlers, .. } = settings;
    let started = now;
    let viewer = NodeViewer { local, configz, flags, command, handlers, started, verbosity, stats };
    let server = NodeServer::new(options, Arc::new(viewer));
    tasks.spawn(server.run(listener));
    tasks.spawn(async move {
        loop {
            sleep(FILES_EVERY).await;
            files.reload(&*fs);
        }
    });
    Ok(())
}
