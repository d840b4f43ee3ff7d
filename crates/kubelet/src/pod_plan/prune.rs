//! Dead instances beyond what the status needs.
//!
//! Upstream: pkg/kubelet/pod_container_deletor.go, kuberuntime_gc.go.

use std::collections::{BTreeMap, BTreeSet};

use kubelet_model::{
    Action, ContainerId, ContainerState, ObservedContainer, ObservedPod, SandboxId, Steps,
};

use super::{Facts, Memory, PodPlan, init};

/// Removes what is dead and neither newest nor within the kept history.
pub(super) fn plan(facts: Facts<'_>, plan: &mut PodPlan) {
    let Facts { seen, ctx, .. } = facts;
    let doomed = doomed_containers(facts);
    let removed = |id: &ContainerId| {
        let mut planned = plan.steps.iter().flatten();
        planned.any(|a| matches!(a, Action::RemoveContainer { id: gone, .. } if gone == id))
    };
    let left = seen.containers.iter().filter(|c| doomed.contains(&c.id) && !removed(&c.id));
    let step = left.map(ObservedContainer::removal).collect();
    plan.step(step);
    let sandboxes = doomed_sandboxes(seen, &doomed);
    plan.steps.extend(remove_sandboxes(sandboxes, ctx.memory));
}

/// Every sandbox must be stopped once, even one that died by itself: it may
/// still hold its network.
pub(super) fn remove_sandboxes(ids: Vec<SandboxId>, memory: &Memory) -> Steps {
    let unstopped = ids.iter().filter(|id| !memory.stopped_sandboxes.contains(id));
    let stops: Vec<_> = unstopped.map(|id| Action::StopSandbox { id: id.clone() }).collect();
    let removals: Vec<_> = ids.into_iter().map(|id| Action::RemoveSandbox { id }).collect();
    [stops, removals].into_iter().filter(|step| !step.is_empty()).collect()
}

fn doomed_containers(facts: Facts<'_>) -> BTreeSet<ContainerId> {
    let seen = facts.seen;
    let init: BTreeSet<_> = init::containers(facts.pod).iter().map(|c| c.name.as_str()).collect();
    let mut kept = BTreeMap::new();
    let mut doomed = BTreeSet::new();
    for container in &seen.containers {
        match container.state {
            // Never started, and another instance stands for the container.
            ContainerState::Created => {
                let current = seen.current(&container.name);
                if current.is_some_and(|current| current.id != container.id) {
                    doomed.insert(container.id.clone());
                }
            }
            ContainerState::Exited(_) => {
                // An init container that keeps failing leaves no more than it must.
                let is_init = init.contains(container.name.as_str());
                let keep = if is_init { 1 } else { facts.ctx.max_dead.max(1) };
                let count = kept.entry(&container.name).or_insert(0);
                *count += 1;
                if *count > keep {
                    doomed.insert(container.id.clone());
                }
            }
            ContainerState::Running { .. } | ContainerState::Unknown => {}
        }
    }
    doomed
}

/// Stopped sandboxes that are not the newest and hold nothing any more.
fn doomed_sandboxes(seen: &ObservedPod, doomed: &BTreeSet<ContainerId>) -> Vec<SandboxId> {
    let inhabited: BTreeSet<_> =
        seen.containers.iter().filter(|c| !doomed.contains(&c.id)).map(|c| &c.sandbox).collect();
    seen.sandboxes
        .iter()
        .skip(1)
        .filter(|sandbox| !sandbox.ready && !inhabited.contains(&sandbox.id))
        .map(|sandbox| sandbox.id.clone())
        .collect()
}
