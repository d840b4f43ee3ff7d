//! What volumes do to the machine, one call per effect.
//!
//! Calls may be repeated: what is done already is fine. The real one works on
//! the kernel's mounts, the simulation on a model of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use mounts::host_path::{HostPathError, HostPathType};
use mounts::mount::{HugePages, Tmpfs};
use mounts::ownership::{ChangePolicy, FsGroup, Owned};
use mounts::publish::{Payload, Published};
use mounts::{Beginning, MountsError, Space, Usage};
use quota::QuotaError;

use super::remote_disk::{RemoteDisk, Share};

/// Why something could not be done to a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// Files or mounts.
    #[error(transparent)]
    Mounts(#[from] MountsError),
    /// A path of the host is not what it should be.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// What a file system counts.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The kernel has not answered. The work goes on, and is not begun twice.
    #[error(
        "{what} {} is still under way after {} s; if it lasts, look at the disk or server behind it",
        .path.display(), .waited.as_secs()
    )]
    UnderWay {
        /// What was begun.
        what: String,
        /// On what.
        path: PathBuf,
        /// How long this caller waited.
        waited: Duration,
    },
    /// So much hangs that nothing more is begun.
    #[error(
        "{what} {} was not begun: {limit} calls of the kind are under way and none has ended, the \
         oldest: {oldest}; look at the disks or servers behind them",
        .path.display()
    )]
    Crowded {
        /// What was to be begun.
        what: String,
        /// On what.
        path: PathBuf,
        /// How much may be under way.
        limit: usize,
        /// What has been under way for longest.
        oldest: String,
    },
    /// The work ended without an answer: a bug.
    #[error("{what} {} ended without an answer; the log says more", .path.display())]
    Died {
        /// What was begun.
        what: String,
        /// On what.
        path: PathBuf,
    },
    /// Something is being made where all should be undone.
    #[error(
        "something is still being mounted after {} s: {}. Nothing was unmounted; try again later",
        .waited.as_secs(), unanswered(.drivers)
    )]
    StillMounting {
        /// The drivers that were asked, each with the path.
        drivers: Vec<(String, PathBuf)>,
        /// How long this caller waited.
        waited: Duration,
    },
    /// A mount that a driver made stays.
    #[error(
        "{error}. CSI driver {driver} mounted {}: see whether it runs, and restart it",
        .path.display()
    )]
    OfDriver {
        /// Which driver.
        driver: String,
        /// What it mounted.
        path: PathBuf,
        /// What went wrong.
        error: Box<VolumeError>,
    },
    /// A disk with another file system than it should have.
    #[error(
        "will not use {}: it holds {found}, and the volume is to be {wanted}", .device.display()
    )]
    OtherFileSystem {
        /// Which disk.
        device: PathBuf,
        /// What it has.
        found: String,
        /// What it should have.
        wanted: String,
    },
    /// A disk that is not touched.
    #[error("will not use {}: {why}", .device.display())]
    Disk {
        /// Which.
        device: PathBuf,
        /// Why not.
        why: String,
    },
    /// A program of the machine is missing.
    #[error("{tool} is not installed on this node, and {by} needs it; install {install}")]
    NoTool {
        /// Which program.
        tool: String,
        /// What it is needed for.
        by: String,
        /// What to install.
        install: &'static str,
    },
    /// What a server shares cannot be mounted.
    #[error("cannot mount {share} on {}: {why}", .target.display())]
    Share {
        /// Server and path.
        share: String,
        /// Where.
        target: PathBuf,
        /// What `mount` said.
        why: String,
    },
    /// A disk of another machine cannot be reached, or not be left.
    #[error("cannot {what} {disk}: {why}")]
    Remote {
        /// What was to be done.
        what: &'static str,
        /// Which disk.
        disk: String,
        /// Why not.
        why: String,
    },
    /// Files of a volume of another agent's, of a kind that nobody here can undo.
    #[error(
        "{} is what is left of a volume of {plugin}, which this release does not handle, and \
         there is something in it; save what is needed and empty it, then it is removed",
        .path.display()
    )]
    Leftover {
        /// The kind.
        plugin: String,
        /// Where it lies.
        path: PathBuf,
    },
    /// A volume of another agent's, of a kind that nobody here can undo.
    #[error(
        "{} is a volume of {plugin}, which this release does not handle; unmount it, then it is \
         removed",
        .path.display()
    )]
    Foreign {
        /// The kind.
        plugin: String,
        /// Where it lies.
        path: PathBuf,
    },
}

fn unanswered(drivers: &[(String, PathBuf)]) -> String {
    let said = |(driver, path): &(String, PathBuf)| {
        format!("CSI driver {driver} has not answered about {}", path.display())
    };
    match drivers.is_empty() {
        true => "look at the disk or server behind the pod's volumes".to_owned(),
        false => drivers.iter().map(said).collect::<Vec<_>>().join(", "),
    }
}

/// A part of a volume, and where to bind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPathBind {
    /// Path of the volume.
    pub volume_path: PathBuf,
    /// Path in the volume, relative and without `..`.
    pub path: PathBuf,
    /// Directory of all sub paths of the pod.
    pub root: PathBuf,
    /// The volume's name.
    pub volume: String,
    /// The container's name.
    pub container: String,
    /// Which of the container's mounts.
    pub index: usize,
}

/// Files that a volume is to show, all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The files.
    pub payload: Arc<Payload>,
    /// What tells them from others: a hash of them.
    pub digest: String,
    /// The group they are given to.
    pub group: Option<FsGroup>,
    /// When; it becomes part of a name.
    pub at: SystemTime,
}

/// File systems that count what directories hold, so that nobody has to walk through them.
#[async_trait]
pub trait VolumeQuotas: Send + Sync {
    /// Has a directory counted from now on, if its file system can; the log tells where it
    /// cannot. It may have a limit, which is not enforced by that.
    async fn count(&self, dir: &Path, limited: bool) -> Result<(), VolumeError>;
    /// How much a directory holds; `None` if it is not counted.
    async fn counted(&self, dir: &Path) -> Result<Option<Usage>, VolumeError>;
    /// Nothing of the counting stays behind once the directory goes.
    async fn forget(&self, dir: &Path) -> Result<(), VolumeError>;
}

/// Effects of volumes on the machine.
#[async_trait]
pub trait VolumeHost: Send + Sync + 'static {
    /// Makes a directory of exactly this mode, and those that lead to it.
    async fn make_dir(&self, path: &Path, mode: u32) -> Result<(), VolumeError>;
    /// Mounts memory on a directory, unless something is mounted there.
    async fn tmpfs(&self, target: &Path, tmpfs: Tmpfs) -> Result<(), VolumeError>;
    /// Is memory that [`VolumeHost::tmpfs`] mounts never swapped out?
    async fn can_refuse_swap(&self) -> Result<bool, VolumeError>;
    /// Mounts huge pages on a directory, unless something is mounted there.
    async fn hugetlbfs(&self, target: &Path, pages: HugePages) -> Result<(), VolumeError>;
    /// Is something mounted on exactly this name?
    async fn is_mount_point(&self, path: &Path) -> Result<bool, VolumeError>;
    /// Unmounts all that is mounted on a name, one over the other; nothing is fine.
    async fn unmount_all(&self, path: &Path) -> Result<(), VolumeError>;
    /// Ends an unmount that hangs because a server is gone: its requests fail. A machine
    /// whose unmounts never hang has nothing to do.
    async fn force_unmount(&self, path: &Path) -> Result<(), VolumeError> {
        self.unmount_all(path).await
    }
    /// Mount points below a directory, deepest first.
    async fn mounts_below(&self, dir: &Path) -> Result<Vec<PathBuf>, VolumeError>;
    /// Lets mounts below a directory be seen by containers that ask for it.
    async fn share(&self, dir: &Path) -> Result<(), VolumeError>;
    /// Gives a directory and all below it to a group. How many files have been visited is
    /// told meanwhile: a walk takes as long as it takes, and one that was given up goes on.
    async fn own(
        &self,
        dir: &Path,
        group: FsGroup,
        policy: ChangePolicy,
        visited: &AtomicU64,
    ) -> Result<Owned, VolumeError>;
    /// The group that what a path leads to belongs to.
    async fn group_of(&self, path: &Path) -> Result<u32, VolumeError>;
    /// Makes a directory in a volume, and those that lead to it.
    async fn make_inside(&self, volume: &Path, path: &Path, mode: u32) -> Result<(), VolumeError>;
    /// Reads a file in a volume, up to a limit; links in it never lead out of it.
    async fn read_inside(
        &self,
        volume: &Path,
        path: &Path,
        limit: usize,
    ) -> Result<Beginning, VolumeError>;
    /// Makes a directory show exactly these files.
    async fn publish(&self, dir: &Path, files: &Publication) -> Result<Published, VolumeError>;
    /// Mounts a disk on a directory, which is made, unless something is mounted there. A
    /// blank disk gets a file system before; nothing is written to any other.
    async fn mount_disk(
        &self,
        target: &Path,
        device: &Path,
        fs_type: &str,
        options: &[String],
    ) -> Result<(), VolumeError>;
    /// Mounts what a server shares on a directory, with the machine's `mount`, unless
    /// something is mounted there.
    async fn mount_share(&self, target: &Path, share: &Share) -> Result<(), VolumeError>;
    /// Reaches for a disk of another machine, and tells the device that it is here.
    async fn attach(&self, disk: &RemoteDisk) -> Result<PathBuf, VolumeError>;
    /// Lets go of such a disk, which nobody may use any more; `last` ends the session it
    /// came with, too. One that is not here is fine.
    async fn detach(&self, disk: &RemoteDisk, last: bool) -> Result<(), VolumeError>;
    /// Other mount points of the file system that is mounted on exactly this name.
    async fn sharers(&self, path: &Path) -> Result<Vec<PathBuf>, VolumeError>;
    /// Other mount points of the same directory of the same file system, as upstream counts
    /// who still has a volume.
    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        self.sharers(path).await
    }
    /// The SELinux label that what is mounted on exactly this name was mounted with, if
    /// it was with one.
    async fn label_of(&self, path: &Path) -> Result<Option<String>, VolumeError>;
    /// Binds a directory of the host to one of the agent's, unless something is mounted
    /// there.
    async fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Result<(), VolumeError>;
    /// Has what is bound to exactly this name obey mount options, as far as those are of
    /// mounts; the others, which are of file systems, are told. A machine without mount
    /// options has none to obey.
    async fn restrict(&self, _: &Path, _: &[String]) -> Result<Vec<String>, VolumeError> {
        Ok(Vec::new())
    }
    /// Binds a device, or a file, to a file of the agent's, which is made; what else is
    /// bound there goes.
    async fn bind_file(&self, source: &Path, target: &Path) -> Result<(), VolumeError>;
    /// Keeps the device at a path open, whatever becomes of the agent, unless it is: as long
    /// as it is, its name stands for no other. A machine whose devices stay has nothing to do.
    async fn hold_device(&self, _: &Path) -> Result<(), VolumeError> {
        Ok(())
    }
    /// Ends that; what nobody holds is fine.
    async fn release_device(&self, _: &Path) -> Result<(), VolumeError> {
        Ok(())
    }
    /// Makes a symbolic link, and the directory for it; what else is linked there goes.
    /// What it leads to need not be there.
    async fn link(&self, target: &Path, link: &Path) -> Result<(), VolumeError>;
    /// Removes a file or link; absent is fine, and so is a directory, which stays.
    async fn unlink(&self, path: &Path) -> Result<(), VolumeError>;
    /// Binds a part of a volume to a place of its own, and tells where.
    async fn bind_sub_path(&self, sub_path: &SubPathBind) -> Result<PathBuf, VolumeError>;
    /// Unbinds all parts of a volume of a pod.
    async fn clean_sub_paths(&self, root: &Path, volume: &str) -> Result<(), VolumeError>;
    /// Checks a path of the host, and makes what its type asks to make.
    async fn check_host_path(&self, path: &Path, kind: HostPathType) -> Result<(), VolumeError>;
    /// How much a directory holds; mounts in it aside.
    async fn usage(&self, dir: &Path) -> Result<Usage, VolumeError>;
    /// Counts by file systems; `None` if the agent was told not to use them.
    fn quotas(&self) -> Option<&dyn VolumeQuotas> {
        None
    }
    /// How large a device is. A machine without devices has file systems.
    async fn device_size(&self, path: &Path) -> Result<u64, VolumeError> {
        Ok(self.space(path).await?.capacity)
    }
    /// Room of the file system a path is on.
    async fn space(&self, path: &Path) -> Result<Space, VolumeError>;
    /// Removes a tree; a mount in it is an error that names it. Absent is fine.
    async fn remove_tree(&self, path: &Path) -> Result<(), VolumeError>;
    /// Removes a directory that has nothing in it; absent is fine.
    async fn remove_empty_dir(&self, path: &Path) -> Result<(), VolumeError>;
    /// Is there anything of this name?
    async fn exists(&self, path: &Path) -> Result<bool, VolumeError>;
    /// Makes an empty file that marks something as done, and the directory for it.
    async fn mark(&self, path: &Path) -> Result<(), VolumeError>;
    /// Names of all that is no directory in a directory, sorted; none if it is absent.
    async fn files_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError>;
    /// Names of the directories in a directory, sorted; none if it is absent.
    async fn dirs_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError>;
}
