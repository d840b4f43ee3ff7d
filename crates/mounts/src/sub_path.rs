//! Sub paths: one file or directory of a volume, bound to a place of its own.
//!
//! Owns the tree of bind targets: `root/<volume>/<container>/<index>`. Links
//! inside the volume are followed while they stay inside; what leads out of it,
//! or names it by an absolute path, is refused by the kernel in the same lookup
//! that opens the file. Clean-up never enters what is bound.
//! Upstream: pkg/volume/util/subpath. CVE-2017-1002101, CVE-2021-25741.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::bind::{Bind, bind_entry};
use crate::error::{Context, MountsError, OPEN};
use crate::make_dir::{lead_to, make_entry};
use crate::place::{Entry, LIST, Place, facts, facts_at, open_inside, resolve, same_file};
use crate::table::is_mounted;
use crate::unmount::{Unmounted, unmount_entry};

const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// Mounts on one target: one, or a few after crashes at the wrong time.
const STACKED_MAX: usize = 16;
/// Volume, container, index.
const PARTS: usize = 3;
/// Inside the volume, other mounts in it included.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// A sub path and where to bind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubPath<'a> {
    /// Path of the volume; links that lead to it are followed.
    pub volume: &'a Path,
    /// Path in the volume, relative and without `..`.
    pub path: &'a Path,
    /// Directory of all sub paths of the pod.
    pub root: &'a Path,
    /// Names below the root: volume, container, index.
    pub target: [&'a str; PARTS],
}

/// Binds a sub path and returns the target's path. A missing directory is made,
/// with the mode of the volume's root. What is already bound is left alone,
/// something else in its place is unmounted.
pub fn bind(sub_path: &SubPath<'_>) -> Result<PathBuf, MountsError> {
    let source = open_or_make(sub_path.volume, sub_path.path, None)?;
    let (above, target) = make_above(sub_path)?;
    let bound = bind_to(&source, &target);
    if bound.is_err() && take_away(&target).is_ok() {
        // One that is still in use is not empty, nor are those above it.
        let _ = above.iter().rev().try_for_each(remove_dir);
    }
    bound.map(|()| target.path)
}

fn bind_to(source: &OwnedFd, target: &Entry) -> Result<(), MountsError> {
    let wanted = facts(source).context("look at", &target.path)?;
    if is_mounted(target)? {
        if facts_at(&target.parent, &target.name).is_ok_and(|now| same_file(&now, &wanted)) {
            return Ok(());
        }
        unmount_all(target)?;
    }
    let directory = FileType::from_raw_mode(wanted.stx_mode.into()) == FileType::Directory;
    // An empty file or directory of a bind that is gone may be of the wrong kind.
    let now = facts_at(&target.parent, &target.name).ok();
    let kind = now.map(|now| FileType::from_raw_mode(now.stx_mode.into()));
    if kind.is_some_and(|kind| (kind == FileType::Directory) != directory) {
        remove_target(target)?;
    }
    if directory {
        make_entry(target, DIR_MODE)?;
    } else {
        // A file can be the target of a file, socket, pipe or device alike.
        let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(FILE_MODE);
        rustix::fs::openat(&target.parent, &target.name, flags, mode)
            .context("create", &target.path)?;
    }
    bind_entry(source.as_fd(), target, Bind::default())
}

/// Unmounts the sub paths of a volume and removes their targets. Directories
/// above go when they are empty. Absent is fine.
pub fn clean(root: &Path, volume: &str) -> Result<(), MountsError> {
    let path = root.join(check_name(root, volume)?);
    let above = match Entry::of(root) {
        Err(error) if error.is_not_found() => return Ok(()),
        above => above?,
    };
    let Some(root) = open_dir(&above)? else { return Ok(()) };
    let volume = Entry::new(root, OsStr::new(volume), path)?;
    if let Some(containers) = open_dir(&volume)? {
        for name in names_in(&containers, &volume.path)? {
            let container = entry_in(&containers, &name, &volume.path)?;
            let Some(targets) = open_dir(&container)? else { continue };
            for name in names_in(&targets, &container.path)? {
                take_away(&entry_in(&targets, &name, &container.path)?)?;
            }
            remove_dir(&container)?;
        }
        remove_dir(&volume)?;
    }
    match remove_dir(&above) {
        Err(error) if matches!(error.errno(), Some(Errno::NOTEMPTY | Errno::EXIST)) => Ok(()),
        result => result,
    }
}

/// Makes a directory in a volume, and those that lead to it, with this mode. One
/// that exists keeps its own. Links are followed while they stay inside.
pub fn make_inside(volume: &Path, path: &Path, mode: u32) -> Result<(), MountsError> {
    open_or_make(volume, path, Some(mode)).map(drop)
}

/// Opens a path in a volume; directories that are missing are made, with the
/// mode of the volume's root if none is given.
fn open_or_make(volume: &Path, path: &Path, mode: Option<u32>) -> Result<OwnedFd, MountsError> {
    let parts = check(volume, path)?;
    let root = Place::follow(volume)?;
    let whole = PathBuf::from_iter(&parts);
    let place = volume.join(&whole);
    let leaves =
        || MountsError::LeavesVolume { volume: volume.to_owned(), sub_path: whole.clone() };
    match open_within(&root, &whole) {
        Err(Errno::NOENT) => {}
        Err(Errno::XDEV) => return Err(leaves()),
        opened => return opened.context(OPEN, &place),
    }
    let mode = match mode {
        Some(mode) => mode,
        None => u32::from(facts(&root).context("look at", volume)?.stx_mode) & 0o7777,
    };
    // The longest part that exists, with its links, then only new directories.
    for known in (0..parts.len()).rev() {
        let prefix = PathBuf::from_iter(&parts[..known]);
        let mut dir = match open_within(&root, &prefix) {
            Err(Errno::NOENT) => continue,
            Err(Errno::XDEV) => return Err(leaves()),
            opened => opened.context(OPEN, &volume.join(&prefix))?,
        };
        for part in &parts[known..] {
            dir = make_new(&dir, part, &place, mode)?;
        }
        return Ok(dir);
    }
    Err(MountsError::call(OPEN, volume, Errno::NOENT))
}

/// Follows links that stay within the root. Directories are tried first, as that
/// also triggers automounts; no content is opened, as a pipe would block.
fn open_within(root: &Place, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match resolve(root, path, flags | OFlags::DIRECTORY, WITHIN) {
        Err(Errno::NOTDIR) => resolve(root, path, flags, WITHIN),
        opened => opened,
    }
}

/// Makes one directory, or opens one that another has made just now, which then
/// keeps its mode. A link that leads nowhere is an error.
fn make_new(dir: &OwnedFd, name: &OsStr, path: &Path, mode: u32) -> Result<OwnedFd, MountsError> {
    let made = match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o777)) {
        Err(Errno::EXIST) => false,
        result => result.map(|()| true).context("create directory", path)?,
    };
    let made_dir = open_inside(dir, name, LIST).context(OPEN, path)?;
    if made {
        rustix::fs::fchmod(&made_dir, Mode::from_raw_mode(mode))
            .context("set the mode of", path)?;
    }
    Ok(made_dir)
}

/// The parts of a path that stays inside by its text alone.
fn check<'a>(volume: &Path, path: &'a Path) -> Result<Vec<&'a OsStr>, MountsError> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                let (volume, sub_path) = (volume.to_owned(), path.to_owned());
                return Err(MountsError::LeavesVolume { volume, sub_path });
            }
            Component::RootDir | Component::Prefix(_) => {
                return Err(MountsError::bad_path(path, "is absolute, and a sub path is relative"));
            }
        }
    }
    Ok(parts)
}

fn check_name<'a>(root: &Path, name: &'a str) -> Result<&'a str, MountsError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(MountsError::bad_path(&root.join(name), "does not end in one plain name"));
    }
    Ok(name)
}

/// Makes the directories above the target, and names them from the top.
fn make_above(sub_path: &SubPath<'_>) -> Result<(Vec<Entry>, Entry), MountsError> {
    for name in sub_path.target {
        check_name(sub_path.root, name)?;
    }
    let mut above = Vec::new();
    let mut entry = lead_to(sub_path.root)?;
    for name in sub_path.target {
        let dir = make_entry(&entry, DIR_MODE)?;
        let path = entry.path.join(name);
        above.push(entry);
        entry = Entry::new(dir, OsStr::new(name), path)?;
    }
    Ok((above, entry))
}

/// Unmounts a target and removes it.
fn take_away(target: &Entry) -> Result<(), MountsError> {
    unmount_all(target)?;
    remove_target(target)
}

fn unmount_all(target: &Entry) -> Result<(), MountsError> {
    for _ in 0..STACKED_MAX {
        if unmount_entry(target)? == Unmounted::WasNot {
            return Ok(());
        }
    }
    Err(MountsError::Busy { path: target.path.clone() })
}

/// Removes an empty file or directory; never what is in it.
fn remove_target(target: &Entry) -> Result<(), MountsError> {
    match rustix::fs::unlinkat(&target.parent, &target.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => remove_dir(target),
        Err(Errno::BUSY) => Err(MountsError::mount_inside(&target.path)),
        Err(errno) => Err(errno).context("remove", &target.path),
    }
}

fn remove_dir(entry: &Entry) -> Result<(), MountsError> {
    match rustix::fs::unlinkat(&entry.parent, &entry.name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(MountsError::mount_inside(&entry.path)),
        Err(errno) => Err(errno).context("remove", &entry.path),
    }
}

fn open_dir(entry: &Entry) -> Result<Option<OwnedFd>, MountsError> {
    match entry.open(LIST) {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(Some).context(OPEN, &entry.path),
    }
}

fn entry_in(dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<Entry, MountsError> {
    let dir = dir.try_clone().map_err(|_| Errno::MFILE).context("hold open", path)?;
    Entry::new(dir, name, path.join(name))
}

/// Names in a directory that only the agent writes to.
fn names_in(dir: &OwnedFd, path: &Path) -> Result<Vec<OsString>, MountsError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).context("list", path)? {
        let entry = entry.context("list", path)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
