//! What a status says of a container's mounts. Pure.

use k8s_openapi::api::core::v1::{Container, VolumeMount, VolumeMountStatus};

/// The mounts of a container, with how read-only each is.
pub(super) fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty())?;
    let status = |mount: &VolumeMount| {
        let read_only = mount.read_only.unwrap_or(false);
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: read_only.then_some(true),
            // What lies below it is as it was mounted: the runtime is asked for no more.
            recursive_read_only: read_only.then(|| "Disabled".to_owned()),
            volume_status: None,
        }
    };
    Some(mounts.iter().map(status).collect())
}
