//! Which pods to write, and which to remove from disk. Pure.
//!
//! What has not changed is not written again. What is too large, or too much, is not
//! kept at all: a pod that would start as it was some time ago is worse than one that
//! waits for its API server.

use std::collections::BTreeMap;

use kubelet_model::PodUid;

/// What may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of one file.
    pub file_bytes: usize,
    /// Bytes of all.
    pub all_bytes: usize,
    /// Files.
    pub files: usize,
}

/// More than most pods have by a thousand times, and more than three of the largest
/// ConfigMaps that a server takes.
pub(super) const LIMITS: Limits = Limits { file_bytes: 4 << 20, all_bytes: 64 << 20, files: 1024 };

/// How a desired pod is now, compared to what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    /// The server has not answered for everything that it uses.
    Unsure,
    /// The file has it.
    Same,
    /// It takes so many bytes.
    New(usize),
}

/// Why a pod is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has so many bytes.
    TooLarge(usize),
    /// There is no room for it.
    Full,
}

/// What to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Files to remove; before any is written.
    pub remove: Vec<PodUid>,
    /// Pods to write.
    pub write: Vec<PodUid>,
    /// Pods that are not kept.
    pub refused: BTreeMap<PodUid, Refusal>,
}

/// Decides. `kept` tells the bytes of each file; `spoken` that the server has said in
/// this life of the agent which pods there are.
pub(super) fn plan(
    kept: &BTreeMap<PodUid, usize>,
    now: &BTreeMap<PodUid, Now>,
    spoken: bool,
    limits: Limits,
) -> Plan {
    let mut plan = Plan::default();
    let (mut files, mut bytes) = (0_usize, 0_usize);
    for (uid, size) in kept {
        match now.get(uid) {
            None if spoken => plan.remove.push(uid.clone()),
            Some(Now::New(_)) => {}
            // Those that stay go before those that come.
            None | Some(Now::Same | Now::Unsure) => {
                (files, bytes) = (files + 1, bytes.saturating_add(*size));
            }
        }
    }
    for (uid, state) in now {
        let Now::New(size) = *state else { continue };
        let all = bytes.saturating_add(size);
        let refusal = if size > limits.file_bytes {
            Some(Refusal::TooLarge(size))
        } else {
            (all > limits.all_bytes || files >= limits.files).then_some(Refusal::Full)
        };
        match refusal {
            None => {
                (files, bytes) = (files + 1, all);
                plan.write.push(uid.clone());
            }
            Some(why) => {
                plan.refused.insert(uid.clone(), why);
                if kept.contains_key(uid) {
                    plan.remove.push(uid.clone());
                }
            }
        }
    }
    plan
}
