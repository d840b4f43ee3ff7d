//! Events the agent records about pods and the node.
//!
//! Owns a bounded record of the newest events. Everyone may add; the local
//! endpoint reads. Upstream: client-go tools/record, pkg/kubelet/events.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use kubelet_model::{EventObject, EventType};

use crate::ports::Clock;

/// Events kept; older ones are forgotten. A node of 110 pods that each crash
/// and pull makes some 1,000 distinct events.
const EVENTS_MAX: usize = 2_000;

/// One event, as often as it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// About what.
    pub object: EventObject,
    /// Normal or a warning.
    pub kind: EventType,
    /// Upstream's reason.
    pub reason: &'static str,
    /// What happened.
    pub message: String,
    /// How often.
    pub count: u32,
    /// The first time.
    pub first: Timestamp,
    /// The last time.
    pub last: Timestamp,
}

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    events: Arc<Mutex<VecDeque<Event>>>,
}

impl Recorder {
    /// An empty record.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, events: Arc::default() }
    }

    /// Records an event; one that is known already is counted.
    pub fn record(
        &self,
        object: &EventObject,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let (now, message) = (self.clock.wall(), message.into());
        tracing::debug!(?object, kind = kind.as_str(), reason, message, "event");
        let mut events = self.lock();
        let same = |e: &Event| {
            &e.object == object && e.kind == kind && e.reason == reason && e.message == message
        };
        let known = events.iter().position(same).and_then(|at| events.remove(at));
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        let event = match known {
            Some(old) => Event { count: old.count.saturating_add(1), last: now, ..old },
            None => Event {
                object: object.clone(),
                kind,
                reason,
                message,
                count: 1,
                first: now,
                last: now,
            },
        };
        events.push_back(event);
    }

    /// Every event kept, in the order they last happened.
    pub fn all(&self) -> Vec<Event> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().expect("event lock: no code panics while holding it")
    }
}
