//! Events the agent records about pods and the node.
//!
//! Owns a bounded record of the newest events, correlated as upstream does
//! before it sends them. Everyone may add; the local endpoint reads.
//! Upstream: client-go tools/record, pkg/kubelet/events.

mod correlate;
mod lru;
mod node;
mod reasons;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use kubelet_model::{EventObject, EventType};

use crate::ports::Clock;
use correlate::Correlator;
use lru::{Key, Lru};
pub use node::NodeEvents;
pub use reasons::reason_named;

/// Events kept; older ones are forgotten. A node of 110 pods that each crash
/// and pull makes some 1,000 distinct events.
const EVENTS_MAX: usize = 2_000;
/// Reasons that explanations follow from. The newest event of each is kept, however
/// many there were before it and however few of those were let through.
const EXPLAINING: [&str; 2] = ["Killing", "Unhealthy"];
/// Bytes of a message; what a runtime or a probe says can be of any length.
const MESSAGE_MAX: usize = 8_192;

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

/// An event that just happened.
#[derive(Debug, Clone, PartialEq, Eq)]
struct News {
    object: EventObject,
    kind: EventType,
    reason: &'static str,
    message: String,
}

/// Is told every event that was let through, with a number that is the same for events
/// that only happened again.
pub type OnEvent = Box<dyn Fn(u64, &Event) + Send + Sync>;

/// Takes events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    record: Arc<Mutex<Record>>,
}

struct Record {
    correlator: Correlator,
    events: Lru<Event>,
    /// By the first word of the message too: it names the kind of a probe.
    newest: Lru<Event>,
    on_event: Option<OnEvent>,
}

impl Recorder {
    /// An empty record.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let record = Record {
            correlator: Correlator::new(),
            events: Lru::new(EVENTS_MAX),
            newest: Lru::new(EVENTS_MAX),
            on_event: None,
        };
        Self { clock, record: Arc::new(Mutex::new(record)) }
    }

    /// Records an event. One that is known already is counted; many similar
    /// ones are combined; too many about one object are dropped.
    pub fn record(
        &self,
        object: &EventObject,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_MAX));
        tracing::debug!(?object, kind = kind.as_str(), reason, message, "event");
        let news = News { object: object.clone(), kind, reason, message };
        let (wall, now) = (self.clock.wall(), self.clock.mono());
        let mut record = self.lock();
        if EXPLAINING.contains(&reason) {
            let News { message, .. } = &news;
            let topic = message.split(' ').next().unwrap_or_default();
            let key = Key::of((object, reason, topic));
            let (object, message) = (object.clone(), message.clone());
            let event = Event { object, kind, reason, message, count: 1, first: wall, last: wall };
            record.newest.put(key, event);
        }
        match record.correlator.correlate(news, wall, now) {
            Some((key, event)) => {
                if let Some(tell) = &record.on_event {
                    tell(key.number(), &event);
                }
                record.events.put(key, event);
            }
            None => {
                tracing::debug!(?object, reason, "event held back: too many about this object");
            }
        }
    }

    /// Has somebody told of every event, also of those that are kept already.
    pub fn tell(&self, on_event: OnEvent) {
        let mut record = self.lock();
        record.events.each(|key, event| on_event(key.number(), event));
        record.on_event = Some(on_event);
    }

    /// Every event kept, in the order they last happened.
    pub fn all(&self) -> Vec<Event> {
        self.lock().events.values().cloned().collect()
    }

    /// The newest events of those that explanations follow from, also such as were held
    /// back, in the order they happened.
    pub fn explaining(&self) -> Vec<Event> {
        self.lock().newest.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("event lock: no code panics while holding it")
    }
}
