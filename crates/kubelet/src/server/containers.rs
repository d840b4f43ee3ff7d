//! Containers in statuses: which there are, which run, and which of their logs is meant.
//! Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// The status of a container, of whatever kind it is.
pub(super) fn status_of<'a>(status: &'a PodStatus, container: &str) -> Option<&'a ContainerStatus> {
    let all = status.container_statuses.iter().flatten();
    let all = all.chain(status.init_container_statuses.iter().flatten());
    let mut all = all.chain(status.ephemeral_container_statuses.iter().flatten());
    all.find(|one| one.name == container)
}

/// Whether that instance of a container runs.
pub(super) fn runs(status: &ContainerStatus, number: u32) -> bool {
    let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    running && u32::try_from(status.restart_count) == Ok(number)
}

/// The runtime's id of a container that runs.
pub(super) fn running_id(status: &ContainerStatus) -> Option<&str> {
    let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
    let id = status.container_id.as_deref().and_then(|id| id.split_once("://"));
    id.filter(|_| runs).map(|(_, id)| id)
}
