//! Image references as users write them.
//!
//! Plain data. Upstream: pkg/util/parsers, github.com/distribution/reference.

mod parse;

pub use parse::parse;

/// A reference taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// As written, with `:latest` added if it had neither tag nor digest.
    /// A short name stays short: what it means is the runtime's business.
    pub pullable: String,
    /// As written, without tag and digest.
    pub name: String,
    /// With registry and, on Docker Hub, `library/`: what credentials are matched with.
    pub repository: String,
}
