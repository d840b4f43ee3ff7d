//! One follower of changes: what it missed, then what happens, in order.
//!
//! Owns its queue, which is bounded; the store cuts off a follower whose queue is
//! full. Dropping it unsubscribes.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::Store;
use super::change::Change;

/// Changes that may wait for one follower. Upstream's watch cache allows 10 to 1000.
const QUEUE: usize = 1000;

/// Where a follower starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With all that is there, told as created, and then its changes.
    WithObjects,
    /// With what happens from this moment on.
    Now,
    /// With what happened after a revision.
    After(u64),
}

/// What a follower hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// An object changed.
    Change(Arc<Change>),
    /// Everything up to this revision has been told.
    Progress(u64),
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: u64,
    pub(super) resource: String,
    pub(super) namespace: String,
    sender: mpsc::Sender<Signal>,
}

impl Queue {
    pub(super) fn send(&self, signal: Signal) -> bool {
        self.sender.try_send(signal).is_ok()
    }
}

pub(super) fn queue(id: u64, resource: &str, namespace: &str) -> (Queue, mpsc::Receiver<Signal>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Queue { id, resource: resource.to_owned(), namespace: namespace.to_owned(), sender }, receiver)
}

/// A follower.
#[derive(Debug)]
pub struct Watcher {
    store: Arc<Store>,
    id: u64,
    first: VecDeque<Arc<Change>>,
    receiver: mpsc::Receiver<Signal>,
    /// The revision at which it subscribed.
    pub revision: u64,
    /// The revision after which it follows; later than any there is if it was told of one
    /// that does not exist yet. Nothing is told up to there.
    pub after: u64,
}

impl Watcher {
    pub(super) fn new(
        store: Arc<Store>,
        id: u64,
        revision: u64,
        after: u64,
        first: Vec<Arc<Change>>,
        receiver: mpsc::Receiver<Signal>,
    ) -> Self {
        Self { store, id, first: first.into(), receiver, revision, after }
    }

    /// The next of what was there or had happened when it subscribed.
    pub fn next_of_first(&mut self) -> Option<Arc<Change>> {
        self.first.pop_front()
    }

    /// The next of what happens; none once it is cut off for being slow.
    pub async fn next(&mut self) -> Option<Signal> {
        if let Some(change) = self.first.pop_front() {
            return Some(Signal::Change(change));
        }
        loop {
            match self.receiver.recv().await? {
                Signal::Change(change) if change.object.revision <= self.after => {}
                signal => return Some(signal),
            }
        }
    }

    /// Has [`Signal::Progress`] told after all that happened before this call.
    pub fn ask_for_progress(&self) {
        self.store.ask_for_progress(self.id);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.store.unsubscribe(self.id);
    }
}
