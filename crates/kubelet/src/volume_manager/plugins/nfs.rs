//! What NFS servers export, mounted for each pod by the machine's `mount`.
//!
//! It is never given to a group, and nothing in it is ever removed: the mount goes, and
//! the empty directory below it. Upstream: pkg/volume/nfs.

use super::super::VolumeMountable;
use super::super::layout::{PluginName, PodLayout, VolumeName};
use super::super::network::ShareSpec;
use super::Means;
use super::others::check_alone;
use crate::ports::{VolumeError, VolumeHost};

/// Mode of the directory below the mount.
const MODE: u32 = 0o750;

/// Mounts the export, or finds that it is.
pub(super) async fn set_up(means: &Means<'_>, spec: &ShareSpec) -> Result<VolumeMountable, String> {
    let said = |error: VolumeError| error.to_string();
    let (host, plugin) = (means.host, PluginName::nfs());
    let _turn = means.turn(spec.once_pod, plugin.as_dir(), spec.volume.as_str()).await;
    check_alone(means, spec.once_pod, &plugin, &spec.volume, false).await?;
    let target = means.layout.volume_dir(&plugin, &spec.volume);
    // A server that is gone must not be asked what its directory is like.
    if !host.is_mount_point(&target).await.map_err(said)? {
        host.make_dir(&target, MODE).await.map_err(said)?;
        host.mount_share(&target, &spec.share).await.map_err(said)?;
    }
    Ok(VolumeMountable {
        host_path: target,
        read_only: spec.read_only,
        managed: false,
        persistent: spec.persistent.then(|| spec.volume.clone()),
        device: None,
        gid: None,
    })
}

/// Unmounts it, whichever agent mounted it.
pub(super) async fn tear_down(
    host: &dyn VolumeHost,
    layout: &PodLayout,
    name: &VolumeName,
) -> Result<(), VolumeError> {
    let target = layout.volume_dir(&PluginName::nfs(), name);
    host.unmount_all(&target).await?;
    host.remove_empty_dir(&target).await
}
