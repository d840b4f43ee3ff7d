//! The newest changes, in order, up to a number of them and of their bytes.
//!
//! Pure. Whoever asks for a revision older than `oldest` has missed something.

use std::collections::VecDeque;
use std::sync::Arc;

use super::change::Change;

/// Bytes of remembered objects; those of a busy node's day are far fewer.
const BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct History {
    changes: VecDeque<Arc<Change>>,
    limit: usize,
    bytes: usize,
    /// Changes after this revision are all here.
    oldest: u64,
}

impl History {
    pub(super) fn new(limit: usize, revision: u64) -> Self {
        Self { changes: VecDeque::new(), limit, bytes: 0, oldest: revision }
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(super) fn push(&mut self, change: Arc<Change>) {
        self.bytes += change.object.bytes.len();
        self.changes.push_back(change);
        while self.changes.len() > self.limit || self.bytes > BYTES {
            self.drop_first();
        }
    }

    pub(super) fn forget(&mut self, revision: u64) {
        while self.changes.front().is_some_and(|change| change.object.revision <= revision) {
            self.drop_first();
        }
        self.oldest = self.oldest.max(revision);
    }

    /// Takes out the changes after a revision, newest first.
    pub(super) fn take_newer(&mut self, than: u64) -> Vec<Arc<Change>> {
        let mut taken = Vec::new();
        while let Some(change) = self.changes.pop_back_if(|c| c.object.revision > than) {
            self.bytes -= change.object.bytes.len();
            taken.push(change);
        }
        taken
    }

    fn drop_first(&mut self) {
        if let Some(change) = self.changes.pop_front() {
            self.bytes -= change.object.bytes.len();
            self.oldest = change.object.revision;
        }
    }

    pub(super) fn oldest_first(&self, after: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.changes.iter().filter(move |change| change.object.revision > after)
    }

    pub(super) fn newest_first(&self, after: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.changes.iter().rev().take_while(move |change| change.object.revision > after)
    }
}
