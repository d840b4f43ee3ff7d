//! Block devices of the node that are persistent volumes.
//!
//! The pod's link is made first and removed last, so that another life of the agent finds
//! it. Upstream: pkg/volume/local.

use std::path::PathBuf;

use mounts::host_path::HostPathType;

use super::super::VolumeMountable;
use super::super::claims::PlaceSpec;
use super::super::layout::{PluginName, VolumeName};
use super::super::plan::Doing;
use super::others::{check_alone, others_have};
use super::place::turn;
use super::{Means, NotMade, Operation, host_path, mapped};
use crate::ports::VolumeError;

/// Where the node has a volume's device, for each pod.
fn global(means: &Means<'_>, volume: &VolumeName) -> PathBuf {
    let plugin = PluginName::local();
    means.root_dir.join("plugins").join(plugin.as_dir()).join("volumeDevices").join(volume.as_str())
}

/// Gives a device of the node to the pod, or finds that it has it.
pub(super) async fn set_up(
    means: &Means<'_>,
    spec: &PlaceSpec,
) -> Result<VolumeMountable, NotMade> {
    check(means, spec).await.map_err(|why| NotMade { doing: Doing::MapPodDevice, why })?;
    let _turn = turn(means, &spec.volume).await;
    let alone = check_alone(means, spec.once_pod, &PluginName::local(), &spec.volume, true).await;
    alone.map_err(|why| NotMade { doing: Doing::SetUpDevice, why })?;
    let link = means.layout.device_link(&PluginName::local(), &spec.volume);
    let global = global(means, &spec.volume);
    let map = NotMade::when(Doing::MapDevice);
    means.host.link(&spec.path, &link).await.map_err(&map)?;
    mapped::map(means, &spec.path, &global.join(means.layout.uid())).await.map_err(&map)?;
    Ok(VolumeMountable {
        host_path: link,
        read_only: spec.read_only,
        managed: false,
        persistent: Some(spec.volume.clone()),
        device: Some(global),
        gid: None,
    })
}

/// Is there a device?
async fn check(means: &Means<'_>, spec: &PlaceSpec) -> Result<(), String> {
    let said = |error: VolumeError| error.to_string();
    let shown = spec.path.display();
    if !means.host.exists(&spec.path).await.map_err(said)? {
        return Err(format!("path \"{shown}\" does not exist"));
    }
    match host_path::is(means.host, &spec.path, HostPathType::BlockDevice).await.map_err(said)? {
        true => Ok(()),
        false => {
            Err(format!("path \"{shown}\" is not a block device, which volumeMode Block needs"))
        }
    }
}

/// Takes it away from the pod. The device is the host's, and stays as it is.
pub(super) async fn tear_down(means: &Means<'_>, volume: &VolumeName) -> Result<(), VolumeError> {
    let _turn = turn(means, volume).await;
    let global = global(means, volume);
    mapped::unmap(means, &global.join(means.layout.uid())).await?;
    if !others_have(means, &PluginName::local(), volume, true).await? {
        let remove = means.host.remove_empty_dir(&global);
        means.timed(&PluginName::local().plain(), Operation::UnmapDevice, remove).await?;
    }
    means.host.unlink(&means.layout.device_link(&PluginName::local(), volume)).await
}
