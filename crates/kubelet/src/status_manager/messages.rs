//! Keeps the last words of a pod's containers within bounds. Pure.

use k8s_openapi::api::core::v1::PodSpec;

use super::containers::ContainerStatuses;

/// Bytes of termination messages per pod: a status must fit into an API object.
const POD_BYTES_MAX: usize = 12_288;

/// Cuts every termination message to its container's share.
pub(super) fn limit(spec: &PodSpec, statuses: &mut ContainerStatuses) {
    let containers = spec.containers.len()
        + spec.init_containers.as_ref().map_or(0, Vec::len)
        + spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    let share = POD_BYTES_MAX / containers.max(1);
    for status in statuses.every() {
        for state in [&mut status.state, &mut status.last_state].into_iter().flatten() {
            let message = state.terminated.as_mut().and_then(|ended| ended.message.as_mut());
            if let Some(message) = message {
                message.truncate(message.floor_char_boundary(share));
            }
        }
    }
}
