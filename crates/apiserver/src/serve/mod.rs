//! The server: sockets, TLS and connections around the API.
//!
//! Owns its tasks: dropping [`ApiServer`] ends them all. Listens with TLS, where
//! client certificates are asked for and not required, and if told so on the
//! loopback without it.
//! Upstream: apiserver pkg/server (secure_serving.go, genericapiserver.go).

mod connection;
mod kubeconfig;
mod listen;
mod settings;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::auth::{Authenticator, Authorizer, TokenError, TokenIssuer};
use crate::certificates::{self, Authority, AuthorityError, CertificateController};
use crate::error::ApiError;
use crate::http_api::{Api, ApiParts, system_randomness};
use crate::store::Store;

pub use connection::{Handler, Wrap};
pub use kubeconfig::{Credentials, kubeconfig};
pub use settings::Settings;

/// How long open requests may take once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No socket.
    #[error("cannot listen on {address}: {source}; is the port taken?")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Plain HTTP where others could read along.
    #[error("plain HTTP is served on the loopback only, and {0} is not on it")]
    Plain(SocketAddr),
    /// No certificates.
    #[error("cannot make the server's certificates: {0}")]
    Certificates(#[from] AuthorityError),
    /// No keys for tokens.
    #[error("cannot make the key for tokens: {0}")]
    Tokens(#[from] TokenError),
    /// The certificates do not make a TLS server.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// The first objects were refused.
    #[error("cannot store the objects every cluster starts with: {0}")]
    Bootstrap(#[from] ApiError),
}

/// A running server. Dropping it ends it at once; [`ApiServer::stop`] lets open
/// requests finish.
pub struct ApiServer {
    /// Where it listens, as an address that clients take.
    pub url: String,
    /// Where it listens without TLS, if it does.
    pub plain_url: Option<String>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Certificate of its authority, in PEM.
    pub ca_pem: String,
    api: Arc<Api>,
    authority: Arc<Authority>,
    stops: Vec<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl ApiServer {
    /// Starts a server.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        if let Some(plain) = settings.plain.filter(|address| !address.ip().is_loopback()) {
            return Err(StartError::Plain(plain));
        }
        let (listener, address) = bind(settings.listen).await?;
        let names = settings.names(address);
        let now = (settings.clock)();
        let authority = match settings.authority {
            Some(authority) => authority,
            None => Arc::new(Authority::generate("klet-ca", now)?),
        };
        let store =
            settings.store.unwrap_or_else(|| Arc::new(Store::new(settings.remembered_changes)));
        let mut issuer = match &settings.token_key {
            Some(key) => TokenIssuer::from_pkcs8(&settings.issuer, key)?,
            None => TokenIssuer::generate(&settings.issuer)?,
        };
        issuer.lifetime_max = settings.token_lifetime_max;
        let api = Arc::new(Api::new(ApiParts {
            authenticator: Authenticator::new(issuer, settings.tokens, Arc::clone(&store)),
            authorizer: Authorizer::new(Arc::clone(&store)),
            store,
            clock: settings.clock,
            ca_pem: authority.pem().to_owned(),
            mounts_tokens: settings.mounts_tokens,
            random: system_randomness(),
        }));
        api.bootstrap()?;
        let handler = connection::handler(Arc::clone(&api), settings.wrap);
        let own = authority.server("klet-apiserver", &names, now)?;
        let tls = tls::config(&own, authority.pem()).map_err(StartError::Tls)?;
        let mut server = Self {
            url: format!("https://{address}"),
            plain_url: None,
            address,
            ca_pem: authority.pem().to_owned(),
            api: Arc::clone(&api),
            authority: Arc::clone(&authority),
            stops: Vec::new(),
            tasks: JoinSet::new(),
        };
        server.listen(listener, Some(tls), Arc::clone(&handler));
        if let Some(plain) = settings.plain {
            let (listener, address) = bind(plain).await?;
            server.plain_url = Some(format!("http://{address}"));
            server.listen(listener, None, handler);
        }
        let (approves_nodes, lifetime) = (settings.approves_nodes, settings.certificate_lifetime);
        let controller = CertificateController { api, authority, approves_nodes, lifetime };
        server.tasks.spawn(certificates::run(controller));
        Ok(server)
    }

    fn listen(&mut self, listener: TcpListener, tls: Option<tls::Acceptor>, handler: Handler) {
        let (stop, stopped) = oneshot::channel();
        self.stops.push(stop);
        self.tasks.spawn(listen::run(listener, tls, handler, stopped));
    }

    /// The API, for calls from within the process.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// The store, for code that embeds the server.
    pub fn store(&self) -> &Arc<Store> {
        self.api.store()
    }

    /// The authority that signs its certificates.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// A kubeconfig of somebody who may do anything.
    ///
    /// # Errors
    /// If no certificate could be made.
    pub fn admin_kubeconfig(&self) -> Result<String, AuthorityError> {
        self.client_kubeconfig("kubernetes-admin", Some(crate::auth::MASTERS))
    }

    /// A kubeconfig with a new client certificate of a user.
    ///
    /// # Errors
    /// If no certificate could be made.
    pub fn client_kubeconfig(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<String, AuthorityError> {
        let issued = self.authority.client(user, group, self.api.now())?;
        Ok(kubeconfig(&self.url, &self.ca_pem, &Credentials::Certificate(issued)))
    }

    /// A kubeconfig with a token.
    pub fn token_kubeconfig(&self, token: &str) -> String {
        kubeconfig(&self.url, &self.ca_pem, &Credentials::Token(token.to_owned()))
    }

    /// Stops: watches end, open requests may finish for a few seconds.
    pub async fn stop(mut self) {
        for stop in self.stops.drain(..) {
            // Whoever is not there to hear it has stopped.
            let _ = stop.send(());
        }
        self.store().cut_off();
        let over = async {
            // The task of certificates goes on until it is dropped.
            while self.tasks.len() > 1 && self.tasks.join_next().await.is_some() {}
        };
        if tokio::time::timeout(STOP_GRACE, over).await.is_err() {
            tracing::warn!("requests were still open when the API server stopped");
        }
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}
