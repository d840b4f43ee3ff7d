//! The closed vocabulary of effects: everything a plan can ask for.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodSpec;

use crate::ids::{ContainerId, ContainerName, SandboxId};
use crate::resources::ContainerResize;

/// Time between the stop signal and the kill. It only shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grace(Duration);

impl Grace {
    /// What a container gets at the least, however late it is.
    pub const FLOOR: Self = Self(Duration::from_secs(2));
    /// Seconds of a pod whose spec names none.
    pub const DEFAULT_SECONDS: i64 = 30;

    /// Seconds that a spec gives its containers to end.
    pub fn seconds_of(spec: &PodSpec) -> i64 {
        spec.termination_grace_period_seconds.unwrap_or(Self::DEFAULT_SECONDS)
    }

    /// A grace period in seconds; negative counts as zero.
    pub fn from_secs(seconds: i64) -> Self {
        Self(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
    /// What is left after `elapsed`, but never less than the floor.
    pub fn after(self, elapsed: Duration) -> Self {
        Self(self.0.saturating_sub(elapsed).max(Self::FLOOR.0))
    }
    /// As a duration.
    pub fn duration(self) -> Duration {
        self.0
    }
}

/// One effect on the runtime or the pod's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Create and start a sandbox.
    CreateSandbox {
        /// Its attempt number.
        attempt: u32,
    },
    /// Get the image, then create and start a container in the newest sandbox.
    StartContainer {
        /// Which container of the pod.
        name: ContainerName,
        /// Its number if known from an earlier instance; otherwise the logs tell.
        restart_count: Option<u32>,
    },
    /// Stop a container.
    StopContainer {
        /// Which instance.
        id: ContainerId,
        /// Its name, for messages.
        name: ContainerName,
        /// Time to end by itself.
        grace: Grace,
        /// Why.
        why: StopReason,
        /// Containers of the same step that must have ended before this one is
        /// told to stop, while grace remains. Its hook runs without waiting.
        after: Vec<ContainerName>,
    },
    /// Stop a sandbox and whatever still runs in it.
    StopSandbox {
        /// Which.
        id: SandboxId,
    },
    /// Remove a container that has ended.
    RemoveContainer {
        /// Which instance.
        id: ContainerId,
        /// Its name: part of its log link.
        name: ContainerName,
        /// Its number: the name of its log.
        restart_count: u32,
        /// Leave its log where it is.
        keep_log: bool,
    },
    /// Remove a sandbox that has been stopped.
    RemoveSandbox {
        /// Which.
        id: SandboxId,
    },
    /// Link a container's log into the flat directory that log shippers read.
    LinkLog {
        /// Which instance.
        id: ContainerId,
        /// Its name.
        name: ContainerName,
        /// Its number: the name of its log.
        restart_count: u32,
    },
    /// Give running containers, and the pod as a whole, what they are allocated.
    Resize {
        /// Containers whose memory changes, those that shrink first.
        memory: Vec<ContainerResize>,
        /// Containers whose processors change, those that shrink first.
        cpu: Vec<ContainerResize>,
        /// A container starts with another size than before: the pod as a whole
        /// must follow even if no running container changes.
        pod: bool,
    },
    /// Remove what the pod holds on the node: control group and directories.
    RemovePodFiles,
    /// Remove only the pod's control group: it has ended, but is still wanted.
    RemovePodCgroup,
}

/// Why a container is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The pod goes away.
    PodTerminating,
    /// Its image or name changed.
    DefinitionChanged,
    /// Its sandbox is unusable.
    SandboxChanged,
    /// The runtime lost track of it.
    StateUnknown,
    /// A newer instance of the same name exists.
    Superseded,
    /// Its liveness probe failed.
    LivenessFailed,
    /// Its startup probe failed.
    StartupFailed,
    /// What it should do first after its start failed.
    PostStartFailed,
    /// A container's exit restarts the whole pod.
    RestartAll,
    /// It was resized, and its resize policy wants a restart for that.
    Resized,
}

/// A plan's effects in order: actions inside a step run side by side.
pub type Steps = Vec<Vec<Action>>;
