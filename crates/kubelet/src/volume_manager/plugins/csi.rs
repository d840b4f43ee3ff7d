//! CSI: a driver mounts the volume, the agent notes how to undo that.
//!
//! The note is written before the driver is asked, and removed when nothing is
//! mounted any more, so that an agent killed at any time leaves nothing that
//! nobody can undo. Files in a volume are the driver's: no directory is removed
//! that has anything in it. A volume that pods share is worked on by one at a time.
//! Upstream: pkg/volume/csi/csi_mounter.go.

mod block;
mod error;
mod expand;
mod notes;
mod staging;

use std::collections::BTreeSet;

use plugin_apis::csi::NodeCapability;

use super::super::VolumeMountable;
use super::super::csi::{Access, CsiSpec, Persistent, rpc_error};
use super::super::devices::Device;
use super::super::layout::VolumeName;
use super::super::selinux;
use super::{Means, group, of_driver};
use crate::object_cache::Objects;
use crate::plugin_manager::{CsiDriver, Drivers};
pub(super) use error::CsiError;
pub(super) use expand::{expand, grow};
use notes::{PERSISTENT, Paths};

/// Why the driver cannot even be asked for a volume.
pub(super) fn obstacle(spec: &CsiSpec, drivers: &Drivers, objects: &Objects) -> Option<CsiError> {
    let driver = drivers.get(&spec.driver).map(drop);
    let driver = driver.map_err(|error| CsiError::no_driver(spec, error));
    let secret = || spec.secrets(|key| objects.get(key)).map(drop).map_err(CsiError::Secret);
    let shared = || match &spec.persistent {
        None => Ok(()),
        Some(persistent) => {
            let secrets = persistent.stage_secrets(|key| objects.get(key));
            secrets.map(drop).map_err(CsiError::StageSecret)
        }
    };
    driver.and_then(|()| secret()).and_then(|()| shared()).err()
}

/// Has the driver mount a volume. What is mounted already, it finds so.
pub(super) async fn set_up(
    means: &Means<'_>,
    name: &VolumeName,
    spec: &CsiSpec,
) -> Result<VolumeMountable, CsiError> {
    let driver = means.drivers.get(&spec.driver);
    let driver = driver.map_err(|error| CsiError::no_driver(spec, error))?;
    let secrets = spec.secrets(|key| means.objects.get(key)).map_err(CsiError::Secret)?;
    let asked = driver.node.capabilities().await;
    let capabilities = asked.map_err(|error| CsiError::Capabilities(rpc_error(&error)))?;
    let persistent = spec.persistent.as_ref();
    let paths = Paths::of(means, spec.place(name));
    // Whoever shares the volume waits: nobody may count its users meanwhile.
    let mut turn = means.turn(persistent.is_some(), &spec.driver, &spec.handle).await;
    if let (Some(persistent), Some(turn), true) = (persistent, &mut turn, spec.is_block()) {
        return block::set_up(means, &driver, spec, persistent, &capabilities, turn).await;
    }
    let is_new = notes::is_new(means, &paths, spec)?;
    let labelled = match &mut turn {
        Some(device) => labelled(means, &driver, spec, &paths, device).await?,
        None => spec.clone(),
    };
    let (spec, persistent) = (&labelled, labelled.persistent.as_ref());
    let staging = match (persistent, &mut turn) {
        (Some(persistent), Some(device)) => {
            share(means, &driver, spec, persistent, &capabilities, &paths, device).await?
        }
        _ => {
            notes::write(means, &paths, name, spec).await?;
            String::new()
        }
    };
    let request = spec.publish_request(&staging, paths.target_text()?, secrets, &capabilities);
    if let Err(error) = driver.node.publish(request).await {
        match &mut turn {
            // The note stays, for the shared mount. As upstream that is not made again,
            // unless the driver has lost it and says so.
            Some(device) => device.staged &= !error.lacks_precondition(),
            // Nothing is mounted, unless an earlier call did it.
            None if error.is_final() && is_new => clean_after_failure(means, &paths).await,
            None => {}
        }
        return Err(CsiError::Publish(rpc_error(&error)));
    }
    if let Some(gid) = spec.group_to_give(&capabilities) {
        let (plugin, policy) = (of_driver(&spec.driver), spec.grouping.policy);
        let given = group::give(means, &plugin, &paths.target, gid, policy, true).await;
        given.map_err(|error| CsiError::Group { handle: spec.handle.clone(), error })?;
    }
    Ok(VolumeMountable {
        host_path: paths.target,
        read_only: spec.read_only,
        // With a label of its own, nothing in it is relabelled.
        managed: !spec.read_only && spec.label().is_none(),
        persistent: persistent.map(|persistent| persistent.volume.clone()),
        device: None,
        gid: None,
    })
}

/// The volume with the SELinux label that it can have. A pod that has it keeps it as it is;
/// others wait for those that have it with another label.
async fn labelled(
    means: &Means<'_>,
    driver: &CsiDriver,
    spec: &CsiSpec,
    paths: &Paths,
    device: &mut Device,
) -> Result<CsiSpec, CsiError> {
    if means.host.is_mount_point(&paths.target).await? {
        let noted = notes::read(means, &paths.note)?.and_then(Result::ok);
        return Ok(noted.map_or_else(|| spec.clone(), |own| spec.with_label(&own.selinux_label)));
    }
    let Some(shared) = staging::label(means, spec)? else { return Ok(spec.clone()) };
    let shared = Some(shared.as_str()).filter(|label| !label.is_empty());
    if let Err(why) = selinux::check(&spec.handle, shared, spec.label(), false) {
        if staging::has_others(means, &spec.driver, &spec.handle).await? {
            return Err(CsiError::OtherLabel(why));
        }
        staging::unstage(means, driver, &spec.handle, device).await?;
    }
    Ok(spec.clone())
}

/// Notes the volume and makes the mount that pods share. Returns where that is;
/// empty if the driver has none.
async fn share(
    means: &Means<'_>,
    driver: &CsiDriver,
    spec: &CsiSpec,
    persistent: &Persistent,
    capabilities: &BTreeSet<NodeCapability>,
    paths: &Paths,
    device: &mut Device,
) -> Result<String, CsiError> {
    let secrets = persistent.stage_secrets(|key| means.objects.get(key));
    let secrets = secrets.map_err(CsiError::StageSecret)?;
    if persistent.access == Access::OncePod
        && staging::has_others(means, &spec.driver, &spec.handle).await?
    {
        return Err(CsiError::InUse);
    }
    notes::write(means, paths, &persistent.volume, spec).await?;
    let staged = staging::stage(means, driver, spec, secrets, capabilities, device).await;
    if let Err(CsiError::Stage { gone: true, .. }) = &staged {
        clean_after_failure(means, paths).await;
    }
    staged
}

/// Has the driver take away what is left of a block volume.
pub(super) async fn tear_down_device(means: &Means<'_>, name: &VolumeName) -> Result<(), CsiError> {
    block::tear_down(means, name).await
}

/// Has the driver unmount what is left of a volume, and removes the rest.
pub(super) async fn tear_down(means: &Means<'_>, name: &VolumeName) -> Result<(), CsiError> {
    let paths = Paths::of(means, name);
    let data = match notes::read(means, &paths.note)? {
        Some(Ok(data)) => data,
        unknown => {
            if means.host.is_mount_point(&paths.target).await? {
                let why = unknown.and_then(Result::err).map(|error| error.to_string());
                let why = why.unwrap_or_else(|| "vol_data.json is missing".to_owned());
                return Err(CsiError::Unknown { target: paths.target, why });
            }
            return clean(means, &paths).await;
        }
    };
    let driver = means.drivers.get(&data.driver_name).map_err(CsiError::NoDriverLeft)?;
    let shared = data.volume_lifecycle_mode == PERSISTENT;
    let mut turn = means.turn(shared, &data.driver_name, &data.volume_handle).await;
    let asked = driver.node.unpublish(&data.volume_handle, paths.target_text()?).await;
    asked.map_err(|error| CsiError::Unpublish(rpc_error(&error)))?;
    if means.host.is_mount_point(&paths.target).await? {
        return Err(CsiError::StillMounted { target: paths.target });
    }
    if let Some(device) = &mut turn
        && !staging::has_others(means, &data.driver_name, &data.volume_handle).await?
    {
        staging::unstage(means, &driver, &data.volume_handle, device).await?;
    }
    // Last: as long as the note is there, somebody comes back to undo the rest.
    clean(means, &paths).await
}

/// Removes a volume's directory and note, unless something is mounted there.
async fn clean(means: &Means<'_>, paths: &Paths) -> Result<(), CsiError> {
    if means.host.is_mount_point(&paths.target).await? {
        return Ok(());
    }
    // Drivers should have removed it; not all do.
    means.host.remove_empty_dir(&paths.target).await?;
    Ok(means.host.remove_tree(&paths.dir).await?)
}

async fn clean_after_failure(means: &Means<'_>, paths: &Paths) {
    if let Err(error) = clean(means, paths).await {
        let path = paths.dir.display();
        tracing::warn!(%path, %error, "cannot remove the directory of a volume that failed");
    }
}
