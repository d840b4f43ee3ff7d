//! Certificates: the server's authority, and what it signs.
//!
//! Owns the CA's key. Approves and signs requests that are stored in the API.
//! Upstream: pkg/controller/certificates.

mod authority;
mod check;
mod controller;

pub use authority::{Authority, AuthorityError, Issued};
pub use controller::{CertificateController, run};
