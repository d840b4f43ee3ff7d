//! What a status says of a container's mounts. Pure.

use k8s_openapi::api::core::v1::{Container, VolumeMount, VolumeMountStatus};

use super::generate::Facts;

/// The mounts of a container, with how read-only each is.
pub(super) fn volume_mounts(
    facts: &Facts<'_>,
    container: &Container,
) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty())?;
    let status = |mount: &VolumeMount| {
        let read_only = mount.read_only.unwrap_or(false);
        let mode = if recursive(facts, mount) { "Enabled" } else { "Disabled" };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: read_only.then_some(true),
            recursive_read_only: read_only.then(|| mode.to_owned()),
            volume_status: None,
        }
    };
    Some(mounts.iter().map(status).collect())
}

/// Whether everything below the mount is read-only too: asked for, possible in
/// the runtime, and not undone by propagation.
fn recursive(facts: &Facts<'_>, mount: &VolumeMount) -> bool {
    let asked = matches!(mount.recursive_read_only.as_deref(), Some("IfPossible" | "Enabled"));
    let private = matches!(mount.mount_propagation.as_deref(), None | Some("None"));
    asked && private && facts.recursive_read_only
}
