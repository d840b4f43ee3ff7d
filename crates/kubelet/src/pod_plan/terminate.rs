//! Ending a pod: stop everything, then remove everything.
//!
//! Grace only shrinks: a retried stop gets what is left of it.

use kubelet_model::{Action, Grace, Mono, ObservedPod, Steps, StopReason};

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

/// Removes what is left of a stopped pod, files last. Empty once all is gone
/// and `files_removed`.
pub fn plan_cleanup(seen: &ObservedPod, memory: &Memory, files_removed: bool) -> Steps {
    let containers: Vec<_> = seen
        .containers
        .iter()
        .map(|c| Action::RemoveContainer { id: c.id.clone(), name: c.name.clone() })
        .collect();
    let sandboxes = seen.sandboxes.iter().map(|s| s.id.clone()).collect();
    let mut steps = Steps::new();
    steps.extend((!containers.is_empty()).then_some(containers));
    steps.extend(prune::remove_sandboxes(sandboxes, memory));
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
        .map(|c| Action::StopContainer { id: c.id.clone(), name: c.name.clone(), grace, why })
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
