//! Which changes of a status cannot be true. Pure.
//!
//! Upstream: checkContainerStateTransition in pkg/kubelet/status.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};
use kubelet_model::{ContainerKind, restart};

use super::containers::ended;
use super::restart::may_restart;

/// Reason of an end that nobody saw.
pub(super) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// The container that has ended for good, yet has not in the new status.
pub(super) fn illegal<'a>(
    spec: &PodSpec,
    old: &'a PodStatus,
    new: &PodStatus,
) -> Option<&'a ContainerStatus> {
    let policy = spec.restart_policy.as_deref();
    if !matches!(policy, Some("Never" | "OnFailure")) || restart::could_start_over(spec) {
        return None;
    }
    let regular = revived(&old.container_statuses, &new.container_statuses)
        .find(|status| is_final(spec, spec.containers.iter(), status));
    // A new sandbox runs every init container again, unless nothing of the pod restarts.
    let mut init = revived(&old.init_container_statuses, &new.init_container_statuses)
        .filter(|_| policy == Some("Never"));
    let one_shot = |c: &&Container| ContainerKind::of_init(c) == ContainerKind::Init;
    let init_containers = || spec.init_containers.iter().flatten().filter(one_shot);
    regular.or_else(|| init.find(|status| is_final(spec, init_containers(), status)))
}

/// Containers that had ended and now have not.
fn revived<'a>(
    old: &'a Option<Vec<ContainerStatus>>,
    new: &Option<Vec<ContainerStatus>>,
) -> impl Iterator<Item = &'a ContainerStatus> {
    let lives = |name: &str| {
        let mut all = new.iter().flatten();
        all.any(|status| status.name == name && ended(status).is_none())
    };
    old.iter().flatten().filter(move |status| ended(status).is_some() && lives(&status.name))
}

/// Whether its end was seen and nothing lets it run again. An end that was only
/// inferred is taken back when the container turns up.
fn is_final<'a>(
    spec: &PodSpec,
    mut containers: impl Iterator<Item = &'a Container>,
    status: &ContainerStatus,
) -> bool {
    let Some(ended) = ended(status) else { return false };
    let container = containers.find(|c| c.name == status.name);
    ended.reason.as_deref() != Some(STATUS_UNKNOWN)
        && container.is_some_and(|c| !may_restart(c, spec, ended.exit_code))
}
