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
mod health;
mod pages;
mod pods;
mod serving;
mod stats;
mod view;
mod zpages;

pub use certificate::CertificateError;
pub use config::{SecureError, SecureSettings, Shown, settings, shown};
pub use debug::SetVerbosity;
pub use pages::Pages;

use std::sync::Arc;
use std::time::Duration;

use api_client::Api;
use node_server::{AuthenticationOptions, AuthorizationOptions, Doors, Guards, Tls};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::local::Local;
use crate::ports::Tasks;

/// How often the files of certificates are looked at.
const FILES_EVERY: Duration = Duration::from_secs(60);

/// Opens the port and serves until the agent ends. `api` reviews tokens and access.
///
/// # Errors
/// The port, or a certificate, cannot be used.
pub async fn serve(
    tasks: &Tasks,
    settings: SecureSettings,
    api: Option<Arc<dyn Api>>,
    pages: &Pages,
) -> Result<(), SecureError> {
    let local: &Local = pages.local();
    let tls = Arc::new(Tls::new(&settings.tls)?);
    let now = local.clock.wall();
    let mut files = certificate::Files::new(&settings, Arc::clone(&tls));
    files.load(&*local.fs, &local.place.node_name, now)?;
    if settings.signed {
        serving::start(tasks, &settings, &tls, api.clone(), local)?;
    }
    let address = settings.address;
    let busy = |source| SecureError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(busy)?;
    tracing::info!(%address, what = "node API", "listening");
    let guards = Guards {
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
    };
    let requests = pages.metrics().requests.of_secure();
    let options = pages.options(tasks, Doors::Guarded(guards), requests);
    let fs = Arc::clone(&local.fs);
    tasks.spawn(pages.server(options).run(listener));
    tasks.spawn(async move {
        loop {
            sleep(FILES_EVERY).await;
            files.reload(&*fs);
        }
    });
    Ok(())
}
