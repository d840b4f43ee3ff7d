//! Empty directories: on the disk, in memory, in huge pages.
//!
//! A marker tells that one is ready, so that an agent that comes back changes
//! neither its mode nor its owners. Upstream: pkg/volume/emptydir.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use mounts::mount::{HugePages, Tmpfs};
use mounts::ownership::{ChangePolicy, FsGroup};

use super::super::VolumeMountable;
use super::super::desired::{Medium, Quota};
use super::super::layout::{PluginName, PodLayout, VolumeName};
use crate::ports::{VolumeError, VolumeHost};

/// Containers may run as anybody.
const MODE: u32 = 0o777;

pub(super) async fn set_up(
    host: &dyn VolumeHost,
    layout: &PodLayout,
    name: &VolumeName,
    medium: Medium,
    fs_group: Option<u32>,
    quota: Option<Quota>,
) -> Result<VolumeMountable, VolumeError> {
    let plugin = PluginName::empty_dir();
    let dir = layout.volume_dir(&plugin, name);
    let ready = layout.ready_marker(&plugin, name);
    ensure(host, &dir, &ready, medium, fs_group).await?;
    if let Some(quota) = quota {
        count(host, &dir, quota).await;
    }
    Ok(VolumeMountable {
        host_path: dir,
        read_only: false,
        managed: true,
        persistent: None,
        device: None,
        gid: None,
    })
}

/// Makes the directory, unless the marker says that it was.
pub(super) async fn ensure(
    host: &dyn VolumeHost,
    dir: &Path,
    ready: &Path,
    medium: Medium,
    fs_group: Option<u32>,
) -> Result<(), VolumeError> {
    if !is_ready(host, dir, ready, medium).await? {
        make(host, dir, medium).await?;
        if let Some(gid) = fs_group {
            own(host, dir, gid).await?;
        }
        host.mark(ready).await?;
    }
    Ok(())
}

async fn is_ready(
    host: &dyn VolumeHost,
    dir: &Path,
    ready: &Path,
    medium: Medium,
) -> Result<bool, VolumeError> {
    if !host.exists(ready).await? {
        return Ok(false);
    }
    match medium {
        Medium::Disk => host.exists(dir).await,
        // The marker outlives a reboot, the mount does not.
        Medium::Memory(_) | Medium::HugePages(_) => host.is_mount_point(dir).await,
    }
}

async fn make(host: &dyn VolumeHost, dir: &Path, medium: Medium) -> Result<(), VolumeError> {
    host.make_dir(dir, MODE).await?;
    match medium {
        Medium::Disk => Ok(()),
        Medium::Memory(size) => host.tmpfs(dir, Tmpfs { size, mode: None }).await,
        Medium::HugePages(page_size) => {
            host.hugetlbfs(dir, HugePages { page_size, size: None }).await
        }
    }
}

/// A volume that is not counted is measured by a walk, and keeps no pod from starting.
/// One that is there already is counted on, since an agent that comes back knows of none.
async fn count(host: &dyn VolumeHost, dir: &Path, quota: Quota) {
    let Some(quotas) = host.quotas() else { return };
    if let Err(error) = quotas.count(dir, quota.limited).await {
        tracing::warn!(%error, "the volume has no project quota; it is measured by a walk");
    }
}

/// Before a directory goes: whichever agent had it counted, its project is free again.
pub(super) async fn forget_count(host: &dyn VolumeHost, dir: &Path) {
    let Some(quotas) = host.quotas() else { return };
    if let Err(error) = quotas.forget(dir).await {
        let path = dir.display();
        tracing::warn!(%path, %error, "the project quota of a volume is not wholly removed");
    }
}

/// As upstream, a file that cannot be given away keeps no pod from starting.
async fn own(host: &dyn VolumeHost, dir: &Path, gid: u32) -> Result<(), VolumeError> {
    let group = FsGroup { gid, read_only: false };
    let path = dir.display();
    match host.own(dir, group, ChangePolicy::Always, &AtomicU64::new(0)).await {
        Ok(owned) => {
            if let Some(error) = owned.first_failure {
                tracing::warn!(%path, gid, failed = owned.failed, %error, "not all given to the group");
            }
            Ok(())
        }
        Err(VolumeError::Mounts(error)) => {
            tracing::warn!(%path, gid, %error, "the volume is not given to the group");
            Ok(())
        }
        Err(other) => Err(other),
    }
}
