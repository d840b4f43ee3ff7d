//! How the node's standing with its cluster is, for those who ask why. Pure data.

use jiff::Timestamp;

/// Characters of an error that are kept: a server may say anything.
const ERROR_CHARS_MAX: usize = 1024;

/// How the node stands with its API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Since when the Node object is known to be there; never without `registerNode`.
    pub registered: Option<Timestamp>,
    /// When its status was last written.
    pub status_written: Option<Timestamp>,
    /// When its lease was last renewed, or made.
    pub lease_renewed: Option<Timestamp>,
    /// Whether the start is over: the node was ready once, or long enough was waited.
    /// From here on a runtime that is not ready is worth a complaint.
    pub settled: bool,
    /// What failed last; older than a success it is history.
    pub trouble: Option<NodeTrouble>,
}

/// Something that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTrouble {
    /// When.
    pub at: Timestamp,
    /// What was to be done, such as `renew the lease`.
    pub what: &'static str,
    /// Why it was not.
    pub why: String,
}

impl NodeTrouble {
    /// With an error of any length.
    pub(super) fn new(at: Timestamp, what: &'static str, why: &str) -> Self {
        Self { at, what, why: why.chars().take(ERROR_CHARS_MAX).collect() }
    }
}
