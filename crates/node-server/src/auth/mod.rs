//! Who asks, and whether they may.
//!
//! Owns what the API server said about tokens and rights, for as long as it may be
//! believed. Never lets anybody in because the API server is silent.
//! Upstream: pkg/kubelet/server/auth.go, cmd/kubelet/app/auth.go, the delegating
//! authenticator and authorizer of apiserver.

mod attributes;
mod authenticate;
mod authorize;
mod certificate;
mod memory;
mod review;
mod strangers;
mod token;

pub(crate) use attributes::{attributes, verb};
pub use authenticate::AuthenticationOptions;
pub(crate) use authenticate::{Authenticator, Credentials, Stranger, protocols};
pub use authorize::AuthorizationOptions;
pub(crate) use authorize::{Authorizer, Refusal};

/// Somebody who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

/// The user who shows nothing.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";

impl User {
    pub(crate) fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Self { name: ANONYMOUS.to_owned(), groups, ..Self::default() }
    }

    /// With the group that all have who showed who they are.
    fn authenticated(mut self) -> Self {
        let has = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(has) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}
