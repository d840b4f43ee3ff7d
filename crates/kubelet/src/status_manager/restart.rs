//! What statuses ask about restarts. Pure.
//!
//! Upstream: pkg/api/v1/pod/util.go.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::{ContainerKind, RestartDecision, restart};

/// Reason of an end that made, or was made by, a restart of the whole pod.
pub(super) const RESTARTING_ALL: &str = "RestartingAllContainers";
const RESTART_ALL: &str = "RestartAllContainers";

/// May a container that ended with this code run again? A sidecar's own policy
/// says yes, so its kind need not be known.
pub(super) fn may_restart(container: &Container, spec: &PodSpec, code: i32) -> bool {
    after(container, spec, code) != RestartDecision::Stay
}

/// Does this end restart every container of the pod?
pub(super) fn restarts_all(container: &Container, spec: &PodSpec, code: i32) -> bool {
    after(container, spec, code) == RestartDecision::RestartAll
}

fn after(container: &Container, spec: &PodSpec, code: i32) -> RestartDecision {
    restart::after_exit(spec, container, ContainerKind::Regular, code)
}

/// Is there any end that would restart every container of the pod?
pub(super) fn could_restart_all(spec: &PodSpec) -> bool {
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.any(|c| c.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL))
}
