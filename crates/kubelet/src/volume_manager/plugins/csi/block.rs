//! Block volumes of drivers: the driver puts a device at a path, containers get it.
//!
//! The pod's link to that path is made before the driver is asked and removed last: it
//! is how another life of the agent finds what there is to undo. What the driver made
//! is noted for the node, because pods share it. Upstream: pkg/volume/csi/csi_block.go,
//! pkg/volume/util/volumepathhandler.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mounts::host_path::HostPathType;
use plugin_apis::csi::NodeCapability;

use super::super::super::VolumeMountable;
use super::super::super::csi::{Access, CsiSpec, Persistent, VolData, attachment_id, rpc_error};
use super::super::super::devices::{Device, Growth};
use super::super::super::layout::{PluginName, VolumeName};
use super::super::others::others_have;
use super::super::{Means, Operation, host_path, mapped, of_driver};
use super::CsiError;
use super::notes::{self, MODE};
use crate::plugin_manager::CsiDriver;

/// Where a block volume lies.
struct Paths {
    /// What the node has of it.
    dir: PathBuf,
    /// Where each pod's device is bound, by uid.
    global: PathBuf,
    bound: PathBuf,
    note: PathBuf,
    staging: PathBuf,
    publish_dir: PathBuf,
    target: PathBuf,
    /// The pod's.
    link: PathBuf,
}

impl Paths {
    fn of(means: &Means<'_>, volume: &VolumeName) -> Self {
        let all = means.root_dir.join("plugins/kubernetes.io/csi/volumeDevices");
        let (dir, uid) = (all.join(volume.as_str()), means.layout.uid());
        let (global, publish_dir) = (dir.join("dev"), all.join("publish").join(volume.as_str()));
        Self {
            bound: global.join(uid),
            global,
            note: dir.join("data/vol_data.json"),
            staging: all.join("staging").join(volume.as_str()),
            target: publish_dir.join(uid),
            publish_dir,
            link: means.layout.device_link(&PluginName::csi(), volume),
            dir,
        }
    }
}

fn text(path: &Path) -> Result<&str, CsiError> {
    path.to_str().ok_or_else(|| CsiError::NotUtf8(path.to_owned()))
}

/// Where the pod's device is, and where the node's.
pub(super) fn places(means: &Means<'_>, volume: &VolumeName) -> Result<(String, String), CsiError> {
    let Paths { target, staging, .. } = Paths::of(means, volume);
    Ok((text(&target)?.to_owned(), text(&staging)?.to_owned()))
}

/// Has the driver make the pod's device, or finds it made. Who holds the volume's turn
/// may call this.
pub(super) async fn set_up(
    means: &Means<'_>,
    driver: &CsiDriver,
    spec: &CsiSpec,
    persistent: &Persistent,
    capabilities: &BTreeSet<NodeCapability>,
    turn: &mut Device,
) -> Result<VolumeMountable, CsiError> {
    let paths = Paths::of(means, &persistent.volume);
    let secrets = spec.secrets(|key| means.objects.get(key)).map_err(CsiError::Secret)?;
    if persistent.access == Access::OncePod && has_others(means, &persistent.volume).await? {
        return Err(CsiError::InUse);
    }
    let is_new = is_new(means, &paths, spec)?;
    means.host.link(&paths.target, &paths.link).await?;
    note(means, &paths, persistent, spec).await?;
    if let Err(error) = stage(means, driver, spec, persistent, capabilities, &paths, turn).await {
        let gone = matches!(error, CsiError::Stage { gone: true, .. });
        if gone && is_new && !has_others(means, &persistent.volume).await? {
            clean_after_failure(means, &paths).await;
        }
        return Err(error);
    }
    means.host.make_dir(&paths.publish_dir, MODE).await?;
    // As upstream: named, whether the driver stages or not.
    let (staging, target) = (text(&paths.staging)?, text(&paths.target)?);
    let request = spec.publish_request(staging, target, secrets, capabilities);
    if let Err(error) = driver.node.publish(request).await {
        // A driver that has lost what is staged says so, and is asked for it again.
        turn.staged &= !error.lacks_precondition();
        return Err(CsiError::Publish(rpc_error(&error)));
    }
    if !host_path::is(means.host, &paths.target, HostPathType::BlockDevice).await? {
        return Err(CsiError::NoDevice { driver: spec.driver.clone(), path: paths.target });
    }
    mapped::map(means, &paths.target, &paths.bound).await.map_err(CsiError::Map)?;
    Ok(VolumeMountable {
        host_path: paths.link,
        read_only: spec.read_only,
        managed: false,
        persistent: Some(persistent.volume.clone()),
        device: Some(paths.global),
        gid: None,
    })
}

/// Whether the node has nothing of the volume yet. Another's note is no place for it.
fn is_new(means: &Means<'_>, paths: &Paths, spec: &CsiSpec) -> Result<bool, CsiError> {
    match notes::read(means, &paths.note)? {
        Some(Ok(data)) if data.is_of(&spec.driver, &spec.handle) => Ok(false),
        Some(Ok(VolData { driver_name: driver, volume_handle: handle, .. })) => {
            Err(CsiError::Taken { dir: paths.dir.clone(), driver, handle })
        }
        Some(Err(_)) => Ok(false),
        None => Ok(true),
    }
}

async fn note(
    means: &Means<'_>,
    paths: &Paths,
    persistent: &Persistent,
    spec: &CsiSpec,
) -> Result<(), CsiError> {
    means.host.make_dir(&paths.dir.join("data"), MODE).await?;
    let data = VolData {
        spec_vol_id: persistent.volume.as_str().to_owned(),
        volume_handle: spec.handle.clone(),
        driver_name: spec.driver.clone(),
        node_name: means.node_name.to_owned(),
        attachment_id: attachment_id(&spec.handle, &spec.driver, means.node_name),
        ..VolData::default()
    };
    notes::write_to(means, &paths.note, &data)
}

async fn stage(
    means: &Means<'_>,
    driver: &CsiDriver,
    spec: &CsiSpec,
    persistent: &Persistent,
    capabilities: &BTreeSet<NodeCapability>,
    paths: &Paths,
    turn: &mut Device,
) -> Result<(), CsiError> {
    if turn.staged || !capabilities.contains(&NodeCapability::StageUnstageVolume) {
        return Ok(());
    }
    let secrets = persistent.stage_secrets(|key| means.objects.get(key));
    let secrets = secrets.map_err(CsiError::StageSecret)?;
    means.host.make_dir(&paths.staging, MODE).await?;
    let request = spec.stage_request(text(&paths.staging)?, secrets, capabilities);
    if let Err(error) = driver.node.stage(request).await {
        return Err(CsiError::Stage { gone: error.is_final(), why: rpc_error(&error) });
    }
    turn.staged = true;
    Ok(())
}

/// Has the driver take the pod's device away, and undoes the rest.
pub(super) async fn tear_down(means: &Means<'_>, volume: &VolumeName) -> Result<(), CsiError> {
    let paths = Paths::of(means, volume);
    let data = match notes::read(means, &paths.note)? {
        Some(Ok(data)) => data,
        unknown => {
            for target in [&paths.target, &paths.bound] {
                if means.host.is_mount_point(target).await? {
                    let why = unknown.and_then(Result::err).map(|error| error.to_string());
                    let why = why.unwrap_or_else(|| "vol_data.json is missing".to_owned());
                    return Err(CsiError::Unknown { target: target.clone(), why });
                }
            }
            return Ok(means.host.unlink(&paths.link).await?);
        }
    };
    let driver = means.drivers.get(&data.driver_name).map_err(CsiError::NoDriverLeftOfDevice)?;
    let mut turn = means.devices.turn(&data.driver_name, &data.volume_handle).await;
    mapped::unmap(means, &paths.bound).await?;
    let asked = driver.node.unpublish(&data.volume_handle, text(&paths.target)?).await;
    asked.map_err(|error| CsiError::UnpublishDevice(rpc_error(&error)))?;
    if means.host.is_mount_point(&paths.target).await? {
        return Err(CsiError::StillMounted { target: paths.target });
    }
    // Drivers should have removed it; not all do.
    means.host.unlink(&paths.target).await?;
    if !has_others(means, volume).await? {
        let let_go = let_go(means, &driver, &data.volume_handle, &paths, &mut turn);
        means.timed(&of_driver(&driver.name), Operation::UnmapDevice, let_go).await?;
    }
    // Last: as long as it is there, somebody comes back to undo the rest.
    Ok(means.host.unlink(&paths.link).await?)
}

/// Has the driver take away from the node what no pod has any more.
async fn let_go(
    means: &Means<'_>,
    driver: &CsiDriver,
    handle: &str,
    paths: &Paths,
    turn: &mut Device,
) -> Result<(), CsiError> {
    // As upstream: what is bound there may be of an agent that notes nothing else.
    let bound = means.host.files_in(&paths.global).await?;
    if !bound.is_empty() {
        let others = bound.iter().map(|name| paths.global.join(name)).collect();
        return Err(CsiError::ReferencedDevice { global: paths.global.clone(), others });
    }
    turn.growth = Growth::default();
    if means.host.exists(&paths.staging).await? {
        // Whatever comes of it, it is no longer known to be there.
        turn.staged = false;
        let asked = driver.node.unstage(handle, text(&paths.staging)?).await;
        asked.map_err(|error| CsiError::UnstageDevice(rpc_error(&error)))?;
    }
    clean(means, paths).await
}

/// Removes what the node has of a volume that no pod has.
async fn clean(means: &Means<'_>, paths: &Paths) -> Result<(), CsiError> {
    means.host.remove_tree(&paths.staging).await?;
    means.host.remove_empty_dir(&paths.publish_dir).await?;
    Ok(means.host.remove_tree(&paths.dir).await?)
}

async fn clean_after_failure(means: &Means<'_>, paths: &Paths) {
    let cleaned = match clean(means, paths).await {
        Ok(()) => means.host.unlink(&paths.link).await.map_err(CsiError::from),
        failed => failed,
    };
    if let Err(error) = cleaned {
        let path = paths.dir.display();
        tracing::warn!(%path, %error, "cannot remove the directory of a volume that failed");
    }
}

async fn has_others(means: &Means<'_>, volume: &VolumeName) -> Result<bool, CsiError> {
    Ok(others_have(means, &PluginName::csi(), volume, true).await?)
}
