//! Where disks of other machines lie on this node, and how the last pod lets go of one.
//!
//! A pod's note says which disk its volume is, so that another life of the agent finds
//! what was begun. Who holds the turn of a disk's session may call what changes
//! something. Upstream: pkg/volume/iscsi/iscsi_util.go, pkg/volume/fc/fc_util.go.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use mounts::MountsError;
use rustix::io::Errno;

use super::super::devices::Turn;
use super::super::layout::{PluginName, VolumeName};
use super::super::network::DiskSpec;
use super::{Means, Operation};
use crate::ports::{RemoteDisk, VolumeError};

/// Mode of the directories.
const MODE: u32 = 0o750;
/// Bytes of a note.
const NOTE_BYTES_MAX: usize = 64 << 10;
/// Upstream's note beside an iSCSI disk, below its mount.
const ISCSI_NOTE: &str = "iscsi.json";
/// The note of what the cluster calls a pod's disk.
pub(in super::super) const NAME_NOTE: &str = "unique-name";
/// Where devices lie, beside the mounts of a kind.
const DEVICES: &str = "volumeDevices";

/// A disk's directory on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Global {
    plugin: PluginName,
    /// Relative to the directory of the kind, or to its devices.
    name: String,
    block: bool,
}

impl Global {
    pub(super) fn of(spec: &DiskSpec) -> Self {
        Self { plugin: spec.plugin(), name: spec.global.clone(), block: spec.block }
    }

    /// From its name on the disk; `None` if that is no disk's.
    pub(super) fn named(plugin: &PluginName, block: bool, name: &str) -> Option<Self> {
        let disk = RemoteDisk::of_global(plugin.short(), name, None)?;
        // No name leads elsewhere.
        let good = disk.global_name().as_deref() == Some(name);
        good.then(|| Self { plugin: plugin.clone(), name: name.to_owned(), block })
    }

    /// Where all of a kind lie.
    pub(super) fn root(means: &Means<'_>, plugin: &PluginName, block: bool) -> PathBuf {
        let dir = means.root_dir.join("plugins").join(plugin.plain());
        if block { dir.join(DEVICES) } else { dir }
    }

    pub(super) fn dir(&self, means: &Means<'_>) -> PathBuf {
        Self::root(means, &self.plugin, self.block).join(&self.name)
    }

    fn note(&self, means: &Means<'_>) -> PathBuf {
        self.dir(means).join(ISCSI_NOTE)
    }

    /// Waits for the turn at all that shares a session with the disk.
    pub(super) async fn turn(&self, means: &Means<'_>) -> Turn {
        let disk = RemoteDisk::of_global(self.plugin.short(), &self.name, None);
        let session = disk.map_or_else(|| self.name.clone(), |disk| disk.session());
        means.devices.turn(self.plugin.as_dir(), &session).await
    }

    /// Makes the directory, and the note from which others can tell which disk it is.
    pub(super) async fn prepare(
        &self,
        means: &Means<'_>,
        disk: &RemoteDisk,
    ) -> Result<(), VolumeError> {
        means.host.make_dir(&self.dir(means), MODE).await?;
        let RemoteDisk::Iscsi(disk) = disk else { return Ok(()) };
        write(means, self.note(means), &disk.note())
    }

    /// Whether anybody else on the node has the same disk in another way.
    async fn has_twin(&self, means: &Means<'_>) -> Result<bool, VolumeError> {
        let twin = Self { block: !self.block, ..self.clone() };
        means.host.exists(&twin.dir(means)).await
    }

    /// Lets go of the disk, unless somebody has it. Who holds its turn may call this.
    pub(super) async fn leave(&self, means: &Means<'_>) -> Result<(), VolumeError> {
        let dir = self.dir(means);
        if !means.host.exists(&dir).await? {
            return self.tidy(means).await;
        }
        let used = match self.block {
            true => means.host.files_in(&dir).await?.iter().any(|name| name != ISCSI_NOTE),
            false => !means.host.sharers(&dir).await?.is_empty(),
        };
        if used {
            return Ok(());
        }
        let let_go = async {
            if !self.block {
                means.host.unmount_all(&dir).await?;
            }
            self.let_go(means).await
        };
        let what = if self.block { Operation::UnmapDevice } else { Operation::UnmountDevice };
        means.timed(&self.plugin.plain(), what, let_go).await
    }

    /// Lets go of a disk that nobody uses, and removes its directory.
    async fn let_go(&self, means: &Means<'_>) -> Result<(), VolumeError> {
        let noted = read(means, self.note(means))?;
        let disk = RemoteDisk::of_global(self.plugin.short(), &self.name, noted.as_deref());
        if let Some(disk) = disk
            && !self.has_twin(means).await?
        {
            let last = !self.has_neighbours(means, &disk).await?;
            means.host.detach(&disk, last).await?;
        }
        let dir = self.dir(means);
        means.host.unlink(&self.note(means)).await?;
        means.host.remove_empty_dir(&dir).await?;
        self.tidy(means).await
    }

    /// Removes the directory of an interface that has no disk any more.
    async fn tidy(&self, means: &Means<'_>) -> Result<(), VolumeError> {
        let Some((iface, _)) = self.name.split_once('/') else { return Ok(()) };
        let dir = Self::root(means, &self.plugin, self.block).join(iface);
        match means.host.dirs_in(&dir).await?.is_empty() {
            true => means.host.remove_empty_dir(&dir).await,
            false => Ok(()),
        }
    }

    /// Does another disk of the node have the same session?
    async fn has_neighbours(
        &self,
        means: &Means<'_>,
        disk: &RemoteDisk,
    ) -> Result<bool, VolumeError> {
        let RemoteDisk::Iscsi(disk) = disk else { return Ok(false) };
        for block in [false, true] {
            for name in names(means, &self.plugin, block).await? {
                let own = block == self.block && name == self.name;
                if !own && disk.shares_session(&name) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// All disks of a kind that lie on the node, in one of two ways.
pub(super) async fn names(
    means: &Means<'_>,
    plugin: &PluginName,
    block: bool,
) -> Result<Vec<String>, VolumeError> {
    let root = Global::root(means, plugin, block);
    let tops = means.host.dirs_in(&root).await?;
    let tops = tops.into_iter().filter(|name| block || name != DEVICES);
    if plugin.as_dir() != PluginName::ISCSI {
        return Ok(tops.collect());
    }
    let mut all = Vec::new();
    for iface in tops {
        let disks = means.host.dirs_in(&root.join(&iface)).await?;
        all.extend(disks.into_iter().map(|disk| format!("{iface}/{disk}")));
    }
    Ok(all)
}

/// Makes room for a disk where the pod had begun to have another: its PersistentVolume was
/// changed. One that the pod has stays. Who calls this holds no turn.
pub(super) async fn make_room(means: &Means<'_>, spec: &DiskSpec) -> Result<(), VolumeError> {
    let global = Global::of(spec);
    let old = read_note(means, &global.plugin, &spec.volume, spec.block)?;
    let Some(old) = old.filter(|old| *old != global) else { return Ok(()) };
    let has = match spec.block {
        true => means.host.exists(&old.dir(means).join(means.layout.uid())).await?,
        false => {
            let target = means.layout.volume_dir(&global.plugin, &spec.volume);
            means.host.is_mount_point(&target).await?
        }
    };
    if has {
        let why = format!("the pod has {} in its place; make the pod anew", old.name);
        return Err(VolumeError::Remote { what: "use", disk: spec.disk.to_string(), why });
    }
    let _turn = old.turn(means).await;
    old.leave(means).await
}

/// Notes which disk a pod's volume is, here and to the cluster.
pub(super) async fn write_note(
    means: &Means<'_>,
    spec: &DiskSpec,
    global: &Global,
) -> Result<(), VolumeError> {
    let dir = means.layout.meta_dir(&global.plugin, &spec.volume);
    means.host.make_dir(&dir, MODE).await?;
    write(means, dir.join(NAME_NOTE), spec.unique_name.as_bytes())?;
    note_disk(means, &spec.volume, global).await
}

/// Notes here which disk a pod's volume is.
pub(super) async fn note_disk(
    means: &Means<'_>,
    volume: &VolumeName,
    global: &Global,
) -> Result<(), VolumeError> {
    let dir = means.layout.meta_dir(&global.plugin, volume);
    means.host.make_dir(&dir, MODE).await?;
    write(means, dir.join("disk"), global.name.as_bytes())
}

/// Which disk a pod's volume is, if that was noted. A note that cannot be read may be
/// about any: nobody goes on before that is settled.
pub(super) fn read_note(
    means: &Means<'_>,
    plugin: &PluginName,
    volume: &VolumeName,
    block: bool,
) -> Result<Option<Global>, VolumeError> {
    let note = read(means, means.layout.meta_dir(plugin, volume).join("disk"))?;
    let name = note.as_deref().and_then(|note| std::str::from_utf8(note).ok());
    Ok(name.and_then(|name| Global::named(plugin, block, name)))
}

fn read(means: &Means<'_>, path: PathBuf) -> Result<Option<Vec<u8>>, VolumeError> {
    match means.fs.read(&path, NOTE_BYTES_MAX) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

fn write(means: &Means<'_>, path: PathBuf, content: &[u8]) -> Result<(), VolumeError> {
    means.fs.write(&path, content).map_err(|error| failed("write", path, &error))
}

fn failed(operation: &'static str, path: PathBuf, error: &io::Error) -> VolumeError {
    let source = Errno::from_io_error(error).unwrap_or(Errno::IO);
    MountsError::Call { operation, path, source }.into()
}
