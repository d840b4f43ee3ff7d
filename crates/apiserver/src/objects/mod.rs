//! What an object becomes on its way into the store.
//!
//! Pure: the clock, names and uids come in through [`Context`]. Owns metadata, the
//! split between an object and its parts, rules of single kinds, and deletion.
//! Upstream: apiserver pkg/registry/rest, pkg/registry/*/strategy.go.

mod create;
mod delete;
mod events;
mod meta;
mod names;
mod pods;
mod service_account;
mod status;
mod types;
mod update;

use jiff::Timestamp;

use crate::auth::User;

pub use create::create;
pub use delete::{DeleteOptions, DeletePlan, plan_delete};
pub use events::{from_storage, to_storage};
pub use pods::bind;
pub use service_account::{account_of, with_account};
pub use types::{Decoded, decode};
pub use update::{Preconditions, must_go, update};

/// What a write knows besides the object.
#[derive(Debug, Clone)]
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// Who asks.
    pub user: &'a User,
    /// A uid nobody has.
    pub uid: String,
    /// Letters for `generateName`.
    pub suffix: String,
}

/// A time as objects carry it: whole seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
