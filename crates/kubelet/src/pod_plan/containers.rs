//! Regular containers: which to start, stop, keep or hold back.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::hash::container_hash;
use kubelet_model::{
    Action, ContainerId, ContainerName, ContainerState, DesiredPod, Exit, Grace, Mono,
    ObservedContainer, ObservedPod, StopReason, WaitReason, Waiting,
};

use super::{PlanContext, PodPlan};

/// The pod's restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Restart whatever ended.
    Always,
    /// Restart what failed.
    OnFailure,
    /// Restart nothing.
    Never,
}

/// Reads the policy of a validated spec.
pub fn restart_policy(spec: &PodSpec) -> RestartPolicy {
    match spec.restart_policy.as_deref() {
        Some("OnFailure") => RestartPolicy::OnFailure,
        Some("Never") => RestartPolicy::Never,
        _ => RestartPolicy::Always,
    }
}

/// The pod's own grace period.
pub(super) fn grace(spec: &PodSpec) -> Grace {
    Grace::from_secs(spec.termination_grace_period_seconds.unwrap_or(30))
}

/// May a container in this state be started (again)?
pub fn should_start(policy: RestartPolicy, state: Option<&ContainerState>) -> bool {
    match state {
        None | Some(ContainerState::Created | ContainerState::Unknown) => true,
        Some(ContainerState::Running { .. }) => false,
        Some(ContainerState::Exited(exit)) => match policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit.code != 0,
            RestartPolicy::Never => false,
        },
    }
}

/// One container of the spec with the decision about it.
#[derive(Debug)]
pub(super) struct Wanted {
    name: ContainerName,
    /// The newest instance, if any.
    restart_count: Option<u32>,
    decision: Decision,
}

#[derive(Debug)]
enum Decision {
    /// Runs as defined.
    Keep,
    /// Ended and stays so.
    Done,
    /// Start it, after stopping the old instance if one may run.
    Start { stop_first: Option<(ContainerId, Grace, StopReason)> },
    /// Start it, but later.
    Hold { until: Mono, waiting: Waiting },
}

pub(super) fn wanted(pod: &DesiredPod, seen: &ObservedPod, ctx: &PlanContext<'_>) -> Vec<Wanted> {
    pod.spec().containers.iter().map(|container| want(pod, container, seen, ctx)).collect()
}

fn want(
    pod: &DesiredPod,
    container: &Container,
    seen: &ObservedPod,
    ctx: &PlanContext<'_>,
) -> Wanted {
    let name = ContainerName::new(&container.name);
    let newest = seen.newest(&name);
    Wanted {
        decision: decide(pod, container, &name, newest, ctx),
        restart_count: newest.map(|c| c.restart_count + 1),
        name,
    }
}

fn decide(
    pod: &DesiredPod,
    container: &Container,
    name: &ContainerName,
    newest: Option<&ObservedContainer>,
    ctx: &PlanContext<'_>,
) -> Decision {
    let state = newest.map(|c| &c.state);
    if let (Some(instance), Some(ContainerState::Running { .. })) = (newest, state) {
        let image = container.image.as_deref().unwrap_or_default();
        let changed = instance.hash != Some(container_hash(name.as_str(), image));
        if !changed {
            return Decision::Keep;
        }
        let why = StopReason::DefinitionChanged;
        let stop_first = Some((instance.id.clone(), grace(pod.spec()), why));
        return Decision::Start { stop_first };
    }
    if !should_start(restart_policy(pod.spec()), state) {
        return Decision::Done;
    }
    if let Some(hold) = hold_back(pod, name, newest, ctx) {
        return hold;
    }
    let stop_first = newest
        .filter(|c| c.state == ContainerState::Unknown)
        .map(|c| (c.id.clone(), grace(pod.spec()), StopReason::StateUnknown));
    Decision::Start { stop_first }
}

/// A failed start waits out its retry time, a crashed container its back-off.
fn hold_back(
    pod: &DesiredPod,
    name: &ContainerName,
    newest: Option<&ObservedContainer>,
    ctx: &PlanContext<'_>,
) -> Option<Decision> {
    if let Some(failure) = ctx.memory.failed_starts.get(name)
        && failure.retry_at > ctx.now
    {
        return Some(Decision::Hold { until: failure.retry_at, waiting: failure.waiting() });
    }
    let instance = newest?;
    let ContainerState::Exited(exit) = &instance.state else { return None };
    let ago = exited_ago(instance, exit, ctx);
    let delay = ctx.memory.crash_delay(name, ctx.backoff, ctx.now - ago);
    if ago >= delay {
        return None;
    }
    let message = format!(
        "back-off {} restarting failed container={name} pod={}_{}({})",
        go_duration(delay),
        pod.name(),
        pod.namespace(),
        pod.uid(),
    );
    let waiting = Waiting { reason: WaitReason::CrashLoopBackOff, message };
    Some(Decision::Hold { until: ctx.now + (delay - ago), waiting })
}

/// How long ago a container ended. The wall clock knows exits from before the
/// agent started; the agent's own sighting is immune to jumps of that clock.
fn exited_ago(instance: &ObservedContainer, exit: &Exit, ctx: &PlanContext<'_>) -> Duration {
    let by_wall = ctx.wall.duration_since(exit.finished_at).unsigned_abs();
    let by_wall = if ctx.wall < exit.finished_at { Duration::ZERO } else { by_wall };
    by_wall.max(ctx.memory.since_exit(&instance.name, &instance.id, ctx.now))
}

/// Whole seconds as Go prints them: `10s`, `1m20s`, `5m0s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

/// Plans containers in a sandbox that stays.
pub(super) fn plan(wanted: &[Wanted], plan: &mut PodPlan) {
    for container in wanted {
        if let Decision::Start { stop_first } = &container.decision {
            if let Some((id, grace, why)) = stop_first.clone() {
                let name = container.name.clone();
                plan.step(vec![Action::StopContainer { id, name, grace, why }]);
            }
            plan.step(vec![container.start()]);
        }
    }
}

/// Tells users and the timer about everything held back.
pub(super) fn explain(wanted: &[Wanted], plan: &mut PodPlan) {
    for container in wanted {
        if let Decision::Hold { until, waiting } = &container.decision {
            plan.wake(*until);
            plan.waiting.insert(container.name.clone(), waiting.clone());
        }
    }
}

impl Wanted {
    fn start(&self) -> Action {
        Action::StartContainer { name: self.name.clone(), restart_count: self.restart_count }
    }

    /// Would this container run in a new sandbox, now or after its back-off?
    pub(super) fn belongs_in_new_sandbox(&self) -> bool {
        !matches!(self.decision, Decision::Done)
    }

    pub(super) fn start_in_new_sandbox(&self, plan: &mut PodPlan) {
        if matches!(self.decision, Decision::Start { .. }) {
            plan.step(vec![self.start()]);
        }
    }
}
