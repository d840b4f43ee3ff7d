//! What is left of a pod's volumes on the disk.
//!
//! Asked for one pod at a time, when nobody wants its volumes any more: an agent
//! that starts need know nothing of volumes before it knows its pods, and finds
//! those that another life made. Upstream: volumemanager/reconciler, reconstruct.go.

use std::collections::BTreeSet;

use super::layout::{PluginName, PodLayout, VolumeName};
use super::plan::Found;
use crate::ports::{VolumeError, VolumeHost};

/// Every volume with a directory, every block device with a link, and every volume with
/// parts bound elsewhere.
pub(super) async fn look(
    host: &dyn VolumeHost,
    layout: &PodLayout,
) -> Result<BTreeSet<Found>, VolumeError> {
    let mut found = BTreeSet::new();
    for plugin in host.dirs_in(&layout.volumes_dir()).await? {
        let Some(plugin) = PluginName::of_dir(&plugin) else { continue };
        for name in host.dirs_in(&layout.plugin_dir(&plugin)).await? {
            let name = VolumeName::new(&name);
            let plugin = Some(plugin.clone());
            found.extend(name.map(|name| Found { name, plugin, device: false }));
        }
    }
    for plugin in host.dirs_in(&layout.devices_dir()).await? {
        let Some(plugin) = PluginName::of_dir(&plugin) else { continue };
        for name in host.files_in(&layout.devices_dir().join(plugin.as_dir())).await? {
            let name = VolumeName::new(&name);
            let plugin = Some(plugin.clone());
            found.extend(name.map(|name| Found { name, plugin, device: true }));
        }
    }
    for name in host.dirs_in(&layout.sub_paths_dir()).await? {
        found.extend(VolumeName::new(&name).map(|name| Found {
            name,
            plugin: None,
            device: false,
        }));
    }
    Ok(found)
}
