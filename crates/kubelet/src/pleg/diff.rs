//! Whether a listing tells anything new about a pod.

use cri::v1;
use kubelet_model::{ContainerState, ObservedPod};

use super::parse::Listed;

/// True if the listing shows exactly what was observed before.
pub(super) fn unchanged(listed: &Listed, seen: &ObservedPod) -> bool {
    listed.sandboxes.len() == seen.sandboxes.len()
        && listed.containers.len() == seen.containers.len()
        && seen.sandboxes.iter().all(|s| listed.sandboxes.get(&s.id) == Some(&s.ready))
        && seen
            .containers
            .iter()
            .all(|c| listed.containers.get(&c.id).is_some_and(|state| same_kind(*state, &c.state)))
}

/// True if a listed state and an observed one are the same kind.
pub(super) fn same_kind(listed: v1::ContainerState, seen: &ContainerState) -> bool {
    matches!(
        (listed, seen),
        (v1::ContainerState::ContainerCreated, ContainerState::Created)
            | (v1::ContainerState::ContainerRunning, ContainerState::Running { .. })
            | (v1::ContainerState::ContainerExited, ContainerState::Exited(_))
            | (v1::ContainerState::ContainerUnknown, ContainerState::Unknown)
    )
}
