//! Starting a pod over because of how one of its containers ended.
//!
//! Containers are stopped and removed, their logs kept, and the next plan finds
//! a pod that has not begun. What triggered it goes last: whatever interrupts
//! the removal, the rest of it is planned again.
//! Upstream: RestartAllContainersOnContainerExits in pkg/kubelet/kuberuntime.

use kubelet_model::{
    Action, ContainerKind, ContainerName, DesiredPod, Grace, ObservedContainer, ObservedPod, Steps,
    StopReason, restart,
};

use super::terminate::stop;

/// The steps that clear the pod; `None` unless an exit calls for it.
pub(super) fn plan(pod: &DesiredPod, seen: &ObservedPod) -> Option<Steps> {
    if !restart::starts_over(pod.spec(), seen) {
        return None;
    }
    let (mut stops, mut regular, mut init, mut causes) = (vec![], vec![], vec![], vec![]);
    for container in restart::regular_and_init(pod.spec()) {
        let kind = pod.container(&container.name).map(|(kind, _)| kind);
        for instance in seen.instances(&ContainerName::new(&container.name)) {
            if instance.state.may_run() {
                stops.push(stop(instance, Grace::FLOOR, StopReason::RestartAll));
            }
            let list = match kind {
                _ if restart::is_cause(container, instance) => &mut causes,
                Some(ContainerKind::Regular) => &mut regular,
                _ => &mut init,
            };
            list.push(removal_keeping_log(instance));
        }
    }
    Some([stops, regular, init, causes].into_iter().filter(|step| !step.is_empty()).collect())
}

fn removal_keeping_log(instance: &ObservedContainer) -> Action {
    Action::RemoveContainer {
        id: instance.id.clone(),
        name: instance.name.clone(),
        restart_count: instance.restart_count,
        keep_log: true,
    }
}
