//! What to do for one pod, decided from a snapshot of facts.
//!
//! Everything below is pure: no clock, no I/O, no randomness. Replanning after
//! every action succeeded at most removes what has just become old, and then
//! plans nothing. Upstream: computePodActions and its
//! callees in pkg/kubelet/kuberuntime.

mod containers;
mod memory;
mod prune;
mod sandbox;
mod terminate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubelet_model::{
    Action, BackoffPolicy, ContainerName, ContainerState, DesiredPod, Mono, ObservedContainer,
    ObservedPod, Steps, Waiting,
};

pub use containers::{RestartPolicy, restart_policy, should_start};
pub use memory::{FailedStart, Memory, RETRY_AFTER_ERROR};
pub use terminate::{Termination, plan_end, plan_termination};

/// Facts besides the pod and its observation.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// Monotonic now.
    pub now: Mono,
    /// Wall-clock now; only to age exits that happened before the agent started.
    pub wall: Timestamp,
    /// What earlier tries taught.
    pub memory: &'a Memory,
    /// Limits of the crash-loop back-off.
    pub backoff: BackoffPolicy,
    /// Dead instances kept per container name.
    pub max_dead: u32,
}

/// What to do now, what to tell users, and when to look again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodPlan {
    /// Effects in order.
    pub steps: Steps,
    /// Containers held back, and why.
    pub waiting: BTreeMap<ContainerName, Waiting>,
    /// When time alone changes the plan.
    pub wake_at: Option<Mono>,
}

impl PodPlan {
    fn wake(&mut self, at: Mono) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
    fn step(&mut self, actions: Vec<Action>) {
        if !actions.is_empty() {
            self.steps.push(actions);
        }
    }
}

/// A running container's log is linked once per life of the agent, so that a
/// link lost to a crash comes back.
fn plan_links(seen: &ObservedPod, memory: &Memory, plan: &mut PodPlan) {
    let running = seen.containers.iter().filter(|c| {
        matches!(c.state, ContainerState::Running { .. }) && !memory.linked_logs.contains(&c.id)
    });
    let link = |c: &ObservedContainer| Action::LinkLog {
        id: c.id.clone(),
        name: c.name.clone(),
        restart_count: c.restart_count,
    };
    plan.step(running.map(link).collect());
}

/// Plans a pod that should run.
pub fn plan_live(pod: &DesiredPod, seen: &ObservedPod, ctx: &PlanContext<'_>) -> PodPlan {
    let mut plan = PodPlan::default();
    let wanted = containers::wanted(pod, seen, ctx);
    match sandbox::decide(pod, seen) {
        sandbox::Verdict::Keep => {
            containers::plan_unlisted(pod, seen, &mut plan);
            containers::plan(&wanted, &mut plan);
        }
        sandbox::Verdict::Recreate { attempt } => {
            sandbox::plan_recreation(pod, seen, attempt, &wanted, &mut plan);
        }
    }
    containers::explain(&wanted, &mut plan);
    plan_links(seen, ctx.memory, &mut plan);
    prune::plan(seen, ctx, &mut plan);
    plan
}
