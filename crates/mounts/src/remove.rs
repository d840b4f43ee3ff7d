//! Removal of a tree that others may be writing to.
//!
//! Every step is relative to an open directory and passes neither links nor
//! mounts, so nothing swapped in half-way leads the removal elsewhere. A mount
//! in the tree stops it before anything is removed; one that appears meanwhile
//! stops it there. A small tree is searched for mounts by itself, because a node
//! with many pods has a table of thousands. Upstream: pkg/util/removeall (RemoveAllOneFilesystem).

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Entry, LIST, NAME, open_inside};
use crate::table;

/// Directories held open at once. Deeper ones are first moved up to the root of
/// the removal, so that a tree of any depth needs few descriptors.
const DEPTH_MAX: usize = 32;
/// Names looked at for mounts before the table is the cheaper way to find them.
const LOOKS_MAX: usize = 512;
/// Passes over one directory: each empties it unless someone keeps adding to it.
const PASSES_MAX: usize = 10_000;
/// Names tried for a directory moved up, should someone take them.
const NAMES_MAX: usize = 10_000;

/// Removes a tree, or whatever the path names; absent is fine. A mount in it,
/// or on it, is an error that names the mount.
pub fn remove_tree(path: &Path) -> Result<(), MountsError> {
    let entry = match Entry::of(path) {
        Err(error) if error.is_not_found() => return Ok(()),
        entry => entry?,
    };
    let mut search = Search { path: path.to_owned(), looks: 0 };
    let mount = match search.at(entry.parent.as_fd(), &entry.name, FileType::Unknown, 0) {
        Ok(()) => None,
        Err(Found::Mount) => Some(search.path),
        Err(Found::Unsure) => table::below_entry(&entry)?.into_iter().next(),
    };
    if let Some(mount) = mount {
        return Err(MountsError::mount_inside(&mount));
    }
    remove_in(entry.parent.as_fd(), &entry.name, path)
}

/// Looks for a mount in a small tree. Nothing of a mount is touched: its server may
/// be gone, and then whoever asks it for anything waits for ever.
struct Search {
    /// Where it is, and in the end where the mount is.
    path: PathBuf,
    looks: usize,
}

/// Why a search ended early.
enum Found {
    /// A mount, at the search's path.
    Mount,
    /// A tree that is too large, or that cannot be looked at.
    Unsure,
}

impl Search {
    fn at(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        kind: FileType,
        depth: usize,
    ) -> Result<(), Found> {
        self.looks += 1;
        if self.looks > LOOKS_MAX || depth >= DEPTH_MAX {
            return Err(Found::Unsure);
        }
        if matches!(kind, FileType::Directory | FileType::Unknown) {
            match open_inside(dir, name, LIST) {
                Ok(child) => return self.below(&child, depth + 1),
                // Not a directory, or no longer.
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return found(errno),
            }
        }
        open_inside(dir, name, NAME).map_or_else(found, |_| Ok(()))
    }

    fn below(&mut self, dir: &OwnedFd, depth: usize) -> Result<(), Found> {
        let mut listing = Dir::read_from(dir).map_err(|_| Found::Unsure)?;
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(|_| Found::Unsure)?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.path.push(OsStr::from_bytes(name.to_bytes()));
                self.at(dir.as_fd(), name, entry.file_type(), depth)?;
                self.path.pop();
            }
        }
        Ok(())
    }
}

/// What it means that a name cannot be opened without passing a mount.
fn found(errno: Errno) -> Result<(), Found> {
    match errno {
        Errno::NOENT => Ok(()),
        Errno::XDEV => Err(Found::Mount),
        _ => Err(Found::Unsure),
    }
}

/// The same for a name in an open directory.
pub(crate) fn remove_in(
    parent: BorrowedFd<'_>,
    name: &CStr,
    path: &Path,
) -> Result<(), MountsError> {
    // Each time round, someone has put something in, or in its place.
    for _ in 0..PASSES_MAX {
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            result => return removed(result, path),
        }
        let root = match open_inside(parent, name, LIST) {
            Ok(root) => root,
            Err(Errno::NOTDIR | Errno::LOOP) => continue,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::XDEV) => return Err(MountsError::mount_inside(path)),
            Err(errno) => return Err(errno).context(OPEN, path),
        };
        let mut removal = Removal { root, path: path.to_owned(), moved: 0 };
        removal.empty_root()?;
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            result => return removed(result, path),
        }
    }
    Err(MountsError::KeepsFilling { path: path.to_owned() })
}

struct Removal {
    root: OwnedFd,
    /// Where it is, for messages.
    path: PathBuf,
    /// Directories moved up so far; also makes their names unique.
    moved: u64,
}

impl Removal {
    fn empty_root(&mut self) -> Result<(), MountsError> {
        let root = self.root.try_clone();
        let root = root.map_err(|_| Errno::MFILE).context("hold open", &self.path)?;
        self.empty(&root, 1)
    }

    /// Passes over a directory until one pass finds nothing in it.
    fn empty(&mut self, dir: &OwnedFd, depth: usize) -> Result<(), MountsError> {
        for _ in 0..PASSES_MAX {
            // Names are taken one by one: a directory may hold any number of them.
            let mut listing = Dir::read_from(dir).context("list", &self.path)?;
            let mut found = false;
            while let Some(entry) = listing.read() {
                let entry = entry.context("list", &self.path)?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    found = true;
                    self.path.push(OsStr::from_bytes(name.to_bytes()));
                    self.remove(dir, name, depth)?;
                    self.path.pop();
                }
            }
            if !found {
                return Ok(());
            }
        }
        Err(MountsError::KeepsFilling { path: self.path.clone() })
    }

    /// Removes one name, or leaves it to the next pass if it is swapped or
    /// filled meanwhile.
    fn remove(&mut self, dir: &OwnedFd, name: &CStr, depth: usize) -> Result<(), MountsError> {
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            result => return removed(result, &self.path),
        }
        let child = match open_inside(dir, name, LIST) {
            Ok(child) => child,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(Errno::XDEV) => return Err(MountsError::mount_inside(&self.path)),
            Err(errno) => return Err(errno).context(OPEN, &self.path),
        };
        if depth >= DEPTH_MAX {
            return self.move_up(dir, name);
        }
        self.empty(&child, depth + 1)?;
        match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            result => removed(result, &self.path),
        }
    }

    fn move_up(&mut self, dir: &OwnedFd, name: &CStr) -> Result<(), MountsError> {
        for _ in 0..NAMES_MAX {
            let to = format!(".removing-{}", self.moved);
            self.moved += 1;
            match rustix::fs::renameat(dir, name, &self.root, to) {
                // The name is taken by something that is not an empty directory.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {}
                result => return removed(result, &self.path),
            }
        }
        Err(MountsError::KeepsFilling { path: self.path.clone() })
    }
}

/// Gone is fine; busy means that something is mounted there.
fn removed(result: Result<(), Errno>, path: &Path) -> Result<(), MountsError> {
    match result {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(MountsError::mount_inside(path)),
        Err(errno) => Err(errno).context("remove", path),
    }
}
