//! What is asked of the kernel, and the real one.
//!
//! Every call takes an open directory: names are resolved by the caller, once.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::projects::ProjectId;
use crate::sys;

/// What all files of a project take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Bytes of allocated and reserved blocks.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// The project of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Project {
    /// Its number; 0 is none.
    pub id: u32,
    /// What is made in the directory belongs to it, too.
    pub inherited: bool,
}

/// Whether a file system counts projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Counts {
        /// The greatest limit it can hold, in bytes.
        limit_max: u64,
    },
    /// It does not; why.
    Not(String),
}

/// The calls.
pub trait Kernel: Send + Sync + 'static {
    /// Whether the file system of a directory counts projects.
    fn support(&self, dir: BorrowedFd<'_>) -> Result<Support, Errno>;
    /// The project of a directory.
    fn project(&self, dir: BorrowedFd<'_>) -> Result<Project, Errno>;
    /// Puts a directory, and what is made in it from now on, into a project.
    fn set_project(&self, dir: BorrowedFd<'_>, id: ProjectId) -> Result<(), Errno>;
    /// What a project takes up on the file system of a directory.
    fn used(&self, dir: BorrowedFd<'_>, id: ProjectId) -> Result<Used, Errno>;
    /// Limits a project on the file system of a directory; 0 is no limit.
    fn set_limit(&self, dir: BorrowedFd<'_>, id: ProjectId, bytes: u64) -> Result<(), Errno>;
}

/// The kernel that runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

const XFS_MAGIC: u64 = 0x5846_5342;
const EXT4_MAGIC: u64 = 0xef53;
/// Upstream's greatest limits.
const XFS_LIMIT_MAX: u64 = (1 << 63) - 1;
const EXT4_LIMIT_MAX: u64 = (1 << 58) - 1;
/// `FS_XFLAG_PROJINHERIT`.
const INHERITED: u32 = 0x200;
/// Limits are counted in blocks of this size, whatever those of the file system are.
const BLOCK_BYTES: u64 = 1024;

impl Kernel for Linux {
    fn support(&self, dir: BorrowedFd<'_>) -> Result<Support, Errno> {
        let limit_max = match rustix::fs::fstatfs(dir)?.f_type.cast_unsigned() {
            XFS_MAGIC => XFS_LIMIT_MAX,
            EXT4_MAGIC => EXT4_LIMIT_MAX,
            _ => return Ok(Support::Not("it is neither ext4 nor xfs".to_owned())),
        };
        match sys::project_info(dir) {
            Ok(()) => Ok(Support::Counts { limit_max }),
            Err(errno) => Ok(Support::Not(why_not(errno))),
        }
    }

    fn project(&self, dir: BorrowedFd<'_>) -> Result<Project, Errno> {
        let found = sys::attributes(dir)?;
        Ok(Project { id: found.projid, inherited: found.xflags & INHERITED != 0 })
    }

    fn set_project(&self, dir: BorrowedFd<'_>, id: ProjectId) -> Result<(), Errno> {
        let mut to = sys::attributes(dir)?;
        to.projid = id.number();
        to.xflags |= INHERITED;
        sys::set_attributes(dir, to)
    }

    fn used(&self, dir: BorrowedFd<'_>, id: ProjectId) -> Result<Used, Errno> {
        match sys::project_quota(dir, id.number()) {
            Ok(found) => Ok(Used { bytes: found.curspace, inodes: found.curinodes }),
            // Of a project that nothing was ever counted for, xfs knows nothing.
            Err(Errno::NOENT) => Ok(Used::default()),
            Err(errno) => Err(errno),
        }
    }

    fn set_limit(&self, dir: BorrowedFd<'_>, id: ProjectId, bytes: u64) -> Result<(), Errno> {
        let blocks = bytes / BLOCK_BYTES;
        let to = sys::Dqblk {
            bhardlimit: blocks,
            bsoftlimit: blocks,
            valid: sys::QIF_BLIMITS,
            ..sys::Dqblk::default()
        };
        sys::set_project_quota(dir, id.number(), to)
    }
}

fn why_not(errno: Errno) -> String {
    match errno {
        Errno::NOSYS => {
            "this kernel has no quotas (it needs Linux 5.14 and CONFIG_QUOTA)".to_owned()
        }
        Errno::SRCH | Errno::INVAL => {
            "it does not count projects; mount it with the option prjquota (ext4 also needs the \
             features quota and project)"
                .to_owned()
        }
        other => format!("it does not say whether it counts projects: {other}"),
    }
}
