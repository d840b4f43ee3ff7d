//! The other pods of the node, as far as the disk knows: those that may share a volume.

use kubelet_model::PodUid;

use super::super::layout::{PluginName, PodLayout, VolumeName};
use super::Means;
use crate::ports::VolumeError;
use crate::runtime_manager::pods_dir;

/// In upstream's words.
pub(super) const IN_USE: &str =
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// Their directories.
pub(super) async fn others(means: &Means<'_>) -> Result<Vec<PodLayout>, VolumeError> {
    let uids = means.host.dirs_in(&pods_dir(means.root_dir)).await?;
    let layouts = uids.into_iter().map(|uid| PodLayout::new(means.root_dir, &PodUid::new(uid)));
    Ok(layouts.flatten().filter(|layout| layout != means.layout).collect())
}

/// Does another pod have the volume: mounted, or as a device?
pub(super) async fn others_have(
    means: &Means<'_>,
    plugin: &PluginName,
    volume: &VolumeName,
    device: bool,
) -> Result<bool, VolumeError> {
    for layout in others(means).await? {
        let has = match device {
            true => means.host.exists(&layout.device_link(plugin, volume)).await?,
            false => means.host.is_mount_point(&layout.volume_dir(plugin, volume)).await?,
        };
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fails if another pod has a volume that is for one, `once`.
pub(super) async fn check_alone(
    means: &Means<'_>,
    once: bool,
    plugin: &PluginName,
    volume: &VolumeName,
    device: bool,
) -> Result<(), String> {
    let has =
        once && others_have(means, plugin, volume, device).await.map_err(|e| e.to_string())?;
    match has {
        true => Err(IN_USE.to_owned()),
        false => Ok(()),
    }
}
