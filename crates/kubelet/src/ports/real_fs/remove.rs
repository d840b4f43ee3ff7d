//! Removal of a directory tree that others may be writing to.
//!
//! Every step is relative to an open directory and refuses links, so a link
//! swapped in half-way cannot lead the removal elsewhere. A directory on another
//! mount stops it: what is mounted there is somebody's data.

use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

/// Directories held open at once. Deeper ones are first moved up to the root of
/// the removal, so that a tree of any depth needs few descriptors.
const DEPTH_MAX: usize = 32;
/// Passes over the root: each empties it unless someone keeps adding to it.
const PASSES_MAX: usize = 10_000;

/// Removes a tree; absent is fine.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| {
        let message = format!("{} has no file name", path.display());
        io::Error::new(ErrorKind::InvalidInput, message)
    })?;
    let name = CString::new(name.as_bytes())?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let parent = match rustix::fs::openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        result => result?,
    };
    let root = match open_below(&parent, &name, mount_of(&parent)?) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        result => result?,
    };
    let mut removal = Removal { mount: mount_of(&root)?, root, moved: 0 };
    removal.empty_root()?;
    gone_is_fine(rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR))
}

struct Removal {
    root: OwnedFd,
    mount: Mount,
    /// Directories moved up so far; also makes their names unique.
    moved: u64,
}

impl Removal {
    fn empty_root(&mut self) -> io::Result<()> {
        for _ in 0..PASSES_MAX {
            let before = self.moved;
            let root = self.root.try_clone()?;
            self.empty(&root, 1)?;
            if self.moved == before {
                return Ok(());
            }
        }
        Err(io::Error::other("the directory keeps filling up while it is removed"))
    }

    /// Removes what is in `dir`, except directories it moved up to the root.
    fn empty(&mut self, dir: &OwnedFd, depth: usize) -> io::Result<()> {
        for (name, kind) in names_in(dir)? {
            if kind == FileType::Directory {
                self.remove_dir(dir, &name, depth)?;
                continue;
            }
            match rustix::fs::unlinkat(dir, &name, AtFlags::empty()) {
                // It has become a directory, or its kind was unknown.
                Err(Errno::ISDIR | Errno::PERM) if kind != FileType::RegularFile => {
                    self.remove_dir(dir, &name, depth)?;
                }
                result => gone_is_fine(result)?,
            }
        }
        Ok(())
    }

    fn remove_dir(&mut self, dir: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        let child = match open_below(dir, name, self.mount) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        if depth >= DEPTH_MAX {
            let moved = format!(".removing-{}", self.moved);
            self.moved += 1;
            return gone_is_fine(rustix::fs::renameat(dir, name, &self.root, moved));
        }
        self.empty(&child, depth + 1)?;
        gone_is_fine(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
    }
}

/// Device and mount a directory is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mount {
    device: (u32, u32),
    /// Tells bind mounts of one device apart; kernels before 5.8 do not say.
    id: Option<u64>,
}

fn mount_of(dir: &OwnedFd) -> io::Result<Mount> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, wanted)?;
    let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    Ok(Mount {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        id: known.then_some(stat.stx_mnt_id),
    })
}

fn open_below(dir: &OwnedFd, name: &CStr, mount: Mount) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let child = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    if mount_of(&child)? != mount {
        let message = format!("{name:?} is a mount point; unmount it first");
        return Err(io::Error::new(ErrorKind::ResourceBusy, message));
    }
    Ok(child)
}

fn names_in(dir: &OwnedFd) -> io::Result<Vec<(CString, FileType)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(names)
}

fn gone_is_fine(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
