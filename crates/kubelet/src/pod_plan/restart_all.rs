//! Starting a pod over because of how one of its containers ended.
//!
//! Containers are stopped and removed, their logs kept, and the next plan finds
//! a pod that has not begun. What triggered it goes last: whatever interrupts
//! the removal, the rest of it is planned again.
//! Upstream: RestartAllContainersOnContainerExits in pkg/kubelet/kuberuntime.

use k8s_openapi::api::core::v1::Container;
use kubelet_model::{
    Action, ContainerKind, ContainerName, ContainerState, DesiredPod, Grace, ObservedContainer,
    ObservedPod, RestartDecision, Steps, StopReason, restart,
};

use super::terminate::stop;

/// Does a container's exit call for the whole pod to start over? Such a pod has
/// not ended, whatever its policy says.
pub fn restarts_all(pod: &DesiredPod, seen: &ObservedPod) -> bool {
    let mut named = kinds(pod).map(|(kind, c)| (kind, c, ContainerName::new(&c.name)));
    named.any(|(kind, c, name)| seen.current(&name).is_some_and(|i| calls(pod, kind, c, i)))
}

/// The steps that clear the pod; `None` unless an exit calls for it.
pub(super) fn plan(pod: &DesiredPod, seen: &ObservedPod) -> Option<Steps> {
    if !restarts_all(pod, seen) {
        return None;
    }
    let (mut stops, mut regular, mut init, mut triggers) = (vec![], vec![], vec![], vec![]);
    for (kind, container) in kinds(pod) {
        for instance in seen.instances(&ContainerName::new(&container.name)) {
            if instance.state.may_run() {
                stops.push(stop(instance, Grace::FLOOR, StopReason::RestartAll));
            }
            let list = match kind {
                _ if calls(pod, kind, container, instance) => &mut triggers,
                ContainerKind::Regular => &mut regular,
                _ => &mut init,
            };
            list.push(removal_keeping_log(instance));
        }
    }
    Some([stops, regular, init, triggers].into_iter().filter(|step| !step.is_empty()).collect())
}

/// Everything that starts over; ephemeral containers do not.
fn kinds(pod: &DesiredPod) -> impl Iterator<Item = (ContainerKind, &Container)> {
    let spec = pod.spec();
    let init = spec.init_containers.iter().flatten();
    let regular = spec.containers.iter().map(|c| (ContainerKind::Regular, c));
    regular.chain(init.map(|c| (ContainerKind::of_init(c), c)))
}

fn calls(
    pod: &DesiredPod,
    kind: ContainerKind,
    container: &Container,
    instance: &ObservedContainer,
) -> bool {
    let ContainerState::Exited(exit) = &instance.state else { return false };
    restart::after_exit(pod.spec(), container, kind, exit.code) == RestartDecision::RestartAll
}

fn removal_keeping_log(instance: &ObservedContainer) -> Action {
    Action::RemoveContainer {
        id: instance.id.clone(),
        name: instance.name.clone(),
        restart_count: instance.restart_count,
        keep_log: true,
    }
}
