//! Keeps one certificate: asks for it, and for the next before it expires.
//!
//! Owns the certificate, its files and its state; exactly one task runs it. What fails is
//! tried again for ever: a certificate that has expired ends nothing, it is asked for with
//! other credentials. Upstream: client-go util/certificate/certificate_manager.go.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Clock, Spread};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::sleep;

use super::plan::{self, Means, Situation, Step};
use super::request::{Key, Kind};
use super::sign::{self, Naming, SignError};
use super::state::{Asked, CertificateState, Fallback};
use super::store::{Pair, Store, StoreError};
use super::template::Template;

/// How long a request may wait for its certificate.
const WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// The machine's clock may be set while nothing happens: it is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Pause after a success, so that a signer whose certificates are always too short is not
/// asked without end.
const REST: SignedDuration = SignedDuration::from_secs(10);

/// The API server, asked with the given credentials.
pub type ApiOf = Arc<dyn Fn(Means) -> Result<Arc<dyn Api>, String> + Send + Sync>;

/// Uses a certificate that is kept.
pub trait CertificateUser: Send + Sync + 'static {
    /// From now on this one is used.
    ///
    /// # Errors
    /// It cannot be; the one before stays.
    fn take(&self, pair: &Pair) -> Result<(), String>;
    /// There is none to be used, for a reason.
    fn lacks(&self, why: &str);
    /// One was replaced after so long.
    fn rotated(&self, lived: SignedDuration);
}

/// What is there when the agent starts.
#[derive(Debug, Clone, Default)]
pub struct First {
    /// A certificate.
    pub pair: Option<Pair>,
    /// It is to be replaced at the first opportunity.
    pub forced: bool,
    /// Another had expired by then.
    pub lapsed: Option<Timestamp>,
}

/// What a manager works with.
pub struct ManagerParts {
    /// What the certificate is for.
    pub kind: Kind,
    /// Its files.
    pub store: Store,
    /// What is there already.
    pub first: First,
    /// What is wanted; nothing while that is not known.
    pub wanted: watch::Receiver<Option<Template>>,
    /// Whom to ask.
    pub api: ApiOf,
    /// Whether there is a kubeconfig to ask with when the certificate cannot be used.
    pub has_bootstrap: bool,
    /// Who uses it.
    pub user: Box<dyn CertificateUser>,
    /// What time it is.
    pub clock: Clock,
    /// Makes lengths of time differ.
    pub spread: Spread,
}

/// Keeps a certificate: does nothing until it is run.
pub struct Manager {
    parts: ManagerParts,
    state: watch::Sender<CertificateState>,
    forced: bool,
    failures: u32,
    not_before: Option<Timestamp>,
}

/// Why an attempt gave no certificate.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error("{0}")]
    Means(String),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A manager to run, and how the certificate stands for everybody else.
pub fn manage(parts: ManagerParts) -> (Manager, watch::Receiver<CertificateState>) {
    let First { pair, forced, lapsed } = parts.first.clone();
    let now = (parts.clock)();
    let lapsed = lapsed.filter(|_| pair.as_ref().is_none_or(|pair| pair.leaf.is_expired(now)));
    let (state, reader) = watch::channel(CertificateState {
        fallback: lapsed.map(|expired| Fallback { expired, obtained: None }),
        ..CertificateState::default()
    });
    let mut manager = Manager { parts, state, forced, failures: 0, not_before: None };
    if let Some(pair) = pair {
        manager.install(pair);
    }
    manager.tell();
    (manager, reader)
}

impl Manager {
    /// Runs for ever.
    pub async fn run(mut self) {
        loop {
            self.tell();
            match self.next() {
                Step::Rest(until) => self.rest(until).await,
                Step::Ask(why) => self.ask(&why).await,
            }
        }
    }

    fn now(&self) -> Timestamp {
        (self.parts.clock)()
    }

    fn next(&self) -> Step {
        let (state, wanted) = (self.state.borrow(), self.parts.wanted.borrow());
        let situation = Situation {
            leaf: state.pair.as_ref().map(|pair| &pair.leaf),
            renew_at: state.renew_at,
            forced: self.forced,
            wanted: wanted.as_ref(),
            not_before: self.not_before,
        };
        plan::next(&situation, self.now())
    }

    /// Whoever uses it has to know why there is none.
    fn tell(&self) {
        let lack = self.state.borrow().lack(self.parts.kind, self.now());
        if let Some(lack) = lack {
            self.parts.user.lacks(&lack);
        }
    }

    async fn rest(&mut self, until: Option<Timestamp>) {
        let left = |at: Timestamp| Duration::try_from(at.duration_since(self.now()));
        let left = until.map(|at| left(at).unwrap_or_default().min(LOOK_EVERY));
        let wanted = &mut self.parts.wanted;
        let changed = async {
            if wanted.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! { biased;
            () = changed => {}
            () = sleep(left.unwrap_or(LOOK_EVERY)) => {}
        }
    }

    async fn ask(&mut self, why: &str) {
        let Some(wanted) = self.parts.wanted.borrow_and_update().clone() else { return };
        let now = self.now();
        let means = self.means(now);
        tracing::info!(kind = ?self.parts.kind, why, with = means.words(), "asking for a certificate");
        let mut changes = self.parts.wanted.clone();
        let other = async {
            let other = |newest: &Option<Template>| newest.as_ref() != Some(&wanted);
            if changes.wait_for(other).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! { biased;
            ended = self.attempt(&wanted, means) => Some(ended),
            () = other => None,
        };
        match ended {
            Some(Ok(pair)) => self.succeed(pair, &wanted, means),
            Some(Err(error)) => self.fail(&error),
            // Something else is wanted now, and asked for.
            None => self.state.send_modify(|state| state.asked = None),
        }
    }

    fn means(&self, now: Timestamp) -> Means {
        if self.parts.kind == Kind::Serving {
            return Means::Own;
        }
        let pair = self.state.borrow().pair.clone();
        let means =
            plan::means(pair.as_ref().map(|pair| &pair.leaf), self.parts.has_bootstrap, now);
        if let (Means::Bootstrap, Some(pair)) = (means, pair) {
            let expired = pair.leaf.not_after;
            self.state.send_if_modified(|state| {
                let known = state.fallback.is_some_and(|of| of.expired == expired);
                if !known {
                    state.fallback = Some(Fallback { expired, obtained: None });
                }
                !known
            });
        }
        means
    }

    async fn attempt(&self, wanted: &Template, means: Means) -> Result<Pair, RenewError> {
        let ManagerParts { kind, store, spread, .. } = &self.parts;
        let key = Key::generate().map_err(RenewError::Means)?;
        let api = (self.parts.api)(means).map_err(RenewError::Means)?;
        let since = self.now();
        let request = sign::submit(&*api, *kind, &key, wanted, Naming::Server, since).await?;
        let name = request.name.clone();
        tracing::info!(csr = name, "a certificate signing request waits to be approved and signed");
        self.state.send_modify(|state| state.asked = Some(Asked { name, since, means }));
        self.tell();
        // Once the certificate has expired there are other means.
        let expiry = self.state.borrow().seconds_left(since).and_then(|left| left.try_into().ok());
        let limit = match (kind, means, expiry) {
            (Kind::Client, Means::Own, Some(left)) => WAIT_MAX.min(Duration::from_secs(left)),
            _ => WAIT_MAX,
        };
        let certificate = sign::issued(api, Arc::clone(spread), &request, limit).await?;
        Ok(store.update(&certificate, key.pem().as_bytes(), self.now())?)
    }

    fn succeed(&mut self, pair: Pair, wanted: &Template, means: Means) {
        let now = self.now();
        let missing = wanted.missing_in(&pair.leaf);
        let old = self.state.borrow().pair.clone();
        if let Some(old) = old {
            self.parts.user.rotated(now.duration_since(old.leaf.not_before));
        }
        tracing::info!(kind = ?self.parts.kind, until = %pair.leaf.not_after, "a new certificate");
        self.forced = false;
        self.not_before = now.checked_add(REST).ok();
        self.install(pair);
        self.state.send_modify(|state| {
            (state.asked, state.trouble) = (None, None);
            match (&mut state.fallback, means) {
                (Some(fallback), Means::Bootstrap) => fallback.obtained = Some(now),
                (fallback, Means::Own) => *fallback = None,
                _ => {}
            }
        });
        match missing {
            None => self.failures = 0,
            // Asked for again, after longer and longer pauses.
            Some(missing) => {
                let why = format!("the certificate was not signed as asked: {missing}");
                self.fail(&RenewError::Means(why));
            }
        }
    }

    /// Puts a certificate in force.
    fn install(&mut self, pair: Pair) {
        let later = (self.parts.spread)(plan::spread_max(&pair.leaf));
        let renew_at = plan::renew_at(&pair.leaf, later);
        if !pair.leaf.is_expired(self.now())
            && let Err(error) = self.parts.user.take(&pair)
        {
            tracing::error!(error, "a new certificate cannot be used");
        }
        self.state.send_modify(|state| {
            (state.pair, state.renew_at) = (Some(Arc::new(pair)), Some(renew_at));
        });
    }

    fn fail(&mut self, error: &RenewError) {
        let now = self.now();
        self.failures = self.failures.saturating_add(1);
        let (pause, spread) = plan::pause(self.failures);
        let asked = match error {
            RenewError::Sign(SignError::Create(error) | SignError::Get(error)) => {
                error.retry_after()
            }
            _ => None,
        };
        let pause = (pause + (self.parts.spread)(spread)).max(asked.unwrap_or_default());
        let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO);
        self.not_before = now.checked_add(pause).ok();
        tracing::error!(kind = ?self.parts.kind, %error, "no certificate; it is tried again");
        self.state.send_modify(|state| state.fails(now, &error.to_string()));
    }
}
