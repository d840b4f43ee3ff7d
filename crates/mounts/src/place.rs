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
/// Directories that lead to something, when they are missing.
const PARENT_MODE: u32 = 0o750;

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
    pub(crate) fn directory(path: &Path) -> Result<Self, MountsError> {
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

/// Makes a directory of exactly this mode, whatever the umask, and those that
/// lead to it with mode 0750. One that exists gets the mode.
pub fn make_dir(path: &Path, mode: u32) -> Result<(), MountsError> {
    let entry = match Entry::of(path) {
        Err(error) if error.is_not_found() => {
            make_parents(path)?;
            Entry::of(path)?
        }
        entry => entry?,
    };
    make_in(&entry.parent, &entry.name, &entry.path, mode).map(|_| ())
}

fn make_parents(path: &Path) -> Result<(), MountsError> {
    let mut missing = Vec::new();
    for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
        match Place::follow(parent) {
            Err(error) if error.is_not_found() => missing.push(parent),
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    missing.into_iter().rev().try_for_each(|parent| make_dir(parent, PARENT_MODE))
}

/// Makes, or opens, one directory and gives it the mode.
pub(crate) fn make_in(
    dir: impl AsFd,
    name: &CStr,
    path: &Path,
    mode: u32,
) -> Result<OwnedFd, MountsError> {
    match rustix::fs::mkdirat(dir.as_fd(), name, Mode::from_raw_mode(mode & 0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(MountsError::call("create directory", path, errno)),
    }
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let made = resolve(dir, name, LIST, how).context(OPEN, path)?;
    let now = facts(&made).context("look at", path)?;
    if u32::from(now.stx_mode) & 0o7777 != mode {
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode)).context("set the mode of", path)?;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_made_directory_has_its_mode_and_its_parents_0750() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b/c");
        make_dir(&path, 0o777).unwrap();
        assert_eq!(mode_of(&path), 0o777);
        assert_eq!(mode_of(&temp.path().join("a/b")), 0o750);
        make_dir(&path, 0o2755).expect("once more");
        assert_eq!(mode_of(&path), 0o2755);
    }

    #[test]
    fn the_last_name_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        make_dir(&outside, 0o700).unwrap();
        let link = temp.path().join("link");
        symlink(&outside, &link).unwrap();
        assert!(make_dir(&link, 0o777).is_err());
        assert_eq!(mode_of(&outside), 0o700);
        assert!(Place::directory(&link).is_err());
        Place::follow(&link).unwrap();
        make_dir(&link.join("inner"), 0o700).expect("links that lead there are followed");
    }

    #[test]
    fn a_path_without_a_last_name_is_refused() {
        for path in ["/", "..", "a/.."] {
            let error = make_dir(Path::new(path), 0o700).unwrap_err();
            assert!(matches!(error, MountsError::BadPath { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn messages_name_operation_path_cause_and_advice() {
        let error = Place::directory(Path::new("/nowhere/at-all")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open /nowhere: No such file or directory (os error 2); create it first, or \
             correct the path"
        );
    }
}
