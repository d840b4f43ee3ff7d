//! Open files and directories, and the only ways this crate resolves names.
//!
//! Owns the flags under which names are looked up. Never follows the last name
//! of a path unless told so, and nothing at all below an open directory.

use std::ffi::{CStr, CString, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::error::{Context, MountsError, OPEN};

/// A descriptor that names a file and gives no access to its content.
pub(crate) const NAME: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A directory to list, and nothing but a directory.
pub(crate) const LIST: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::RDONLY).union(OFlags::CLOEXEC);
/// Neither a link nor a mount is passed on the way.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// A lookup is repeated when a rename somewhere on the machine disturbs it.
const DISTURBED_MAX: usize = 1_000;

/// An open file or directory, and the path it was opened by.
#[derive(Debug)]
pub struct Place {
    fd: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// Opens what the path leads to, following links: for paths that an
    /// administrator gives, such as those on the host.
    pub fn follow(path: &Path) -> Result<Self, MountsError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = resolve(CWD, path, flags, ResolveFlags::NO_MAGICLINKS).context(OPEN, path)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens the directory a path names; a link in its place is an error.
    pub fn directory(path: &Path) -> Result<Self, MountsError> {
        let entry = Entry::of(path)?;
        let fd = entry.open(LIST).context(OPEN, path)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// The path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Place> for OwnedFd {
    fn from(place: Place) -> Self {
        place.fd
    }
}

/// A name in an open directory; what it stands for may change at any time.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) parent: OwnedFd,
    pub(crate) name: CString,
    pub(crate) path: PathBuf,
}

impl Entry {
    /// Opens the directory that holds the path's last name.
    pub(crate) fn of(path: &Path) -> Result<Self, MountsError> {
        let name =
            path.file_name().ok_or_else(|| MountsError::bad_path(path, "has no last name"))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = resolve(CWD, parent, flags, ResolveFlags::NO_MAGICLINKS).context(OPEN, parent)?;
        Self::new(fd, name, path.to_owned())
    }

    pub(crate) fn new(parent: OwnedFd, name: &OsStr, path: PathBuf) -> Result<Self, MountsError> {
        let name = CString::new(name.as_bytes())
            .map_err(|_| MountsError::bad_path(&path, "contains a NUL byte"))?;
        Ok(Self { parent, name, path })
    }

    /// Opens what is there now, or what is mounted on it.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        resolve(&self.parent, &self.name, flags, how)
    }

    /// For calls that take no descriptor: only the last name is looked up anew.
    pub(crate) fn through_proc(&self) -> PathBuf {
        through_proc(self.parent.as_fd()).join(OsStr::from_bytes(self.name.to_bytes()))
    }
}

/// For calls that take no descriptor: names the open file itself.
pub(crate) fn through_proc(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Opens a path below a directory, passing neither links nor mounts: a link is
/// `LOOP` (or itself, for [`NAME`]), another mount is `XDEV`.
pub(crate) fn open_inside(
    dir: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    resolve(dir, path, flags, INSIDE)
}

pub(crate) fn resolve(
    dir: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    for _ in 0..DISTURBED_MAX {
        match rustix::fs::openat2(dir.as_fd(), path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Facts about an open file.
pub(crate) fn facts(fd: impl AsFd) -> Result<Statx, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)
}

/// Facts about what a name stands for now; a link is the link itself.
pub(crate) fn facts_at(dir: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, wanted)
}

/// Whether both are one file.
pub(crate) fn same_file(one: &Statx, other: &Statx) -> bool {
    identity(one) == identity(other)
}

/// Device and inode.
pub(crate) fn identity(facts: &Statx) -> (u32, u32, u64) {
    (facts.stx_dev_major, facts.stx_dev_minor, facts.stx_ino)
}

/// The mount an open file was reached through.
pub(crate) fn mount_id(fd: impl AsFd, path: &Path) -> Result<u64, MountsError> {
    let facts = facts(fd.as_fd()).context("look at", path)?;
    if let Some(id) = told_mount(&facts) {
        return Ok(id);
    }
    // Before Linux 5.8 only this file tells.
    let info = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let mut text = String::new();
    let read =
        std::fs::File::open(&info).and_then(|file| file.take(4096).read_to_string(&mut text));
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    match (read, id) {
        (Ok(_), Some(id)) => Ok(id),
        _ => Err(MountsError::call("read the mount of", path, Errno::NODATA)),
    }
}

/// The mount, when the kernel tells it along with the facts.
pub(crate) fn told_mount(facts: &Statx) -> Option<u64> {
    let told = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID);
    told.then_some(facts.stx_mnt_id)
}
