//! Whether a container that ended may run again. Pure.
//!
//! The one place in which statuses ask this. Never starts anything. Upstream:
//! pkg/api/v1/pod/util.go.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

/// Reason of an end that made, or was made by, a restart of the whole pod.
pub(super) const RESTARTING_ALL: &str = "RestartingAllContainers";
const RESTART_ALL: &str = "RestartAllContainers";

/// May a container that ended with this code run again? Its own rules come
/// first, then its own policy, then the pod's.
pub(super) fn may_restart(container: &Container, spec: &PodSpec, code: i32) -> bool {
    let own = container.restart_policy.as_deref();
    let rule = own.and_then(|_| matching_rule(container, code));
    if rule.is_some_and(|rule| matches!(rule.action.as_str(), "Restart" | RESTART_ALL)) {
        return true;
    }
    match own.or(spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

/// Does this end restart every container of the pod?
pub(super) fn restarts_all(container: &Container, code: i32) -> bool {
    matching_rule(container, code).is_some_and(|rule| rule.action == RESTART_ALL)
}

/// Is there any end that would restart every container of the pod?
pub(super) fn could_restart_all(spec: &PodSpec) -> bool {
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.any(|c| c.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL))
}

fn matching_rule(container: &Container, code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().flatten().find(|rule| {
        let Some(codes) = &rule.exit_codes else { return false };
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    })
}
