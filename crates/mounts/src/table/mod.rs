//! The mount table of this process, and whether a path is a mount point.
//!
//! Reads /proc/self/mountinfo, up to a limit. Changes nothing.
//! Upstream: k8s.io/mount-utils, mount_helper_unix.go and mount_linux.go.

mod parse;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatxAttributes;
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Entry, NAME, facts_at, mount_id, through_proc};

pub use parse::{Mount, parse};

/// A hundred thousand mounts of ordinary length; more is no table to walk.
const TABLE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const TABLE: &str = "/proc/self/mountinfo";

/// All mounts, in the kernel's order.
pub fn read() -> Result<Vec<Mount>, MountsError> {
    let path = Path::new(TABLE);
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .context("read", path)?;
    if text.len() as u64 > TABLE_BYTES_MAX {
        return Err(MountsError::TooLong { path: path.to_owned(), limit: TABLE_BYTES_MAX });
    }
    parse(&text)
}

/// Mount points below a directory, deepest first, which is the order to unmount
/// them in; the directory itself is not among them. None if it does not exist.
pub fn below(dir: &Path) -> Result<Vec<PathBuf>, MountsError> {
    match Entry::of(dir) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        entry => below_entry(&entry?),
    }
}

pub(crate) fn below_entry(entry: &Entry) -> Result<Vec<PathBuf>, MountsError> {
    match entry.open(NAME) {
        Err(Errno::NOENT) => Ok(Vec::new()),
        // A mount whose server is gone cannot be opened, yet has its line.
        Err(errno) if is_broken(errno) => Ok(points_below(&read()?, &real_path(entry)?)),
        opened => {
            let real = real_path_of(&opened.context(OPEN, &entry.path)?, &entry.path)?;
            Ok(points_below(&read()?, &real))
        }
    }
}

/// Other mount points, anywhere, of the file system that is mounted on exactly this
/// name. None if nothing is.
pub fn sharers(path: &Path) -> Result<Vec<PathBuf>, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        entry => Ok(sharers_of(&read()?, &real_path(&entry?)?)),
    }
}

/// Other mount points of the same directory of the file system that is mounted on exactly
/// this name.
pub fn references(path: &Path) -> Result<Vec<PathBuf>, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        entry => Ok(references_of(&read()?, &real_path(&entry?)?)),
    }
}

/// The value of an option of the file system that is mounted on exactly this name.
pub fn option_of(path: &Path, name: &str) -> Result<Option<String>, MountsError> {
    let point = match Entry::of(path) {
        Err(error) if error.is_not_found() => return Ok(None),
        entry => real_path(&entry?)?,
    };
    let all = read()?;
    // The last one lies on top.
    let own = all.iter().rev().find(|mount| mount.point == point);
    Ok(own.and_then(|mount| mount.super_option(name)).map(str::to_owned))
}

fn sharers_of(mounts: &[Mount], point: &Path) -> Vec<PathBuf> {
    // The last one lies on top.
    let Some(own) = mounts.iter().rev().find(|mount| mount.point == point) else {
        return Vec::new();
    };
    let others = mounts.iter().filter(|mount| mount.device == own.device && mount.point != point);
    others.map(|mount| mount.point.clone()).collect()
}

fn references_of(mounts: &[Mount], point: &Path) -> Vec<PathBuf> {
    // The last one lies on top.
    let Some(own) = mounts.iter().rev().find(|mount| mount.point == point) else {
        return Vec::new();
    };
    let same = |mount: &&Mount| mount.device == own.device && mount.root == own.root;
    let others = mounts.iter().filter(same).filter(|mount| mount.point != point);
    others.map(|mount| mount.point.clone()).collect()
}

/// Whether something is mounted on exactly this name. A link is none, nor is a
/// path that does not exist.
pub fn is_mount_point(path: &Path) -> Result<bool, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(false),
        entry => is_mounted(&entry?),
    }
}

pub(crate) fn is_mounted(entry: &Entry) -> Result<bool, MountsError> {
    let facts = match facts_at(&entry.parent, &entry.name) {
        Ok(facts) => facts,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(errno) if is_broken(errno) => {
            let real = real_path(entry)?;
            return Ok(read()?.iter().any(|mount| mount.point == real));
        }
        Err(errno) => return Err(MountsError::call("look at", &entry.path, errno)),
    };
    if facts.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Linux 5.6 and 5.7 do not say so.
    let opened = entry.open(NAME).context(OPEN, &entry.path)?;
    Ok(mount_id(&opened, &entry.path)? != mount_id(&entry.parent, &entry.path)?)
}

/// Errors of a mount whose device, server or daemon has gone away.
pub(crate) fn is_broken(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOTCONN
            | Errno::STALE
            | Errno::IO
            | Errno::ACCESS
            | Errno::HOSTDOWN
            | Errno::TIMEDOUT
    )
}

/// The path of an entry as the table has it.
fn real_path(entry: &Entry) -> Result<PathBuf, MountsError> {
    let parent = real_path_of(&entry.parent, &entry.path)?;
    Ok(parent.join(OsStr::from_bytes(entry.name.to_bytes())))
}

fn real_path_of(fd: impl AsFd, path: &Path) -> Result<PathBuf, MountsError> {
    let real = rustix::fs::readlink(through_proc(fd.as_fd()), Vec::new())
        .context("read the real path of", path)?;
    Ok(PathBuf::from(OsString::from_vec(real.into_bytes())))
}

fn points_below(mounts: &[Mount], dir: &Path) -> Vec<PathBuf> {
    // Later mounts lie on top of earlier ones.
    let mut points: Vec<PathBuf> = mounts
        .iter()
        .rev()
        .map(|mount| mount.point.clone())
        .filter(|point| point.starts_with(dir) && point != dir)
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_below_come_deepest_first_and_by_whole_names() {
        let line = |point: &str| format!("1 1 0:1 / {point} rw - t s rw\n");
        let text: String = ["/a", "/a/b", "/ab", "/a/b/c", "/a/d"].map(line).concat();
        let points = points_below(&parse(text.as_bytes()).unwrap(), Path::new("/a"));
        assert_eq!(points, ["/a/b/c", "/a/d", "/a/b"].map(PathBuf::from));
    }

    #[test]
    fn parts_of_a_file_system_share_it() {
        let line = |(device, point): (&str, &str)| format!("1 1 {device} /x {point} rw - t s rw\n");
        let table = [("8:1", "/a"), ("8:2", "/b"), ("8:1", "/c"), ("8:2", "/a"), ("8:2", "/a")];
        let mounts = parse(table.map(line).concat().as_bytes()).unwrap();
        assert_eq!(sharers_of(&mounts, Path::new("/a")), [PathBuf::from("/b")]);
        assert_eq!(sharers_of(&mounts, Path::new("/c")), [PathBuf::from("/a")]);
        assert_eq!(sharers_of(&mounts, Path::new("/d")), Vec::<PathBuf>::new());
        assert_eq!(references_of(&mounts, Path::new("/a")), [PathBuf::from("/b")]);
        let part = "1 1 8:2 /y /e rw - t s rw\n";
        let mounts = parse((table.map(line).concat() + part).as_bytes()).unwrap();
        assert_eq!(references_of(&mounts, Path::new("/e")), Vec::<PathBuf>::new());
        assert_eq!(sharers_of(&mounts, Path::new("/e")).len(), 3, "another part of the same");
        assert_eq!(references(Path::new("/nowhere/at/all")).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(sharers(Path::new("/nowhere/at/all")).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn this_machine_has_a_table_and_a_root() {
        assert!(read().unwrap().iter().any(|mount| mount.point == Path::new("/proc")));
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/self")).unwrap());
        assert!(!is_mount_point(Path::new("/nowhere/at/all")).unwrap());
    }
}
