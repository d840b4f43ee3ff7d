//! Pod workers: one supervised task per pod, and the task that starts and ends
//! them.
//!
//! Owns the set of workers. Reads desired pods and observations. Workers write
//! statuses and, through the runtime manager, the runtime. A slow, broken or
//! panicking pod never delays another. Upstream: pkg/kubelet/pod_workers.go,
//! HandlePodCleanups in kubelet_pods.go.

mod admission;
mod census;
mod dispatcher;
mod ends;
mod events;
mod kill;
mod lifecycle;
mod metrics;
mod orphan_files;
mod perform;
mod pulls;
mod resizing;
mod telling;
mod volumes;
#[cfg(test)]
mod tests;
mod worker;

pub use kill::{Kill, KillError, KillStage, KillWatch, PodKiller};
pub use metrics::PodMetrics;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::admission::Inputs;
use crate::allocation::Allocations;
use crate::cluster_lists::ClusterLists;
use crate::events::Recorder;
use crate::image_manager::Images;
use crate::metrics::Metrics;
use crate::object_cache::Objects;
use crate::pleg::{Observations, RuntimeStateReader};
use crate::pod_sources::PodSetReader;
use crate::ports::Ports;
use crate::probe_manager::Probes;
use crate::progress::ProgressBoard;
use crate::pulse::Pulse;
use crate::settings::Settings;
use crate::status_manager::Statuses;
use crate::volume_manager::Volumes;

/// What every worker shares.
#[derive(Clone)]
pub struct Shared {
    /// Everything outside.
    pub ports: Ports,
    /// What the agent was told.
    pub settings: Arc<Settings>,
    /// What the runtime holds.
    pub observations: Observations,
    /// Whether the runtime is usable.
    pub runtime: RuntimeStateReader,
    /// What is reported.
    pub statuses: Statuses,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What users are told of.
    pub recorder: Recorder,
    /// What probes say.
    pub probes: Probes,
    /// What each worker is doing.
    pub progress: ProgressBoard,
    /// When the dispatcher last came around.
    pub pulse: Pulse,
    /// Images.
    pub images: Images,
    /// What pods are given.
    pub allocations: Allocations,
    /// What decides about new pods besides the pods that are there.
    pub admission: Inputs,
    /// Volumes.
    pub volumes: Volumes,
    /// ConfigMaps and Secrets.
    pub objects: Objects,
    /// Services and RuntimeClasses.
    pub lists: ClusterLists,
    /// Turns at the runtime for work that keeps it busy.
    pub lanes: Arc<Semaphore>,
}

/// Starts the dispatcher, which starts workers; what it returns ends their pods.
pub fn start(shared: Shared, desired: PodSetReader) -> PodKiller {
    let tasks = shared.ports.tasks.clone();
    let (killer, commands) = PodKiller::new(shared.recorder.clone());
    let dispatcher = dispatcher::Dispatcher::new(shared, desired, killer.clone(), commands);
    tasks.spawn_vital("dispatcher", dispatcher.run());
    killer
}
