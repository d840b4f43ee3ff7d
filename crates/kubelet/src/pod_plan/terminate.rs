//! Ending a pod: stop everything, then remove everything.
//!
//! Grace only shrinks: a retried stop gets what is left of it.

use kubelet_model::{Action, Grace, Mono, ObservedContainer, ObservedPod, Steps, StopReason};

use super::{Memory, prune};

/// A termination under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination {
    /// When it began.
    pub since: Mono,
    /// What the containers were given then.
    pub grace: Grace,
}

/// Stops whatever may run. Empty once nothing does.
pub fn plan_termination(seen: &ObservedPod, termination: Termination, now: Mono) -> Steps {
    let left = termination.grace.after(now.since(termination.since));
    stop_everything(seen, left, StopReason::PodTerminating)
}

/// Stops and removes a pod that nobody wants, files last. Empty once all is gone
/// and `files_removed`. Each step presupposes that those before it succeeded.
pub fn plan_end(
    seen: &ObservedPod,
    termination: Termination,
    memory: &Memory,
    files_removed: bool,
    now: Mono,
) -> Steps {
    let mut steps = plan_termination(seen, termination, now);
    let containers: Vec<_> = seen.containers.iter().map(ObservedContainer::removal).collect();
    let (ready, stopped): (Vec<_>, Vec<_>) = seen.sandboxes.iter().partition(|s| s.ready);
    let stopped = stopped.into_iter().map(|s| s.id.clone()).collect();
    let ready: Vec<_> =
        ready.into_iter().map(|s| Action::RemoveSandbox { id: s.id.clone() }).collect();
    steps.extend((!containers.is_empty()).then_some(containers));
    steps.extend((!ready.is_empty()).then_some(ready));
    steps.extend(prune::remove_sandboxes(stopped, memory));
    if !files_removed {
        steps.push(vec![Action::RemovePodFiles]);
    }
    steps
}

/// All containers side by side, then all sandboxes.
pub(super) fn stop_everything(seen: &ObservedPod, grace: Grace, why: StopReason) -> Steps {
    let grace = grace.after(std::time::Duration::ZERO);
    let containers: Vec<_> = seen
        .containers
        .iter()
        .filter(|c| c.state.may_run())
        .map(|c| Action::StopContainer {
            id: c.id.clone(),
            name: c.name.clone(),
            grace,
            why,
            after: Vec::new(),
        })
        .collect();
    let sandboxes: Vec<_> = seen
        .sandboxes
        .iter()
        .filter(|s| s.ready)
        .map(|s| Action::StopSandbox { id: s.id.clone() })
        .collect();
    let mut steps = Steps::new();
    steps.extend((!containers.is_empty()).then_some(containers));
    steps.extend((!sandboxes.is_empty()).then_some(sandboxes));
    steps
}
