//! Certificates that pods trust, of the ClusterTrustBundles that an API server holds.
//!
//! Owns what is known of the bundles and what asks came to. Reads what is asked for, and
//! bundles, from the first ask on: in which version of the API they are is found out then.
//! Writes answers, to a listener, whenever one changes. Never decides whether a pod can do
//! without. Upstream: pkg/kubelet/clustertrustbundle.

mod cache;
mod merge;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Spread};
use kubelet_model::ObjectKey;
use tokio::sync::watch;

pub use run::Keeper;

/// How long what an ask came to is remembered.
const CACHE_TTL: Duration = Duration::from_secs(5 * 60);

/// Draws a number below the given one, which is not 0.
pub type Draw = Arc<dyn Fn(usize) -> usize + Send + Sync>;

/// What is asked for: keys of [`kubelet_model::trust::TrustAsk`].
pub type Asked = Arc<BTreeSet<ObjectKey>>;

/// Why it cannot be said what to trust; in upstream's words where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// A pod's selector is none.
    #[error("while parsing label selector: {0}")]
    Selector(String),
    /// A pod's selector is too long.
    #[error("label selector length ({bytes}) is larger than {most}")]
    Long {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// The server was not asked successfully yet.
    #[error("ClusterTrustBundle informer has not yet synced: {0}")]
    Unsynced(#[source] ApiError),
    /// It cannot be found out where the server has bundles.
    #[error(
        "failed to ensure informer manager for ClusterTrustBundles: failed to determine which \
         informer manager to choose: {0}"
    )]
    Undiscovered(#[source] ApiError),
    /// The server has none.
    #[error(
        "ClusterTrustBundle projection is not supported: the API server serves \
         clustertrustbundles neither in certificates.k8s.io/v1beta1 nor in v1alpha1; enable the \
         API there, or remove the source"
    )]
    Unserved,
}

/// Hears what to trust.
pub trait Listener: Send + Sync {
    /// These certificates, as PEM, or none are what was asked for; or why it is not known.
    fn told(&self, key: &ObjectKey, anchors: Result<Option<Vec<u8>>, TrustError>);
}

/// What a keeper works with.
pub struct Parts {
    /// The API server.
    pub api: Arc<dyn Api>,
    /// Answers that are remembered at most.
    pub cache_max: usize,
    /// What is asked for.
    pub asked: watch::Receiver<Asked>,
    /// Who is told.
    pub listener: Arc<dyn Listener>,
    /// Shuffles certificates, so that nobody relies on their order.
    pub draw: Draw,
    /// Spreads pauses.
    pub spread: Spread,
}
