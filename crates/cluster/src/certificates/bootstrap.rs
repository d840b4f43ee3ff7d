//! The first client certificate of a node that does not renew its certificates.
//!
//! Owns `kubelet-client.key.tmp`, which holds the key until there is a certificate, so
//! that a run that was ended finds its request again: the request's name follows from the
//! key. Upstream gives up after an hour and ends; here it is tried again for ever, and
//! pods run meanwhile. Upstream: pkg/kubelet/certificate/bootstrap.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Clock, Spread};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::manager::{ApiOf, CertificateUser};
use super::plan::{self, Means};
use super::request::{Key, Kind};
use super::sign::{self, Naming, SignError};
use super::state::{Asked, CertificateState, Fallback};
use super::store::{self, Pair, Store, StoreError};
use super::template::Template;

/// How long a request may wait for its certificate.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// How long the server may take to answer at all, before it is asked nevertheless.
const SERVER_WAIT: Duration = Duration::from_secs(60);
/// How long one answer may take.
const HEALTH_LIMIT: Duration = Duration::from_secs(1);
/// Pause between two looks, and how much longer it may be.
const HEALTH_EVERY: Duration = Duration::from_secs(2);
const HEALTH_SPREAD: Duration = Duration::from_millis(400);

/// What the bootstrap works with.
pub struct BootstrapParts {
    /// The node's name.
    pub node: String,
    /// Files of the certificate.
    pub store: Store,
    /// Where the key lies until then.
    pub key_path: PathBuf,
    /// A certificate had expired by then.
    pub lapsed: Option<Timestamp>,
    /// Whom to ask.
    pub api: ApiOf,
    /// Writes the kubeconfig that points at the certificate.
    pub write_kubeconfig: Box<dyn Fn() -> Result<(), StoreError> + Send + Sync>,
    /// Who uses it.
    pub user: Box<dyn CertificateUser>,
    /// What time it is.
    pub clock: Clock,
    /// Makes lengths of time differ.
    pub spread: Spread,
}

/// Gets a certificate: does nothing until it is run.
pub struct Bootstrap {
    parts: BootstrapParts,
    state: watch::Sender<CertificateState>,
}

/// Why an attempt gave no certificate.
#[derive(Debug, thiserror::Error)]
enum BootstrapError {
    #[error("{0}")]
    Means(String),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A bootstrap to run, and how the certificate stands for everybody else.
pub fn bootstrap(parts: BootstrapParts) -> (Bootstrap, watch::Receiver<CertificateState>) {
    let fallback = parts.lapsed.map(|expired| Fallback { expired, obtained: None });
    let state = CertificateState { fallback, ..CertificateState::default() };
    let (state, reader) = watch::channel(state);
    let bootstrap = Bootstrap { parts, state };
    bootstrap.tell();
    (bootstrap, reader)
}

impl Bootstrap {
    /// Runs until there is a certificate.
    pub async fn run(self) {
        let mut failures = 0;
        loop {
            let error = match self.attempt().await {
                Ok(pair) => return self.done(pair),
                Err(error) => error,
            };
            failures += 1;
            tracing::error!(%error, "no client certificate; it is tried again");
            self.state.send_modify(|state| state.fails(self.now(), &error.to_string()));
            self.tell();
            let (pause, spread) = plan::pause(failures);
            sleep(pause + (self.parts.spread)(spread)).await;
        }
    }

    fn now(&self) -> Timestamp {
        (self.parts.clock)()
    }

    fn tell(&self) {
        let lack = self.state.borrow().lack(Kind::Client, self.now());
        if let Some(lack) = lack {
            self.parts.user.lacks(&lack);
        }
    }

    fn done(&self, pair: Pair) {
        let now = self.now();
        tracing::info!(until = %pair.leaf.not_after, "a client certificate");
        if let Err(error) = self.parts.user.take(&pair) {
            tracing::error!(error, "the client certificate cannot be used");
        }
        self.state.send_modify(|state| {
            state.pair = Some(Arc::new(pair));
            (state.asked, state.trouble) = (None, None);
            if let Some(fallback) = &mut state.fallback {
                fallback.obtained = Some(now);
            }
        });
    }

    async fn attempt(&self) -> Result<Pair, BootstrapError> {
        let api = (self.parts.api)(Means::Bootstrap).map_err(BootstrapError::Means)?;
        self.await_server(&*api).await;
        let wanted = Template::client(&self.parts.node);
        let mut key = self.key()?;
        let submit = async |key: &Key| {
            let now = self.now();
            sign::submit(&*api, Kind::Client, key, &wanted, Naming::Digest, now).await
        };
        let request = match submit(&key).await {
            // The certificate of an earlier life: nothing comes of it any more.
            Err(SignError::Stale(_)) => {
                key = self.new_key()?;
                submit(&key).await?
            }
            ended => ended?,
        };
        let (name, since) = (request.name.clone(), self.now());
        tracing::info!(csr = name, "a certificate signing request waits to be approved and signed");
        let asked = Asked { name, since, means: Means::Bootstrap };
        self.state.send_modify(|state| state.asked = Some(asked));
        self.tell();
        let spread = Arc::clone(&self.parts.spread);
        let certificate = sign::issued(Arc::clone(&api), spread, &request, WAIT_MAX).await?;
        let pair = self.parts.store.update(&certificate, key.pem().as_bytes(), self.now())?;
        (self.parts.write_kubeconfig)()?;
        match fs::remove_file(&self.parts.key_path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let path = self.parts.key_path.display();
                tracing::warn!(%error, %path, "a key that is not needed cannot be removed");
            }
            _ => {}
        }
        Ok(pair)
    }

    /// The key of the certificate there was, of a run that was ended, or a new one.
    fn key(&self) -> Result<Key, BootstrapError> {
        let old = self.parts.store.current().ok().flatten();
        if let Some(key) = old.and_then(|pair| Key::from_pem(&pair.identity.key)) {
            return Ok(key);
        }
        let kept = store::read(&self.parts.key_path).ok();
        match kept.and_then(|text| Key::from_pem(&text)) {
            Some(key) => Ok(key),
            None => self.new_key(),
        }
    }

    fn new_key(&self) -> Result<Key, BootstrapError> {
        let key = Key::generate().map_err(BootstrapError::Means)?;
        store::write_private(&self.parts.key_path, key.pem().as_bytes())?;
        Ok(key)
    }

    /// A server that is about to start is given a minute.
    async fn await_server(&self, api: &dyn Api) {
        let begun = Instant::now();
        while begun.elapsed() < SERVER_WAIT {
            let answer = api.call(Call::get("/healthz").within(HEALTH_LIMIT)).await;
            match answer {
                Err(error @ (ApiError::Unreachable { .. } | ApiError::TimedOut { .. })) => {
                    tracing::info!(%error, "the API server does not answer yet");
                }
                // It says `ok`, which is no object, or why not: it is there.
                _ => return,
            }
            sleep(HEALTH_EVERY + (self.parts.spread)(HEALTH_SPREAD)).await;
        }
    }
}
