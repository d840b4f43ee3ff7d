//! What statuses ask about restarts. Pure.
//!
//! Upstream: pkg/api/v1/pod/util.go.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::{ContainerKind, RestartDecision, WaitReason, restart};

/// Reason of an end that made, or was made by, a restart of the whole pod.
pub(super) const RESTARTING_ALL: &str = WaitReason::RestartingAllContainers.as_str();

/// May a container that ended with this code run again? A sidecar's own policy
/// says yes, so its kind need not be known.
pub(super) fn may_restart(container: &Container, spec: &PodSpec, code: i32) -> bool {
    restart::after_exit(spec, container, ContainerKind::Regular, code) != RestartDecision::Stay
}
