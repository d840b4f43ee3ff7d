//! Removal of a tree in which there should be nothing but directories.
//!
//! Takes away directories one by one, and none that has anything in it: what is found
//! there may be somebody's data. Every step is relative to an open directory and passes
//! neither links nor mounts. Upstream: pkg/util/removeall (RemoveDirsOneFilesystem).

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir};
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Entry, LIST, open_inside};

/// Deeper than what agents make.
const DEPTH_MAX: usize = 32;

/// Removes directories below a path, and that itself; absent is fine. A file, a link or a
/// mount in it is an error that names it; directories beside it may be gone by then.
pub fn remove_dirs(path: &Path) -> Result<(), MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(()),
        entry => {
            let entry = entry?;
            remove_in(entry.parent.as_fd(), &entry.name, path, 0)
        }
    }
}

fn remove_in(
    parent: BorrowedFd<'_>,
    name: &CStr,
    path: &Path,
    depth: usize,
) -> Result<(), MountsError> {
    if depth > DEPTH_MAX {
        return Err(MountsError::TooDeep { path: path.to_owned(), limit: DEPTH_MAX });
    }
    let dir = match open_inside(parent, name, LIST) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(MountsError::FileInside { path: path.to_owned() });
        }
        Err(Errno::XDEV) => return Err(MountsError::mount_inside(path)),
        dir => dir.context(OPEN, path)?,
    };
    let mut listing = Dir::read_from(&dir).context("list", path)?;
    while let Some(entry) = listing.read() {
        let entry = entry.context("list", path)?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            let below = path.join(OsStr::from_bytes(name.to_bytes()));
            remove_in(dir.as_fd(), name, &below, depth + 1)?;
        }
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(MountsError::mount_inside(path)),
        result => result.context("remove the directory", path),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_go_and_files_and_links_stay() {
        let temp = tempfile::tempdir().expect("a directory");
        let root = temp.path().join("volumes");
        remove_dirs(&root).expect("absent is fine");
        fs::create_dir_all(root.join("kind/name/deeper")).expect("directories");
        remove_dirs(&root).expect("nothing in it");
        assert!(!root.exists());
        let elsewhere = temp.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("empty")).expect("directories");
        for (name, link) in [("file", false), ("link", true)] {
            fs::create_dir_all(root.join("kind/name")).expect("directories");
            let path = root.join("kind/name").join(name);
            match link {
                true => symlink(&elsewhere, &path).expect("a link"),
                false => fs::write(&path, "data").expect("a file"),
            }
            let error = remove_dirs(&root).expect_err("something is left").to_string();
            let wanted = format!("will not remove {}: it is no directory", path.display());
            assert!(error.starts_with(&wanted), "{error}");
            assert!(fs::symlink_metadata(&path).is_ok() && elsewhere.join("empty").exists());
            fs::remove_file(&path).expect("removed");
        }
    }
}
