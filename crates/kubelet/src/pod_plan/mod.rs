//! What to do for one pod, decided from a snapshot of facts.
//!
//! Everything below is pure: no clock, no I/O, no randomness. Replanning after
//! every action succeeded at most removes what has just become old, and then
//! plans nothing. Upstream: computePodActions and its
//! callees in pkg/kubelet/kuberuntime.

mod containers;
mod deadline;
mod ending;
mod grace;
mod init;
mod memory;
mod prune;
mod resize;
mod restart_all;
mod sandbox;
mod terminate;
mod wanted;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubelet_model::{
    Action, BackoffPolicy, ContainerName, ContainerState, DesiredPod, Mono, ObservedContainer,
    ObservedPod, PodResources, ProbeResults, Steps, StopReason, Waiting,
};

pub use deadline::{Deadline, deadline};
pub use ending::Ending;
pub use grace::seconds_of_stop;
pub use kubelet_model::restart::{RestartPolicy, restart_policy};
pub use memory::{FailedStart, Memory, RETRY_AFTER_ERROR};
pub use resize::{Resource, Stage, is_resizing, stages};
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
    /// What the probes of the pod's containers say.
    pub probes: &'a ProbeResults,
    /// What the pod's containers were last given; `None` if nobody knows.
    pub actuated: Option<&'a PodResources>,
}

/// Everything a live pod's plan is made from.
#[derive(Debug, Clone, Copy)]
struct Facts<'a> {
    pod: &'a DesiredPod,
    seen: &'a ObservedPod,
    ctx: &'a PlanContext<'a>,
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
    /// The pod lost its sandbox, never restarts, and nothing of it runs: unless its
    /// containers have ended for good, it has to fail.
    pub cut_off: bool,
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
/// link lost to a crash comes back. One that this very plan removes takes its
/// link along.
fn plan_links(seen: &ObservedPod, memory: &Memory, plan: &mut PodPlan) {
    let removed = |c: &ObservedContainer| {
        let mut planned = plan.steps.iter().flatten();
        planned.any(|a| matches!(a, Action::RemoveContainer { id, .. } if *id == c.id))
    };
    let running = seen.containers.iter().filter(|c| {
        matches!(c.state, ContainerState::Running { .. })
            && !memory.linked_logs.contains(&c.id)
            && !removed(c)
    });
    let link = |c: &ObservedContainer| Action::LinkLog {
        id: c.id.clone(),
        name: c.name.clone(),
        restart_count: c.restart_count,
    };
    let step = running.map(link).collect();
    plan.step(step);
}

/// Removes dead instances beyond what the status of a pod that has ended needs.
pub fn plan_remains(pod: &DesiredPod, seen: &ObservedPod, ctx: &PlanContext<'_>) -> Steps {
    let mut plan = PodPlan::default();
    prune::plan(Facts { pod, seen, ctx }, &mut plan);
    plan.steps
}

/// Plans a pod that should run.
pub fn plan_live(pod: &DesiredPod, seen: &ObservedPod, ctx: &PlanContext<'_>) -> PodPlan {
    let mut plan = PodPlan::default();
    if let Some(steps) = restart_all::plan(pod, seen) {
        plan.steps = steps;
        return plan;
    }
    let facts = Facts { pod, seen, ctx };
    match sandbox::decide(facts) {
        sandbox::Verdict::Keep => plan_in_sandbox(facts, &mut plan),
        sandbox::Verdict::Recreate { attempt } => {
            sandbox::plan_recreation(facts, attempt, &mut plan);
        }
    }
    plan_links(seen, ctx.memory, &mut plan);
    prune::plan(facts, &mut plan);
    plan
}

/// Plans containers in a sandbox that stays. Only what is due is planned: a start
/// that must wait for another to succeed comes with a later plan.
fn plan_in_sandbox(facts: Facts<'_>, plan: &mut PodPlan) {
    let init = init::walk(facts);
    let (regular, goes_on) = match init.progress {
        init::Progress::Failed => (Vec::new(), false),
        init::Progress::Pending => (Vec::new(), true),
        init::Progress::Complete => {
            let regular = containers::wanted(facts);
            let goes_on = regular.iter().any(wanted::Wanted::goes_on);
            (regular, goes_on)
        }
    };
    if !goes_on {
        // Sidecars must not keep a pod alive that has nothing else to run.
        let grace = grace::of_pod(facts.pod);
        let why = StopReason::PodTerminating;
        plan.step(terminate::stop_containers(Some(facts.pod), facts.seen, grace, why));
        return;
    }
    containers::plan_unlisted(facts, plan);
    let ephemeral = containers::ephemeral(facts);
    let all = || ephemeral.iter().chain(&init.due).chain(&regular);
    match resize::plan(facts, all(), plan) {
        None => all().for_each(|container| container.plan(plan)),
        // What is stopped makes room, and what starts needs it.
        Some(resize) => {
            all().for_each(|container| container.plan_stop(plan));
            plan.step(vec![resize]);
            all().for_each(|container| container.plan_start(plan));
        }
    }
    for container in all() {
        container.explain(plan);
    }
}
