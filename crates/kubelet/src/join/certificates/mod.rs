//! The certificates of this node, and how they stand.
//!
//! Owns nothing but readers of their states and what both kinds of them share; the crate
//! cluster keeps them. Tells node conditions, metrics and `klet why node` of them. The
//! client certificate is set up here, the serving one where it is served.
//! Upstream: cmd/kubelet/app/server.go (buildKubeletClientConfig).

mod client;
mod metrics;
mod standing;

pub(super) use client::{Client, start};
pub use standing::Credentials;
pub(super) use standing::credentials;

use std::sync::{Arc, OnceLock};

use api_client::{Clock, Spread};
use cluster::certificates::{CertificateState, Kind};
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use crate::ports;

/// Seconds that serving certificates lived: a minute to four years, as upstream's.
const LIVED: [f64; 10] = [
    60.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// How a certificate stands.
pub type StateReader = watch::Receiver<CertificateState>;

/// The certificates of this node.
pub struct NodeCertificates {
    /// What time it is.
    pub clock: Clock,
    /// Makes lengths of time differ.
    pub spread: Spread,
    /// How long serving certificates lived.
    pub lived: Histogram,
    client: OnceLock<StateReader>,
    serving: OnceLock<StateReader>,
}

impl NodeCertificates {
    /// None are kept yet.
    pub fn new(clock: Arc<dyn ports::Clock>, jitter: ports::Jitter) -> Self {
        Self {
            clock: Arc::new(move || clock.wall()),
            spread: Arc::new(move |longest| jitter.below(longest)),
            lived: Histogram::new(LIVED),
            client: OnceLock::new(),
            serving: OnceLock::new(),
        }
    }

    /// One is kept from now on.
    pub fn keep(&self, kind: Kind, state: StateReader) {
        let place = match kind {
            Kind::Client => &self.client,
            Kind::Serving => &self.serving,
        };
        // Each is set up once.
        let _ = place.set(state);
    }

    fn state(&self, kind: Kind) -> Option<CertificateState> {
        let place = match kind {
            Kind::Client => &self.client,
            Kind::Serving => &self.serving,
        };
        place.get().map(|state| state.borrow().clone())
    }

    /// What users of the node should know, though it works.
    pub fn warning(&self) -> Option<String> {
        self.state(Kind::Client)?.warning()
    }

    /// Why the API server cannot be asked, if a certificate is what lacks.
    pub fn client_lack(&self) -> Option<String> {
        self.state(Kind::Client)?.lack(Kind::Client, (self.clock)())
    }

    /// How they stand, in lines for people.
    pub fn lines(&self) -> Vec<String> {
        let lines = |kind| self.state(kind).map(|state| state.lines(kind, (self.clock)()));
        [Kind::Client, Kind::Serving].into_iter().filter_map(lines).flatten().collect()
    }
}

impl std::fmt::Debug for NodeCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCertificates").finish_non_exhaustive()
    }
}
