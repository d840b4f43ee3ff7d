//! PLEG: turns what the runtime says into observations.
//!
//! Owns the observation table. Reads CRI listings, statuses and events. Writes
//! [`Observations`]. Never decides what a pod should do. Where the runtime
//! streams events a full listing is only a safety net; where it does not, the
//! listing is the engine. Either way an observation is a level: a lost or
//! doubled event costs latency, never correctness. Inspections run side by side,
//! so one hung call delays one pod only.
//! Upstream: pkg/kubelet/pleg, pkg/kubelet/container/cache.go.

mod diff;
mod evented;
mod health;
mod inspect;
mod last_words;
mod observations;
mod on_event;
mod parse;
mod ready;
mod relist;
mod runtime_state;
pub(crate) mod signals;

pub use observations::{Existing, Hold, Observations, PodWatch};
pub use parse::labels;
pub(crate) use parse::sandbox_of;
pub use runtime_state::{RuntimeState, RuntimeStateReader};

use std::sync::Arc;

use crate::metrics::Metrics;
use crate::ports::Ports;

/// Starts observing; returns the table and the runtime's state. Without
/// `follow_events` the runtime is listed every second, whatever it can stream.
pub fn start(
    ports: &Ports,
    metrics: &Arc<Metrics>,
    follow_events: bool,
) -> (Observations, RuntimeStateReader) {
    let (observations, requests) = Observations::new();
    let (writer, reader) = runtime_state::channel();
    let relister = relist::Relister::new(
        ports.clone(),
        observations.clone(),
        requests,
        writer,
        Arc::clone(metrics),
        follow_events,
    );
    ports.tasks.spawn_vital("pleg", relister.run());
    (observations, reader)
}
