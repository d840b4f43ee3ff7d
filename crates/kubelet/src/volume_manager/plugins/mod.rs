//! One file per kind of volume: how it is made. What is left of any kind is
//! undone in one way.
//!
//! Owns nothing; every effect goes through the port. Upstream: pkg/volume.

mod empty_dir;
mod host_path;

use super::VolumeMountable;
use super::desired::Wanted;
use super::layout::{PluginName, PodLayout, VolumeName};
use super::plan::Found;
use crate::ports::{VolumeError, VolumeHost};

/// Kinds whose mount and files are made by the agent alone, so that it may undo
/// them, whichever agent made them.
const OWN_KINDS: [&str; 5] = [
    PluginName::EMPTY_DIR,
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];

/// Makes a volume, or finds that it is made already.
pub(super) async fn set_up(
    host: &dyn VolumeHost,
    layout: &PodLayout,
    name: &VolumeName,
    wanted: &Wanted,
) -> Result<VolumeMountable, String> {
    let made = match wanted {
        Wanted::EmptyDir { medium, fs_group } => {
            empty_dir::set_up(host, layout, name, *medium, *fs_group).await
        }
        Wanted::HostPath { path, kind } => host_path::set_up(host, path, *kind).await,
        Wanted::Refused(why) => return Err(why.clone()),
    };
    made.map_err(|error| error.to_string())
}

/// Undoes what is left of a volume: the parts bound elsewhere, its mount, its
/// files, what was noted about it. Stops at anything it did not make.
pub(super) async fn tear_down(
    host: &dyn VolumeHost,
    layout: &PodLayout,
    found: &Found,
) -> Result<(), VolumeError> {
    host.clean_sub_paths(&layout.sub_paths_dir(), found.name.as_str()).await?;
    let Some(plugin) = &found.plugin else { return Ok(()) };
    let dir = layout.volume_dir(plugin, &found.name);
    if OWN_KINDS.contains(&plugin.as_dir()) {
        host.unmount_all(&dir).await?;
    } else if host.is_mount_point(&dir).await? || !host.mounts_below(&dir).await?.is_empty() {
        return Err(VolumeError::Foreign { plugin: plugin.plain(), path: dir });
    }
    host.remove_tree(&dir).await?;
    host.remove_tree(&layout.meta_dir(plugin, &found.name)).await
}
