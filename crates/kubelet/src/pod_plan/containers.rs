//! Regular containers: which to start, stop, keep or hold back.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::hash::container_hash;
use kubelet_model::{
    Action, ContainerName, ContainerState, DesiredPod, Exit, Grace, Mono, ObservedContainer,
    ObservedPod, StopReason, WaitReason, Waiting,
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
    // Even a pod that wants none gets the floor.
    Grace::from_secs(spec.termination_grace_period_seconds.unwrap_or(30)).after(Duration::ZERO)
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
    /// One more than the newest instance's, if there is one.
    restart_count: Option<u32>,
    /// Older instances that may run although they must not.
    strays: Vec<Action>,
    decision: Decision,
}

#[derive(Debug)]
enum Decision {
    /// Runs as defined.
    Keep,
    /// Ended and stays so.
    Done,
    /// Start it, after clearing away the instance before it.
    Start { clear: Option<Action> },
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
    let current = seen.current(&name);
    let others = seen.instances(&name).filter(|c| Some(&c.id) != current.map(|c| &c.id));
    let strays = others.filter(|c| c.state.may_run());
    Wanted {
        strays: strays.map(|c| stop(pod, c, StopReason::Superseded)).collect(),
        decision: decide(pod, container, &name, current, ctx),
        restart_count: seen.newest(&name).map(|c| c.restart_count.saturating_add(1)),
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
        return Decision::Start { clear: Some(stop(pod, instance, StopReason::DefinitionChanged)) };
    }
    if !should_start(restart_policy(pod.spec()), state) {
        return Decision::Done;
    }
    if let Some(hold) = hold_back(pod, name, newest, ctx) {
        return hold;
    }
    Decision::Start { clear: newest.and_then(|instance| clear_away(pod, instance)) }
}

/// What must be gone before the next instance starts: two must never run, not
/// even when an earlier call to start this one takes effect late.
fn clear_away(pod: &DesiredPod, instance: &ObservedContainer) -> Option<Action> {
    match instance.state {
        ContainerState::Unknown => Some(stop(pod, instance, StopReason::StateUnknown)),
        ContainerState::Created => Some(instance.removal()),
        ContainerState::Running { .. } | ContainerState::Exited(_) => None,
    }
}

fn stop(pod: &DesiredPod, instance: &ObservedContainer, why: StopReason) -> Action {
    Action::StopContainer {
        id: instance.id.clone(),
        name: instance.name.clone(),
        grace: grace(pod.spec()),
        why,
        after: Vec::new(),
    }
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

/// Containers that an edit has taken out of the pod.
pub(super) fn plan_unlisted(pod: &DesiredPod, seen: &ObservedPod, plan: &mut PodPlan) {
    let listed = |c: &&ObservedContainer| {
        pod.spec().containers.iter().any(|wanted| wanted.name == c.name.as_str())
    };
    let unlisted = seen.containers.iter().filter(|c| c.state.may_run() && !listed(c));
    plan.step(unlisted.map(|c| stop(pod, c, StopReason::DefinitionChanged)).collect());
}

/// Plans containers in a sandbox that stays.
pub(super) fn plan(wanted: &[Wanted], plan: &mut PodPlan) {
    for container in wanted {
        plan.step(container.strays.clone());
        if let Decision::Start { clear } = &container.decision {
            plan.step(clear.iter().cloned().collect());
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
        match &self.decision {
            // What ran in the old sandbox has been stopped with it.
            Decision::Keep => plan.step(vec![self.start()]),
            Decision::Start { clear } => {
                let created = clear.iter().filter(|a| matches!(a, Action::RemoveContainer { .. }));
                plan.step(created.cloned().collect());
                plan.step(vec![self.start()]);
            }
            Decision::Done | Decision::Hold { .. } => {}
        }
    }
}
