//! Block devices of the node that are persistent volumes, and what all block volumes
//! have in common.
//!
//! Nothing is written to a device. The pod's link is made first and removed last, so
//! that another life of the agent finds it. Upstream: pkg/volume/local,
//! pkg/volume/util/volumepathhandler.

use std::path::PathBuf;

use mounts::host_path::HostPathType;

use super::super::VolumeMountable;
use super::super::claims::PlaceSpec;
use super::super::layout::{PluginName, VolumeName};
use super::others::{check_alone, others_have};
use super::{Means, host_path};
use crate::ports::VolumeError;

/// Whose turn it is at devices of the node.
const TURN: &str = "kubernetes.io/local-volume";

/// Where the node has a volume's device, for each pod.
fn global(means: &Means<'_>, volume: &VolumeName) -> PathBuf {
    let plugin = PluginName::local();
    means.root_dir.join("plugins").join(plugin.as_dir()).join("volumeDevices").join(volume.as_str())
}

/// Gives a device of the node to the pod, or finds that it has it.
pub(super) async fn set_up(means: &Means<'_>, spec: &PlaceSpec) -> Result<VolumeMountable, String> {
    let said = |error: VolumeError| error.to_string();
    let shown = spec.path.display();
    if !means.host.exists(&spec.path).await.map_err(said)? {
        return Err(format!("path \"{shown}\" does not exist"));
    }
    if !host_path::is(means.host, &spec.path, HostPathType::BlockDevice).await.map_err(said)? {
        return Err(format!(
            "path \"{shown}\" is not a block device, which volumeMode Block needs"
        ));
    }
    let _turn = means.devices.turn(TURN, spec.volume.as_str()).await;
    check_alone(means, spec.once_pod, &PluginName::local(), &spec.volume, true).await?;
    let link = means.layout.device_link(&PluginName::local(), &spec.volume);
    let global = global(means, &spec.volume);
    means.host.link(&spec.path, &link).await.map_err(said)?;
    let bound = global.join(means.layout.uid());
    means.host.bind_file(&spec.path, &bound).await.map_err(said)?;
    Ok(VolumeMountable {
        host_path: link,
        read_only: spec.read_only,
        managed: false,
        persistent: Some(spec.volume.clone()),
        device: Some(global),
        gid: None,
    })
}

/// Takes it away from the pod. The device is the host's, and stays as it is.
pub(super) async fn tear_down(means: &Means<'_>, volume: &VolumeName) -> Result<(), VolumeError> {
    let _turn = means.devices.turn(TURN, volume.as_str()).await;
    let global = global(means, volume);
    let bound = global.join(means.layout.uid());
    means.host.unmount_all(&bound).await?;
    means.host.unlink(&bound).await?;
    if !others_have(means, &PluginName::local(), volume, true).await? {
        means.host.remove_empty_dir(&global).await?;
    }
    means.host.unlink(&means.layout.device_link(&PluginName::local(), volume)).await
}
