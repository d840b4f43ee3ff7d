//! Ending a pod: stop everything, then remove everything.
//!
//! Grace only shrinks: a retried stop gets what is left of it. Sidecars outlive
//! what they serve. Upstream: kuberuntime_termination_order.go.

use kubelet_model::{
    Action, ContainerKind, ContainerName, DesiredPod, Grace, Mono, ObservedContainer, ObservedPod,
    Steps, StopReason,
};

use super::{Memory, prune};

/// A termination under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination {
    /// When it began.
    pub since: Mono,
    /// What the containers were given then.
    pub grace: Grace,
}

impl Termination {
    /// When its grace is over.
    pub fn ends_at(&self) -> Mono {
        self.since + self.grace.duration()
    }
}

/// Stops whatever may run. Empty once nothing does. Without the pod's
/// definition nobody knows which containers are sidecars, and all stop at once.
pub fn plan_termination(
    pod: Option<&DesiredPod>,
    seen: &ObservedPod,
    termination: Termination,
    now: Mono,
) -> Steps {
    let left = termination.grace.after(now.since(termination.since));
    stop_everything(pod, seen, left, StopReason::PodTerminating)
}

/// Stops and removes a pod that nobody wants, files last, unless there are none or
/// something else must go first. Each step presupposes that those before it succeeded.
pub fn plan_end(
    pod: Option<&DesiredPod>,
    seen: &ObservedPod,
    termination: Termination,
    memory: &Memory,
    keep_files: bool,
    now: Mono,
) -> Steps {
    let mut steps = plan_termination(pod, seen, termination, now);
    let containers: Vec<_> = seen.containers.iter().map(ObservedContainer::removal).collect();
    let (ready, stopped): (Vec<_>, Vec<_>) = seen.sandboxes.iter().partition(|s| s.ready);
    let stopped = stopped.into_iter().map(|s| s.id.clone()).collect();
    let ready: Vec<_> =
        ready.into_iter().map(|s| Action::RemoveSandbox { id: s.id.clone() }).collect();
    steps.extend((!containers.is_empty()).then_some(containers));
    steps.extend((!ready.is_empty()).then_some(ready));
    steps.extend(prune::remove_sandboxes(stopped, memory));
    if !keep_files {
        steps.push(vec![Action::RemovePodFiles]);
    }
    steps
}

/// The stop of one instance that waits for no other.
pub(super) fn stop(instance: &ObservedContainer, grace: Grace, why: StopReason) -> Action {
    Action::StopContainer {
        id: instance.id.clone(),
        name: instance.name.clone(),
        grace,
        why,
        after: Vec::new(),
    }
}

/// All containers side by side, then all sandboxes.
pub(super) fn stop_everything(
    pod: Option<&DesiredPod>,
    seen: &ObservedPod,
    grace: Grace,
    why: StopReason,
) -> Steps {
    let containers = stop_containers(pod, seen, grace, why);
    let sandboxes: Vec<_> = seen
        .sandboxes
        .iter()
        .filter(|s| s.ready)
        .map(|s| Action::StopSandbox { id: s.id.clone() })
        .collect();
    [containers, sandboxes].into_iter().filter(|step| !step.is_empty()).collect()
}

/// One step that stops every container that may run. A sidecar is told to stop
/// after the regular containers and the sidecars that started after it.
pub(super) fn stop_containers(
    pod: Option<&DesiredPod>,
    seen: &ObservedPod,
    grace: Grace,
    why: StopReason,
) -> Vec<Action> {
    let grace = grace.after(std::time::Duration::ZERO);
    let running = seen.containers.iter().filter(|c| c.state.may_run());
    let stop = |c: &ObservedContainer| Action::StopContainer {
        id: c.id.clone(),
        name: c.name.clone(),
        grace,
        why,
        after: pod.map(|pod| outlived(pod, seen, &c.name)).unwrap_or_default(),
    };
    running.map(stop).collect()
}

/// The running containers that a sidecar must outlive; none for anything else.
fn outlived(pod: &DesiredPod, seen: &ObservedPod, name: &ContainerName) -> Vec<ContainerName> {
    let spec = pod.spec();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let is_sidecar = |c: &&_| ContainerKind::of_init(c) == ContainerKind::Sidecar;
    let mut sidecars = init.iter().filter(is_sidecar);
    if !sidecars.any(|c| c.name == name.as_str()) {
        return Vec::new();
    }
    // What is left of the iterator started later.
    let names = spec.containers.iter().chain(sidecars).map(|c| ContainerName::new(&c.name));
    names.filter(|name| seen.current(name).is_some_and(|c| c.state.may_run())).collect()
}
