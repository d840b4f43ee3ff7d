//! One file per kind of volume: how it is made. What is left of any kind is
//! undone in one way.
//!
//! Owns nothing; every effect goes through the port. Upstream: pkg/volume.

mod csi;
mod empty_dir;
mod host_path;
mod payload;

use std::time::SystemTime;

use super::VolumeMountable;
use super::csi::CsiSpec;
use super::desired::Wanted;
use super::layout::{PluginName, PodLayout, VolumeName};
use super::payload::Content;
use super::plan::Found;
use crate::object_cache::Objects;
use crate::plugin_manager::Drivers;
use crate::ports::{Fs, VolumeError, VolumeHost};

/// Kinds whose mount and files are made by the agent alone, so that it may undo
/// them, whichever agent made them.
const OWN_KINDS: [&str; 5] = [
    PluginName::EMPTY_DIR,
    PluginName::CONFIG_MAP,
    PluginName::DOWNWARD_API,
    PluginName::PROJECTED,
    PluginName::SECRET,
];

/// What volumes are made with.
pub(super) struct Means<'a> {
    /// Files and mounts of volumes.
    pub host: &'a dyn VolumeHost,
    /// Files of the agent's own.
    pub fs: &'a dyn Fs,
    /// The pod's directories.
    pub layout: &'a PodLayout,
    /// The CSI drivers.
    pub drivers: &'a Drivers,
    /// ConfigMaps and Secrets.
    pub objects: &'a Objects,
    /// This node.
    pub node_name: &'a str,
}

/// Makes a volume, or finds that it is made already. `content` is that of a
/// volume whose files the agent writes.
pub(super) async fn set_up(
    means: &Means<'_>,
    name: &VolumeName,
    wanted: &Wanted,
    content: Option<&Content>,
    at: SystemTime,
) -> Result<VolumeMountable, String> {
    let Means { host, layout, .. } = *means;
    let made = match wanted {
        Wanted::EmptyDir { medium, fs_group } => {
            empty_dir::set_up(host, layout, name, *medium, *fs_group).await
        }
        Wanted::HostPath { path, kind } => host_path::set_up(host, path, *kind).await,
        Wanted::Payload(spec) => {
            // No plan asks for a volume before its files are known.
            let content = content.ok_or_else(|| "its files are not known yet".to_owned())?;
            payload::set_up(host, layout, name, spec, content, at).await
        }
        Wanted::Csi(spec) => {
            return csi::set_up(means, name, spec).await.map_err(|error| error.to_string());
        }
        Wanted::Refused(why) => return Err(why.clone()),
    };
    made.map_err(|error| error.to_string())
}

/// What keeps a CSI volume from being tried at all: it helps nobody to ask again
/// before that has changed, and whoever changes it is heard.
pub(super) fn csi_obstacle(spec: &CsiSpec, drivers: &Drivers, objects: &Objects) -> Option<String> {
    csi::obstacle(spec, drivers, objects).map(|error| error.to_string())
}

/// Undoes what is left of a volume: the parts bound elsewhere, its mount, its
/// files, what was noted about it. Stops at anything it did not make.
pub(super) async fn tear_down(means: &Means<'_>, found: &Found) -> Result<(), String> {
    let said = |error: VolumeError| error.to_string();
    let root = means.layout.sub_paths_dir();
    means.host.clean_sub_paths(&root, found.name.as_str()).await.map_err(said)?;
    match &found.plugin {
        None => Ok(()),
        Some(plugin) if plugin.as_dir() == PluginName::CSI => {
            csi::tear_down(means, &found.name).await.map_err(|error| error.to_string())
        }
        Some(plugin) => tear_down_own(means, found, plugin).await.map_err(said),
    }
}

async fn tear_down_own(
    means: &Means<'_>,
    found: &Found,
    plugin: &PluginName,
) -> Result<(), VolumeError> {
    let Means { host, layout, .. } = *means;
    let dir = layout.volume_dir(plugin, &found.name);
    if OWN_KINDS.contains(&plugin.as_dir()) {
        host.unmount_all(&dir).await?;
    } else if host.is_mount_point(&dir).await? || !host.mounts_below(&dir).await?.is_empty() {
        return Err(VolumeError::Foreign { plugin: plugin.plain(), path: dir });
    }
    host.remove_tree(&dir).await?;
    if plugin.as_dir() != PluginName::EMPTY_DIR {
        let wrapped = layout.meta_dir(&PluginName::empty_dir(), &found.name.wrapped());
        host.remove_tree(&wrapped).await?;
    }
    host.remove_tree(&layout.meta_dir(plugin, &found.name)).await
}
