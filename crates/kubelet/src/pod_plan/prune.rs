//! Dead instances beyond what the status needs.
//!
//! Upstream: pkg/kubelet/pod_container_deletor.go, kuberuntime_gc.go.

use std::collections::{BTreeMap, BTreeSet};

use kubelet_model::{Action, ContainerId, ContainerState, ObservedPod, SandboxId};

use super::PodPlan;

/// Removes what is dead and neither newest nor within the kept history.
pub(super) fn plan(seen: &ObservedPod, max_dead: u32, plan: &mut PodPlan) {
    let doomed = doomed_containers(seen, max_dead, plan);
    let mut step: Vec<Action> = Vec::new();
    for container in seen.containers.iter().filter(|c| doomed.contains(&c.id)) {
        step.push(Action::RemoveContainer {
            id: container.id.clone(),
            name: container.name.clone(),
        });
    }
    plan.step(step);
    let sandboxes = doomed_sandboxes(seen, &doomed);
    plan.step(sandboxes.into_iter().map(|id| Action::RemoveSandbox { id }).collect());
}

fn doomed_containers(seen: &ObservedPod, max_dead: u32, plan: &PodPlan) -> BTreeSet<ContainerId> {
    let starting: BTreeSet<_> = plan
        .steps
        .iter()
        .flatten()
        .filter_map(|action| match action {
            Action::StartContainer { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    let keep = max_dead.max(1);
    let mut kept = BTreeMap::new();
    let mut doomed = BTreeSet::new();
    for container in &seen.containers {
        match container.state {
            // Never started, and a newer instance takes its place.
            ContainerState::Created => {
                let superseded =
                    seen.newest(&container.name).is_some_and(|newest| newest.id != container.id);
                if superseded || starting.contains(&container.name) {
                    doomed.insert(container.id.clone());
                }
            }
            ContainerState::Exited(_) => {
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
