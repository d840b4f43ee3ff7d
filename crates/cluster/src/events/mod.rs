//! Writes events to the API server.
//!
//! Owns a bounded queue of events, which were counted and combined before, and the names
//! under which they were written. One request at a time, in the order they came; while
//! the server is away everything waits, and what no longer fits is dropped and counted.
//! Never decides what is worth an event. Upstream: client-go tools/record/event.go.

mod names;
mod report;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api_client::{Api, Spread};
use tokio::sync::mpsc;

pub use report::{EventReport, Involved};
pub use write::EventWriter;

/// Events that wait to be written, as upstream.
const QUEUE_MAX: usize = 1_000;

/// Who writes, and how fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the node.
    pub node_name: String,
    /// `eventRecordQPS`: requests a second; no limit if 0.
    pub qps: u32,
    /// `eventBurst`: requests at once before that counts.
    pub burst: u32,
}

/// What became of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The server has them.
    pub written: u64,
    /// There was no place for them.
    pub dropped: u64,
    /// The server refused them, or was away for too long.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct EventSink {
    queue: mpsc::Sender<EventReport>,
    counters: Arc<Counters>,
}

impl EventSink {
    /// Puts an event into the queue. Never waits: one for which there is no place is
    /// dropped.
    pub fn push(&self, event: EventReport) {
        if let Err(error) = self.queue.try_send(event) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            let EventReport { object, reason, .. } = error.into_inner();
            tracing::debug!(object = %object, reason, "event dropped: too many wait");
        }
    }

    /// What became of events so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { written, dropped, failed } = &*self.counters;
        Counts { written: read(written), dropped: read(dropped), failed: read(failed) }
    }
}

/// A queue of events, and what writes them while it runs.
pub fn new(api: Arc<dyn Api>, settings: Settings, spread: Spread) -> (EventSink, EventWriter) {
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let counters = Arc::<Counters>::default();
    let sink = EventSink { queue, counters: Arc::clone(&counters) };
    (sink, EventWriter::new(api, settings, spread, waiting, counters))
}
