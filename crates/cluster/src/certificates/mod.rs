//! Certificates of the node: for its API server, and for those who ask the node.
//!
//! Owns their files and the requests for them. `plan` decides when to ask and with which
//! credentials; [`Manager`] keeps a certificate for as long as the agent runs;
//! [`Bootstrap`] gets one once. Whoever uses a certificate is told of each new one, and
//! of why there is none; nobody is ended for the lack of one. Upstream: client-go
//! util/certificate, pkg/kubelet/certificate.

mod bootstrap;
mod kubeconfig;
mod manager;
mod parse;
pub mod plan;
mod request;
mod sign;
mod state;
mod store;
mod template;

#[cfg(test)]
mod manager_tests;
#[cfg(test)]
mod test_parts;

pub use bootstrap::{Bootstrap, BootstrapParts, bootstrap};
pub use kubeconfig::write_kubeconfig;
pub use manager::{ApiOf, CertificateUser, First, Manager, ManagerParts, manage};
pub use parse::{Leaf, first_expiry};
pub use request::Kind;
pub use sign::SignError;
pub use state::{Asked, CertificateState, Fallback};
pub use store::{Pair, Store, StoreError};
pub use template::Template;

/// Where a key lies until there is a certificate for it.
pub const KEY_FILE: &str = "kubelet-client.key.tmp";
