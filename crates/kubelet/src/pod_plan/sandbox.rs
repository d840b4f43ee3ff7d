//! Whether the pod's sandbox will do, and how to replace it.

use kubelet_model::restart::restart_policy;
use kubelet_model::{
    Action, ContainerKind, ContainerState, ObservedContainer, RestartPolicy, StopReason,
};

use super::wanted::Wanted;
use super::{Facts, PodPlan, containers, grace, init, terminate};

/// What to do about the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The newest one is usable.
    Keep,
    /// Stop everything and make a new one.
    Recreate { attempt: u32 },
}

pub(super) fn decide(facts: Facts<'_>) -> Verdict {
    let seen = facts.seen;
    let Some(newest) = seen.sandboxes.first() else {
        return Verdict::Recreate { attempt: 0 };
    };
    let host_network = facts.pod.spec().host_network.unwrap_or(false);
    let several_ready = seen.sandboxes.iter().filter(|s| s.ready).count() > 1;
    let usable = newest.ready
        && !several_ready
        && newest.host_network == host_network
        && (host_network || !newest.ips.is_empty());
    if usable {
        Verdict::Keep
    } else {
        Verdict::Recreate { attempt: newest.attempt.saturating_add(1) }
    }
}

/// Stops what is left of the old sandbox; makes a new one if there is something to run in it.
pub(super) fn plan_recreation(facts: Facts<'_>, attempt: u32, plan: &mut PodPlan) {
    let wanted = containers::wanted(facts);
    let replace = wants_sandbox(facts, attempt, &wanted);
    let mut stopping = facts.seen.clone();
    if let Some(newest) = stopping.sandboxes.first_mut() {
        // One that died by itself still holds its network.
        newest.ready |= replace;
    }
    let grace = grace::of_pod(facts.pod);
    let why = StopReason::SandboxChanged;
    plan.steps.extend(terminate::stop_everything(Some(facts.pod), &stopping, grace, why));
    if !replace {
        plan.cut_off = is_cut_off(facts, attempt) && !facts.seen.may_run();
        return;
    }
    let first = init::first_in_new_sandbox(facts);
    if first.is_some() {
        plan.step(purge(facts));
    }
    plan.step(vec![Action::CreateSandbox { attempt }]);
    // A pod with init containers starts over with the first of them.
    let due = first.map_or(wanted, |first| vec![first]);
    for container in due {
        container.start_in_new_sandbox(plan);
        container.explain(plan);
    }
}

/// Traces in the old sandbox by which the pod would seem further than it is.
fn purge(facts: Facts<'_>) -> Vec<Action> {
    let misleads = |c: &&ObservedContainer| match facts.pod.container(c.name.as_str()) {
        Some((ContainerKind::Init | ContainerKind::Sidecar, _)) => true,
        Some((ContainerKind::Regular, _)) => matches!(c.state, ContainerState::Created),
        Some((ContainerKind::Ephemeral, _)) | None => false,
    };
    facts.seen.containers.iter().filter(misleads).map(ObservedContainer::removal).collect()
}

fn wants_sandbox(facts: Facts<'_>, attempt: u32, wanted: &[Wanted]) -> bool {
    !is_cut_off(facts, attempt)
        && (facts.seen.containers.is_empty() || wanted.iter().any(Wanted::belongs_in_new_sandbox))
}

/// A pod that never restarts is not started over in another sandbox once it had
/// containers, whatever policies those have of their own. Upstream leaves it
/// pending or running for ever; nothing would ever tell that it is over.
fn is_cut_off(facts: Facts<'_>, attempt: u32) -> bool {
    let never = restart_policy(facts.pod.spec()) == RestartPolicy::Never;
    never && attempt != 0 && !facts.seen.containers.is_empty()
}
