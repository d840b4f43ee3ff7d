//! Pods that take up more of the node than they may are ended.
//!
//! Owns which pods have limits on what they put on the node's disks, and measures those
//! pods every ten seconds; a node without such pods is left in peace. Reads what pods
//! take up from the same code as the summary. Ends pods through their workers; never
//! touches the runtime itself. Upstream: localStorageEviction in pkg/kubelet/eviction.

mod metrics;
mod plan;
#[cfg(test)]
mod tests;
mod worker;

pub use metrics::EvictionMetrics;

use std::sync::Arc;

use node_stats::{Roots, Stats};

use crate::events::Recorder;
use crate::pod_sources::PodSetReader;
use crate::pod_usage::PodUsage;
use crate::pod_workers::PodKiller;
use crate::ports::Ports;

/// Why pods are evicted, as statuses and events call it.
pub(crate) const REASON: &str = "Evicted";

/// Starts to watch what pods put on the node's disks.
pub fn start(
    ports: &Ports,
    desired: PodSetReader,
    usage: PodUsage,
    killer: PodKiller,
    recorder: Recorder,
    metrics: EvictionMetrics,
) {
    let clock = Arc::clone(&ports.clock);
    // Only what lies on disks is measured here: neither groups nor processes.
    let roots = Roots {
        cgroup: "/sys/fs/cgroup".into(),
        proc: "/proc".into(),
        node_fs: usage.root_dir.clone(),
    };
    let stats = Stats::new(Arc::clone(&ports.runtime), roots, Arc::new(move || clock.wall()));
    let worker = worker::StorageWatch::new(desired, usage, stats, killer, recorder, metrics);
    ports.tasks.spawn_vital("storage limits", worker.run());
}
