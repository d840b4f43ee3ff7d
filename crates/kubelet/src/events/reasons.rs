//! Reasons that are not known when the agent is built: `OutOf` and the name of a resource.
//!
//! Owns each of them once, for good: events hold plain references to their reasons. A
//! node has a handful of resources; whoever makes up more gets the general word.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Reasons kept. Each costs some 50 bytes.
const NAMED_MAX: usize = 256;
/// Stands for those beyond.
const OTHER: &str = "Rejected";

static NAMED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The reason of these letters.
pub fn reason_named(reason: &str) -> &'static str {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = named.get(reason) {
        return known;
    }
    if named.len() >= NAMED_MAX {
        return OTHER;
    }
    let kept: &'static str = Box::leak(reason.to_owned().into_boxed_str());
    named.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_once() {
        let (one, other) = (reason_named("OutOfa.b/c"), reason_named("OutOfa.b/c"));
        assert_eq!(one, "OutOfa.b/c");
        assert!(std::ptr::eq(one, other));
    }
}
