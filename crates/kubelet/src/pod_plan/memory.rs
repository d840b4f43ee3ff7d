//! What a worker learns between plans.
//!
//! Lost when the agent restarts; nothing depends on it for safety, only for
//! pacing and for the words users read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubelet_model::{
    Action, Backoff, BackoffPolicy, ContainerId, ContainerName, ContainerState, DesiredPod, Exit,
    Mono, ObservedContainer, ObservedPod, SandboxId, Steps, Waiting,
};

/// Pause after an error that says nothing about when to try again.
pub const RETRY_AFTER_ERROR: Duration = Duration::from_secs(10);
/// A pod-wide step that failed is tried again soon, then less and less often:
/// most failures under load are gone a second later.
const RETRY_STEP_FIRST: Duration = Duration::from_secs(1);

/// A worker's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    crashes: BTreeMap<ContainerName, Backoff>,
    /// Images and resources of each container when it was last planned.
    definitions: BTreeMap<ContainerName, String>,
    exits_seen: BTreeMap<ContainerName, (ContainerId, Mono)>,
    /// The last failed start per container, until a start succeeds.
    pub failed_starts: BTreeMap<ContainerName, FailedStart>,
    /// Containers whose logs have been linked by this agent.
    pub linked_logs: BTreeSet<ContainerId>,
    /// Sandboxes that were stopped, not just seen stopped.
    pub stopped_sandboxes: BTreeSet<SandboxId>,
    /// Failures in a row of steps that concern the whole pod.
    failed_steps: u32,
    /// The last failure of a step that concerns the whole pod.
    pub sandbox_failure: Option<FailedStep>,
    /// The last resize, if it failed and is still wanted.
    pub resize_failure: Option<FailedStep>,
}

/// A container start that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStart {
    /// What the container's status says while it waits for the next try.
    pub waiting: Waiting,
    /// Not before.
    pub retry_at: Mono,
    /// When the first failure of its like came; none has succeeded since.
    pub since: Mono,
}

/// A step of the whole pod that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// In the runtime's words.
    pub message: String,
    /// Not before.
    pub retry_at: Mono,
}

impl Memory {
    /// Notes when each exit was first seen, and forgets those of older instances.
    pub fn note_observation(&mut self, seen: &ObservedPod, now: Mono) {
        self.linked_logs.retain(|id| seen.containers.iter().any(|c| &c.id == id));
        self.stopped_sandboxes.retain(|id| seen.sandboxes.iter().any(|s| &s.id == id));
        for container in &seen.containers {
            let current = seen.current(&container.name).map(|c| &c.id);
            if current != Some(&container.id)
                || !matches!(container.state, ContainerState::Exited(_))
            {
                continue;
            }
            let known = self.exits_seen.get(&container.name);
            if known.is_none_or(|(id, _)| id != &container.id) {
                self.exits_seen.insert(container.name.clone(), (container.id.clone(), now));
            }
        }
    }

    /// Forgets the failures of containers whose images or resources are no longer
    /// those that failed.
    pub fn note_definition(&mut self, pod: &DesiredPod) {
        let spec = pod.spec();
        let init = spec.init_containers.iter().flatten();
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let defined = init.chain(&spec.containers).map(|c| (&c.name, &c.image, &c.resources));
        let defined = defined.chain(ephemeral.map(|c| (&c.name, &c.image, &None)));
        for (name, image, resources) in defined {
            let name = ContainerName::new(name);
            let definition = format!("{image:?} {resources:?} {:?}", spec.volumes);
            if self.definitions.get(&name) == Some(&definition) {
                continue;
            }
            self.crashes.remove(&name);
            self.failed_starts.remove(&name);
            self.resize_failure = None;
            self.definitions.insert(name, definition);
        }
    }

    /// A start begins. If it follows an exit, the next one waits longer.
    pub fn note_start(
        &mut self,
        seen: &ObservedPod,
        name: &ContainerName,
        policy: BackoffPolicy,
        now: Mono,
    ) {
        let Some(instance) = seen.current(name) else { return };
        let failed_at = match instance.state {
            ContainerState::Exited(_) => now - self.since_exit(name, &instance.id, now),
            // It was stopped to be replaced, and not for the first time.
            ContainerState::Running { .. } if last_exit(seen, name).is_some() => now,
            _ => return,
        };
        self.crashes.entry(name.clone()).or_default().advance(policy, failed_at, now);
    }

    /// A start succeeded.
    pub fn note_started(&mut self, name: &ContainerName) {
        self.failed_starts.remove(name);
    }

    /// A start failed and is not to be tried again before `pause` is over.
    pub fn note_failed_start(
        &mut self,
        name: &ContainerName,
        waiting: Waiting,
        pause: Duration,
        now: Mono,
    ) {
        let alike = |before: &&FailedStart| {
            let (old, new) = (before.waiting.reason, waiting.reason);
            old == new || (old.is_of_image() && new.is_of_image())
        };
        let since = self.failed_starts.get(name).filter(alike).map_or(now, |before| before.since);
        let failure = FailedStart { waiting, retry_at: now + pause, since };
        self.failed_starts.insert(name.clone(), failure);
    }

    /// What is said of containers while they are being started: why the start
    /// before failed, until this one succeeds or fails anew.
    pub fn waiting_of(
        &self,
        steps: &Steps,
        seen: &ObservedPod,
    ) -> BTreeMap<ContainerName, Waiting> {
        let runs = |name| seen.current(name).is_some_and(|instance| instance.state.may_run());
        let starts = steps.iter().flatten().filter_map(|action| match action {
            Action::StartContainer { name, .. } if !runs(name) => Some(name),
            _ => None,
        });
        let failed = starts.filter_map(|name| Some((name, self.failed_starts.get(name)?)));
        failed.map(|(name, failure)| (name.clone(), failure.waiting.clone())).collect()
    }

    /// How long a pod-wide step that fails now should rest.
    pub fn step_pause(&self) -> Duration {
        let doubled = RETRY_STEP_FIRST.saturating_mul(1 << self.failed_steps.min(10));
        doubled.min(RETRY_AFTER_ERROR)
    }

    /// The sandbox or a pod-wide step failed.
    pub fn note_failed_step(&mut self, message: String, pause: Duration, now: Mono) {
        self.failed_steps = self.failed_steps.saturating_add(1);
        self.sandbox_failure = Some(FailedStep { message, retry_at: now + pause });
    }

    /// A resize failed; the pod runs on as it was.
    pub fn note_failed_resize(&mut self, message: String, pause: Duration, now: Mono) {
        self.resize_failure = Some(FailedStep { message, retry_at: now + pause });
    }

    /// A resize succeeded.
    pub fn note_resized(&mut self) {
        self.resize_failure = None;
    }

    /// Every step of a plan succeeded.
    pub fn note_plan_done(&mut self) {
        self.failed_steps = 0;
    }

    /// A pod-wide step succeeded.
    pub fn note_step_done(&mut self) {
        self.sandbox_failure = None;
    }

    /// Forgets every retry time: the cause of the failures is gone.
    pub fn retry_at_once(&mut self, now: Mono) {
        for failure in self.failed_starts.values_mut() {
            failure.retry_at = now;
        }
        for failure in [&mut self.sandbox_failure, &mut self.resize_failure].into_iter().flatten() {
            failure.retry_at = now;
        }
    }

    pub(super) fn crash_delay(
        &self,
        name: &ContainerName,
        policy: BackoffPolicy,
        failed_at: Mono,
    ) -> Duration {
        self.crashes.get(name).map_or(Duration::ZERO, |backoff| backoff.delay(policy, failed_at))
    }

    pub(super) fn since_exit(&self, name: &ContainerName, id: &ContainerId, now: Mono) -> Duration {
        match self.exits_seen.get(name) {
            Some((known, seen_at)) if known == id => now.since(*seen_at),
            _ => Duration::ZERO,
        }
    }
}

/// The newest instance of a container that has ended.
pub(super) fn last_exit<'a>(
    seen: &'a ObservedPod,
    name: &'a ContainerName,
) -> Option<(&'a ObservedContainer, &'a Exit)> {
    seen.instances(name).find_map(|instance| match &instance.state {
        ContainerState::Exited(exit) => Some((instance, exit)),
        _ => None,
    })
}
