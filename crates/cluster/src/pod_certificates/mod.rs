//! Certificates of pods, each with a key of its own, signed by whom the pod names.
//!
//! Owns the private keys, in memory only, and what has become of each request. Reads what
//! is asked for, and this node's PodCertificateRequests from the first ask on. Writes
//! requests, and tells a listener of certificates, problems and events. Never decides
//! when a pod may start. Nothing survives a restart: every certificate is asked for anew
//! then, as upstream does. Upstream: pkg/kubelet/podcertificate.

mod aside;
mod keys;
mod lifecycle;
mod parse;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use api_client::{Api, ApiError, Clock, Spread};
use kubelet_model::ObjectKey;
use kubelet_model::certificate::CertificateAsk;
use tokio::sync::watch;

pub use aside::{KeyMaker, ThreadedKeys};
pub use keys::{KeyError, NewKey, PrivateKey};
pub use run::Keeper;

/// What is asked for: keys of [`CertificateAsk`].
pub type Asked = Arc<BTreeSet<ObjectKey>>;

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The key.
    pub key: PrivateKey,
    /// The certificate, and those between it and one that is trusted, as PEM.
    pub chain: String,
}

/// Why a certificate cannot be asked for; in upstream's words where it has some.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// There is no key for it.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The pod's account is not known.
    #[error("while fetching service account: {0}")]
    Account(#[source] ApiError),
    /// This node is not known.
    #[error(
        "while getting node object from local cache: the Node object is not known yet; it is \
         tried again"
    )]
    Node,
    /// The server does not take the request.
    #[error("while creating PodCertificateRequest: while creating on API: {0}")]
    Create(#[source] ApiError),
    /// The server's requests cannot be read.
    #[error("cannot follow the PodCertificateRequests of this node: {0}")]
    Follow(#[source] ApiError),
}

/// Hears of certificates.
pub trait Listener: Send + Sync {
    /// This is the certificate, from now on.
    fn issued(&self, key: &ObjectKey, credential: &Credential);
    /// There is none yet, and why. One that was issued still counts.
    fn waits(&self, key: &ObjectKey, why: &str);
    /// There is none, and will be none for this pod.
    fn is_over(&self, key: &ObjectKey, why: &str);
    /// A warning for the users of a pod.
    fn event(&self, ask: &CertificateAsk, reason: &'static str, message: String);
}

/// Tells the uid of this node's object, if it is known.
pub type NodeUid = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// What a keeper works with.
pub struct Parts {
    /// The API server.
    pub api: Arc<dyn Api>,
    /// Name of this node.
    pub node: String,
    /// Uid of its object.
    pub node_uid: NodeUid,
    /// What is asked for.
    pub asked: watch::Receiver<Asked>,
    /// Who is told.
    pub listener: Arc<dyn Listener>,
    /// Makes the keys.
    pub keys: Arc<dyn KeyMaker>,
    /// What time it is.
    pub clock: Clock,
    /// Spreads pauses and refreshes.
    pub spread: Spread,
}
