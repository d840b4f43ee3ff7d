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
    /// What fails now, one of a kind. That the Node can be followed again shows when it
    /// next changes.
    pub troubles: Vec<NodeTrouble>,
    /// What failed last, though it may work again.
    pub last_trouble: Option<NodeTrouble>,
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

/// What is done, and may fail.
pub(super) const REGISTER: &str = "register the node";
pub(super) const UPDATE: &str = "update the node's status";
pub(super) const RENEW: &str = "renew the lease";
pub(super) const FOLLOW: &str = "follow the Node object";

impl NodeHealth {
    pub(super) fn fails(&mut self, at: Timestamp, what: &'static str, why: &str) {
        let why = why.chars().take(ERROR_CHARS_MAX).collect();
        let trouble = NodeTrouble { at, what, why };
        self.works(what);
        self.troubles.push(trouble.clone());
        self.last_trouble = Some(trouble);
    }

    pub(super) fn works(&mut self, what: &'static str) {
        self.troubles.retain(|trouble| trouble.what != what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_pass_and_the_last_is_remembered() {
        let mut health = NodeHealth::default();
        health.fails(Timestamp::UNIX_EPOCH, RENEW, "a");
        health.fails(Timestamp::UNIX_EPOCH, REGISTER, "b");
        health.fails(Timestamp::UNIX_EPOCH, RENEW, &"c".repeat(9999));
        let whats: Vec<&str> = health.troubles.iter().map(|trouble| trouble.what).collect();
        assert_eq!(whats, [REGISTER, RENEW]);
        assert_eq!(health.troubles[1].why.len(), ERROR_CHARS_MAX);
        health.works(RENEW);
        assert_eq!(health.troubles.len(), 1);
        assert_eq!(health.last_trouble.as_ref().map(|trouble| trouble.what), Some(RENEW));
    }
}
