//! The system calls, each with the structure that the kernel expects.
//!
//! The only `unsafe` code of the tree: a project is set by an ioctl and a quota is asked
//! for by `quotactl_fd`, and no safe crate offers either. Nothing here decides anything.
#![allow(unsafe_code)]

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FsXattr {
    pub(crate) xflags: u32,
    pub(crate) extsize: u32,
    pub(crate) nextents: u32,
    pub(crate) projid: u32,
    pub(crate) cowextsize: u32,
    pub(crate) pad: [u8; 8],
}

/// `struct if_dqblk` of linux/quota.h; limits in blocks of 1024 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dqblk {
    pub(crate) bhardlimit: u64,
    pub(crate) bsoftlimit: u64,
    pub(crate) curspace: u64,
    pub(crate) ihardlimit: u64,
    pub(crate) isoftlimit: u64,
    pub(crate) curinodes: u64,
    pub(crate) btime: u64,
    pub(crate) itime: u64,
    pub(crate) valid: u32,
}

/// `struct if_dqinfo` of linux/quota.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Dqinfo {
    bgrace: u64,
    igrace: u64,
    flags: u32,
    valid: u32,
}

// The kernel's sizes, on every architecture with 64 bits.
const _: () = assert!(size_of::<FsXattr>() == 28);
const _: () = assert!(size_of::<Dqblk>() == 72);
const _: () = assert!(size_of::<Dqinfo>() == 24);

const FS_IOC_FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);

const Q_GETINFO: u32 = 0x80_0005;
const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
const PRJQUOTA: u32 = 2;
/// Of [`Dqblk::valid`]: the limits of blocks are meant.
pub(crate) const QIF_BLIMITS: u32 = 1;

/// The attributes of an open file or directory.
pub(crate) fn attributes(file: BorrowedFd<'_>) -> Result<FsXattr, Errno> {
    // SAFETY: the opcode is FS_IOC_FSGETXATTR, for which the kernel writes one `struct
    // fsxattr`; `FsXattr` has its layout and size, and every bit pattern is valid for it.
    unsafe { ioctl(file, Getter::<FS_IOC_FSGETXATTR, FsXattr>::new()) }
}

/// Changes them.
pub(crate) fn set_attributes(file: BorrowedFd<'_>, to: FsXattr) -> Result<(), Errno> {
    // SAFETY: the opcode is FS_IOC_FSSETXATTR, for which the kernel reads one `struct
    // fsxattr`; `FsXattr` has its layout and size, and no padding that is not initialized.
    unsafe { ioctl(file, Setter::<FS_IOC_FSSETXATTR, FsXattr>::new(to)) }
}

/// Whether the file system of an open file counts projects: an error if it does not.
pub(crate) fn project_info(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut info = Dqinfo::default();
    // SAFETY: for Q_GETINFO the kernel writes one `struct if_dqinfo`, which `Dqinfo` is.
    unsafe { quotactl(file, Q_GETINFO, 0, &raw mut info) }
}

/// Use and limits of a project.
pub(crate) fn project_quota(file: BorrowedFd<'_>, id: u32) -> Result<Dqblk, Errno> {
    let mut found = Dqblk::default();
    // SAFETY: for Q_GETQUOTA the kernel writes one `struct if_dqblk`, which `Dqblk` is.
    unsafe { quotactl(file, Q_GETQUOTA, id, &raw mut found) }?;
    Ok(found)
}

/// Changes those limits of a project that `valid` names.
pub(crate) fn set_project_quota(file: BorrowedFd<'_>, id: u32, to: Dqblk) -> Result<(), Errno> {
    let mut to = to;
    // SAFETY: for Q_SETQUOTA the kernel reads one `struct if_dqblk`, which `Dqblk` is.
    unsafe { quotactl(file, Q_SETQUOTA, id, &raw mut to) }
}

/// One command on the quotas of projects of the file system that an open file is on.
///
/// # Safety
/// `data` must point to a live, writable value of the type that the command takes.
unsafe fn quotactl<T>(
    file: BorrowedFd<'_>,
    command: u32,
    id: u32,
    data: *mut T,
) -> Result<(), Errno> {
    let command = (command << 8) | PRJQUOTA;
    // SAFETY: the descriptor is open while it is borrowed; the other arguments are plain
    // numbers; the caller vouches for what `data` points to, and the kernel keeps nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command, id, data) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
