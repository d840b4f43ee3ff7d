//! What all block volumes have in common: where a pod's device is bound for the node, and
//! that it stays the same device while the pod has it.
//!
//! Nothing is written to a device. The pod's link to it is its plugin's: made before this,
//! and removed after. Upstream: MapBlockVolume and UnmapBlockVolume of pkg/volume/util.

use std::path::Path;

use super::Means;
use crate::ports::VolumeError;

/// Binds a device for a pod, and keeps it open: nobody can take it away and put another
/// in its place without the pod losing its own first.
pub(super) async fn map(means: &Means<'_>, device: &Path, bound: &Path) -> Result<(), VolumeError> {
    means.host.bind_file(device, bound).await?;
    means.host.hold_device(bound).await
}

/// Undoes that. What is held cannot be unmounted, so that comes first.
pub(super) async fn unmap(means: &Means<'_>, bound: &Path) -> Result<(), VolumeError> {
    means.host.release_device(bound).await?;
    means.host.unmount_all(bound).await?;
    means.host.unlink(bound).await
}
