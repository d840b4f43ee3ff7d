//! Who asks, and whether they may.
//!
//! Owns authentication (client certificates, tokens, nobody) and authorisation
//! (RBAC). Reads the store; writes nothing.
//! Upstream: apiserver pkg/authentication, pkg/serviceaccount, plugin/pkg/auth.

mod authenticate;
mod bootstrap;
mod client_certificate;
mod jwt;
mod policy;
mod rbac;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use authenticate::{Authenticator, StaticToken, TokenUser};
pub use bootstrap::bootstrap_objects;
pub use client_certificate::{CertificateError, certificate_user};
pub use jwt::{Bound, Claims, TokenError, TokenIssuer};
pub use policy::{Attributes, Decision};
pub use rbac::Authorizer;

/// Members may do anything.
pub const MASTERS: &str = "system:masters";
/// Everybody who proved who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everybody else.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Somebody who sends requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Id, or empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// More that is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody by name and groups.
    pub fn new<'a>(name: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        let groups = groups.into_iter().map(str::to_owned).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", [UNAUTHENTICATED])
    }

    /// The server itself, when it writes objects of its own.
    pub fn server() -> Self {
        Self::new("system:apiserver", [MASTERS, AUTHENTICATED])
    }

    /// As `authentication.k8s.io/v1` UserInfo.
    pub fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }

    /// The same, known to have proved it.
    fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}
