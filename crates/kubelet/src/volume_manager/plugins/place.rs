//! Persistent volumes that lie on this node: directories that are bound for each pod,
//! disks that are mounted once and then bound, and paths of the host as they are.
//!
//! What is in them is never removed: the bind is undone, and the empty directory below
//! it goes; after the last pod so does the mount of a disk. Upstream: pkg/volume/local,
//! pkg/volume/hostpath.

use std::path::{Path, PathBuf};

use mounts::host_path::HostPathType;

use super::super::VolumeMountable;
use super::super::claims::{PlaceKind, PlaceSpec};
use super::super::csi::Grouping;
use super::super::devices::Turn;
use super::super::layout::{PluginName, VolumeName};
use super::super::plan::Doing;
use super::others::{check_alone, others_have};
use super::{Means, NotMade, Operation, device, group, host_path};
use crate::ports::VolumeError;

/// The file system of a disk that names none, as upstream.
const FS_TYPE: &str = "ext4";
/// Mode of the directory below the bind.
const MODE: u32 = 0o750;

/// Makes the volume, or finds that it is made already.
pub(super) async fn set_up(
    means: &Means<'_>,
    spec: &PlaceSpec,
) -> Result<VolumeMountable, NotMade> {
    let made = match spec.kind {
        PlaceKind::Local(grouping) => {
            let is_disk = is_disk(means, spec).await;
            let is_disk = is_disk.map_err(|why| NotMade { doing: Doing::NewMounter, why })?;
            local(means, spec, grouping, is_disk).await?
        }
        PlaceKind::HostPath(kind) => {
            let made = host_path::set_up(means.host, &spec.path, kind).await;
            made.map_err(|error| error.to_string())?
        }
        PlaceKind::Device => return device::set_up(means, spec).await,
    };
    let persistent = Some(spec.volume.clone());
    Ok(VolumeMountable { read_only: spec.read_only, persistent, ..made })
}

/// Waits for the turn at a volume that lies on this node, as whatever it is used.
pub(super) async fn turn(means: &Means<'_>, volume: &VolumeName) -> Turn {
    means.devices.turn("kubernetes.io/local-volume", volume.as_str()).await
}

/// Is it a disk, or else a directory?
async fn is_disk(means: &Means<'_>, spec: &PlaceSpec) -> Result<bool, String> {
    let said = |error: VolumeError| error.to_string();
    let shown = spec.path.display();
    if !means.host.exists(&spec.path).await.map_err(said)? {
        return Err(format!("path \"{shown}\" does not exist"));
    }
    if host_path::is(means.host, &spec.path, HostPathType::Directory).await.map_err(said)? {
        return Ok(false);
    }
    match host_path::is(means.host, &spec.path, HostPathType::BlockDevice).await.map_err(said)? {
        true => Ok(true),
        false => Err(format!(
            "path \"{shown}\" is of neither kind: only directory and block device are supported"
        )),
    }
}

async fn local(
    means: &Means<'_>,
    spec: &PlaceSpec,
    grouping: Grouping,
    is_disk: bool,
) -> Result<VolumeMountable, String> {
    let said = |error: VolumeError| error.to_string();
    // Whoever shares a disk waits: nobody may count its users meanwhile.
    let _turn = turn(means, &spec.volume).await;
    check_alone(means, spec.once_pod, &PluginName::local(), &spec.volume, false).await?;
    let target = means.layout.volume_dir(&PluginName::local(), &spec.volume);
    // Before a disk is mounted: it is how another life of the agent finds that it is.
    means.host.make_dir(&target, MODE).await.map_err(said)?;
    let source = match is_disk {
        true => mount_disk(means, spec).await.map_err(said)?,
        false => spec.path.clone(),
    };
    let is_bound = means.host.is_mount_point(&target).await.map_err(said)?;
    means.host.bind(&source, &target, spec.read_only).await.map_err(said)?;
    restrict(means, spec, &target, is_disk).await.map_err(said)?;
    // As upstream, what is bound already is whoever's it has become since; and given by
    // the first pod that has it, so that pods of different groups do not take it from each
    // other.
    if let Some(gid) = grouping.fs_group.filter(|_| !is_bound)
        && others_have(means, &PluginName::local(), &spec.volume, false).await.map_err(said)?
    {
        check_group(means, &source, &spec.volume, gid).await.map_err(said)?;
    } else if let Some(gid) = grouping.fs_group.filter(|_| !spec.read_only && !is_bound) {
        let plugin = PluginName::local().plain();
        let given = group::give(means, &plugin, &target, gid, grouping.policy, true).await;
        given.map_err(said)?;
    }
    let managed = !spec.read_only;
    Ok(VolumeMountable {
        host_path: target,
        read_only: false,
        managed,
        persistent: None,
        device: None,
        gid: None,
    })
}

/// Has the bind obey the volume's mount options, as upstream. Those of a file system are
/// told to a disk; a directory has none of its own.
async fn restrict(
    means: &Means<'_>,
    spec: &PlaceSpec,
    target: &Path,
    is_disk: bool,
) -> Result<(), VolumeError> {
    if spec.mount_options.is_empty() {
        return Ok(());
    }
    let others = means.host.restrict(target, &spec.mount_options).await?;
    if !others.is_empty() && !is_disk {
        let (volume, path, others) = (&spec.volume, spec.path.display(), others.join(","));
        let text = format!(
            "The volume {volume} is the directory {path}, on which these mount options have no \
             effect: {others}"
        );
        means.tells.warn("UnsupportedMountOption", text);
    }
    Ok(())
}

/// Tells that a volume is another group's, as which other pods have it.
async fn check_group(
    means: &Means<'_>,
    source: &Path,
    volume: &VolumeName,
    gid: u32,
) -> Result<(), VolumeError> {
    let has = means.host.group_of(source).await?;
    if let Some(text) = other_group(volume, gid, has) {
        means.tells.warn("AlreadyMountedVolume", text);
    }
    Ok(())
}

/// What is told of a volume that has another group than a pod wants, if it has.
fn other_group(volume: &VolumeName, wanted: u32, has: u32) -> Option<String> {
    (has != wanted).then(|| {
        format!(
            "The requested fsGroup is {wanted}, but the volume {volume} has GID {has}. The volume \
             may not be shareable."
        )
    })
}

/// Where a disk is mounted for all pods of the node.
fn disk_dir(means: &Means<'_>, volume: &VolumeName) -> PathBuf {
    means.root_dir.join("plugins/kubernetes.io/local-volume/mounts").join(volume.as_str())
}

async fn mount_disk(means: &Means<'_>, spec: &PlaceSpec) -> Result<PathBuf, VolumeError> {
    let dir = disk_dir(means, &spec.volume);
    let fs_type = if spec.fs_type.is_empty() { FS_TYPE } else { &spec.fs_type };
    // Writable, even for a pod that only reads: others may write.
    let mounted = means.host.mount_disk(&dir, &spec.path, fs_type, &spec.mount_options).await;
    mounted.inspect_err(|error| means.tell_of_mismatch(&spec.volume, error))?;
    Ok(dir)
}

/// Undoes the bind of a local volume, and the mount of a disk after the last pod.
pub(super) async fn tear_down(means: &Means<'_>, name: &VolumeName) -> Result<(), VolumeError> {
    let _turn = turn(means, name).await;
    let target = means.layout.volume_dir(&PluginName::local(), name);
    means.host.unmount_all(&target).await?;
    let disk = disk_dir(means, name);
    if means.host.exists(&disk).await?
        && !others_have(means, &PluginName::local(), name, false).await?
    {
        let unmount = async {
            means.host.unmount_all(&disk).await?;
            means.host.remove_empty_dir(&disk).await
        };
        means.timed(&PluginName::local().plain(), Operation::UnmountDevice, unmount).await?;
    }
    // Last: as long as it is there, somebody comes back to undo the rest.
    means.host.remove_empty_dir(&target).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_another_group_is_told_as_upstream_does() {
        let volume = VolumeName::new("pv").expect("a good name");
        assert_eq!(other_group(&volume, 7, 7), None);
        assert_eq!(
            other_group(&volume, 7, 0).unwrap(),
            "The requested fsGroup is 7, but the volume pv has GID 0. The volume may not be \
             shareable."
        );
    }
}
