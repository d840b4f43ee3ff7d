//! Disks of other machines with a file system: mounted once for the node, then bound for
//! each pod.
//!
//! The pod's directory is made first and removed last, so that another life of the agent
//! finds it. Who else uses a disk is read from the kernel's mounts: whichever agent made
//! them, a disk that is mounted anywhere is not let go. Upstream: pkg/volume/iscsi,
//! pkg/volume/fc.

use std::path::Path;

use super::super::VolumeMountable;
use super::super::layout::{PluginName, VolumeName};
use super::super::network::DiskSpec;
use super::super::plan::Doing;
use super::super::selinux;
use super::others::check_alone;
use super::remote_place::{self, Global};
use super::{Means, NotMade, group};
use crate::ports::VolumeError;

/// The file system of a disk that names none, as upstream.
const FS_TYPE: &str = "ext4";
/// Mode of the directory below the bind.
const MODE: u32 = 0o750;

impl NotMade {
    pub(super) fn when(doing: Doing) -> impl Fn(VolumeError) -> Self {
        move |error| Self { doing, why: error.to_string() }
    }
}

/// Makes the volume, or finds that it is made already.
pub(super) async fn set_up(means: &Means<'_>, spec: &DiskSpec) -> Result<VolumeMountable, NotMade> {
    let said = |error: VolumeError| error.to_string();
    remote_place::make_room(means, spec).await.map_err(said)?;
    let global = Global::of(spec);
    let _turn = global.turn(means).await;
    check_alone(means, spec.once_pod, &spec.plugin(), &spec.volume, false).await?;
    let target = means.layout.volume_dir(&spec.plugin(), &spec.volume);
    means.host.make_dir(&target, MODE).await.map_err(said)?;
    remote_place::write_note(means, spec, &global).await.map_err(said)?;
    let is_bound = means.host.is_mount_point(&target).await.map_err(said)?;
    mount(means, spec, &global, is_bound).await?;
    let source = global.dir(means);
    // With a label of its own, nothing in it is relabelled.
    let label = means.host.label_of(&source).await.map_err(said)?;
    means.host.bind(&source, &target, spec.read_only).await.map_err(said)?;
    // As upstream, what is bound already is whoever's it has become since.
    if let Some(gid) = spec.grouping.fs_group.filter(|_| !spec.read_only && !is_bound) {
        let (plugin, policy) = (spec.plugin().plain(), spec.grouping.policy);
        let given = group::give(means, &plugin, &target, gid, policy, false).await;
        given.map_err(said)?;
    }
    Ok(VolumeMountable {
        host_path: target,
        read_only: spec.read_only,
        managed: !spec.read_only && label.is_none(),
        persistent: spec.persistent.then(|| spec.volume.clone()),
        device: None,
        gid: None,
    })
}

/// Mounts the disk for the node, unless it is.
async fn mount(
    means: &Means<'_>,
    spec: &DiskSpec,
    global: &Global,
    is_bound: bool,
) -> Result<(), NotMade> {
    let attach = || NotMade::when(Doing::Attach);
    let dir = global.dir(means);
    if means.host.is_mount_point(&dir).await.map_err(attach())? {
        let label = means.host.label_of(&dir).await.map_err(attach())?;
        let (volume, wanted) = (spec.volume.as_str(), spec.context.as_deref());
        let good = selinux::check(volume, label.as_deref(), wanted, is_bound);
        return good.map_err(|why| NotMade { doing: Doing::MountDevice, why });
    }
    let disk = spec.with_secret(|key| means.objects.get(key));
    let disk = disk.map_err(|why| NotMade { doing: Doing::Attach, why })?;
    // Before the node reaches for it: whoever undoes it has to know what to leave.
    global.prepare(means, &disk).await.map_err(attach())?;
    let device = means.host.attach(&disk).await.map_err(attach())?;
    let fs_type = if spec.fs_type.is_empty() { FS_TYPE } else { &spec.fs_type };
    let mounted = means.host.mount_disk(&dir, &device, fs_type, &spec.options()).await;
    mounted.map_err(|error| {
        if spec.persistent {
            means.tell_of_mismatch(&spec.volume, &error);
        }
        NotMade::when(Doing::MountDevice)(error)
    })
}

/// Undoes the bind, and after the last pod lets go of the disk.
pub(super) async fn tear_down(
    means: &Means<'_>,
    plugin: &PluginName,
    name: &VolumeName,
) -> Result<(), VolumeError> {
    let target = means.layout.volume_dir(plugin, name);
    let global = match remote_place::read_note(means, plugin, name, false)? {
        Some(global) => Some(global),
        // Another agent made it: the kernel knows what is bound there, until it is unbound;
        // whoever tries again after that has to know, too.
        None => {
            let found = behind(means, plugin, &target).await?;
            if let Some(global) = &found {
                remote_place::note_disk(means, name, global).await?;
            }
            found
        }
    };
    if let Some(global) = &global {
        let _turn = global.turn(means).await;
        means.host.unmount_all(&target).await?;
        global.leave(means).await?;
    } else {
        means.host.unmount_all(&target).await?;
    }
    means.host.remove_tree(&means.layout.meta_dir(plugin, name)).await?;
    // Last: as long as it is there, somebody comes back to undo the rest.
    means.host.remove_empty_dir(&target).await
}

/// The disk that is bound to a pod's directory.
async fn behind(
    means: &Means<'_>,
    plugin: &PluginName,
    target: &Path,
) -> Result<Option<Global>, VolumeError> {
    // The kernel's paths have no links in them, unlike perhaps the agent's own.
    let root = format!("/plugins/{}/", plugin.plain());
    for point in means.host.sharers(target).await? {
        let name = point.to_str().and_then(|point| Some(point.rsplit_once(&root)?.1));
        let Some(global) = name.and_then(|name| Global::named(plugin, false, name)) else {
            continue;
        };
        if means.host.is_mount_point(&global.dir(means)).await? {
            return Ok(Some(global));
        }
    }
    Ok(None)
}
