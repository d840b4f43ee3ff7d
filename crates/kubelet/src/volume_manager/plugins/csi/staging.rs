//! The mount of a persistent volume that pods on this node share.
//!
//! Made before the first pod's, undone after the last one's. Who holds the
//! volume's turn may call this. Upstream: pkg/volume/csi/csi_attacher.go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plugin_apis::csi::NodeCapability;

use super::super::super::csi::{CsiSpec, VolData, hex_of, rpc_error};
use super::super::super::devices::{Device, Growth};
use super::super::super::layout::{PluginName, VolumeName};
use super::super::others::others;
use super::super::{Means, Operation, of_driver};
use super::CsiError;
use super::notes::{self, MODE};
use crate::plugin_manager::CsiDriver;

/// Where a shared mount and its note lie.
struct Staging {
    dir: PathBuf,
    target: PathBuf,
    note: PathBuf,
}

impl Staging {
    fn of(root_dir: &Path, driver: &str, handle: &str) -> Self {
        let dir = root_dir.join("plugins/kubernetes.io/csi").join(driver).join(hex_of(&[handle]));
        Self { target: dir.join("globalmount"), note: dir.join("vol_data.json"), dir }
    }

    fn target_text(&self) -> Result<&str, CsiError> {
        self.target.to_str().ok_or_else(|| CsiError::NotUtf8(self.target.clone()))
    }
}

/// Where the shared mount of a volume is, if there is one.
pub(super) fn place(means: &Means<'_>, spec: &CsiSpec) -> Result<String, CsiError> {
    let staging = Staging::of(means.root_dir, &spec.driver, &spec.handle);
    Ok(staging.target_text()?.to_owned())
}

/// The SELinux label of the shared mount, empty if it has none; `None` if there is no
/// shared mount that anything is known of.
pub(super) fn label(means: &Means<'_>, spec: &CsiSpec) -> Result<Option<String>, CsiError> {
    let staging = Staging::of(means.root_dir, &spec.driver, &spec.handle);
    let noted = notes::read(means, &staging.note)?;
    Ok(noted.and_then(Result::ok).map(|data| data.selinux_label))
}

/// Has the driver make the shared mount, unless it is made or the driver needs
/// none. Returns where it is; empty if there is none.
pub(super) async fn stage(
    means: &Means<'_>,
    driver: &CsiDriver,
    spec: &CsiSpec,
    secrets: BTreeMap<String, String>,
    capabilities: &BTreeSet<NodeCapability>,
    device: &mut Device,
) -> Result<String, CsiError> {
    if !capabilities.contains(&NodeCapability::StageUnstageVolume) {
        return Ok(String::new());
    }
    let staging = Staging::of(means.root_dir, &spec.driver, &spec.handle);
    let target = staging.target_text()?.to_owned();
    if device.staged {
        return Ok(target);
    }
    let is_new = notes::read(means, &staging.note)?.is_none();
    means.host.make_dir(&staging.target, MODE).await?;
    let data = VolData {
        volume_handle: spec.handle.clone(),
        driver_name: spec.driver.clone(),
        selinux_label: spec.label().unwrap_or_default().to_owned(),
        ..VolData::default()
    };
    notes::write_to(means, &staging.note, &data)?;
    let request = spec.stage_request(&target, secrets, capabilities);
    if let Err(error) = driver.node.stage(request).await {
        // Nothing is mounted, unless an earlier call did it.
        let gone = error.is_final() && is_new && clean_after_failure(means, &staging).await;
        return Err(CsiError::Stage { gone, why: rpc_error(&error) });
    }
    device.staged = true;
    Ok(target)
}

/// Whether nothing is left.
async fn clean_after_failure(means: &Means<'_>, staging: &Staging) -> bool {
    let cleaned = clean(means, staging).await;
    if let Err(error) = &cleaned {
        let path = staging.dir.display();
        tracing::warn!(%path, %error, "cannot remove the directory of a volume that failed");
    }
    cleaned.is_ok()
}

/// Has the driver undo the shared mount, if there is one.
pub(super) async fn unstage(
    means: &Means<'_>,
    driver: &CsiDriver,
    handle: &str,
    device: &mut Device,
) -> Result<(), CsiError> {
    let unstaged = undo(means, driver, handle, device);
    means.timed(&of_driver(&driver.name), Operation::UnmountDevice, unstaged).await
}

async fn undo(
    means: &Means<'_>,
    driver: &CsiDriver,
    handle: &str,
    device: &mut Device,
) -> Result<(), CsiError> {
    let staging = Staging::of(means.root_dir, &driver.name, handle);
    // As upstream: no note tells of all that may have been bound.
    let others = means.host.references(&staging.target).await?;
    if !others.is_empty() {
        return Err(CsiError::Referenced { target: staging.target, others });
    }
    // It may be another size, and in nobody's use, when it is mounted again.
    device.growth = Growth::default();
    if notes::read(means, &staging.note)?.is_some() {
        // Whatever comes of it, it is no longer known to be there.
        device.staged = false;
        let asked = driver.node.unstage(handle, staging.target_text()?).await;
        asked.map_err(|error| CsiError::Unstage(rpc_error(&error)))?;
    }
    clean(means, &staging).await
}

async fn clean(means: &Means<'_>, staging: &Staging) -> Result<(), CsiError> {
    if means.host.is_mount_point(&staging.target).await? {
        return Err(CsiError::StillMounted { target: staging.target.clone() });
    }
    means.host.remove_empty_dir(&staging.target).await?;
    Ok(means.host.remove_tree(&staging.dir).await?)
}

/// Does another pod have the volume, as far as the disk knows? A note that cannot
/// be read may be about it: nobody goes on before that is settled.
pub(super) async fn has_others(
    means: &Means<'_>,
    driver: &str,
    handle: &str,
) -> Result<bool, CsiError> {
    let plugin = PluginName::csi();
    for layout in others(means).await? {
        for name in means.host.dirs_in(&layout.plugin_dir(&plugin)).await? {
            let Some(name) = VolumeName::new(&name) else { continue };
            let path = layout.volume_dir(&plugin, &name).join("vol_data.json");
            match notes::read(means, &path)? {
                Some(Ok(data)) if data.is_of(driver, handle) => return Ok(true),
                Some(Err(why)) => {
                    return Err(CsiError::Note { what: "read", path, why: why.to_string() });
                }
                Some(Ok(_)) | None => {}
            }
        }
    }
    Ok(false)
}
