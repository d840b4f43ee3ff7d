//! The blocking part of the real volumes, where it is more than one call.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mounts::mount::{HugePages, Tmpfs};
use mounts::sub_path::SubPath;
use mounts::{Bind, MountsError, Place, Unmounted};
use rustix::io::Errno;

use super::super::volumes::{SubPathBind, VolumeError};

/// Mounts on one name: one, or a few after crashes at the wrong time.
const STACKED_MAX: usize = 16;

pub(super) fn tmpfs(target: &Path, tmpfs: Tmpfs) -> Result<(), VolumeError> {
    if mounts::table::is_mount_point(target)? {
        return Ok(());
    }
    let noswap = mounts::mount::tmpfs(target, tmpfs)?;
    if !noswap {
        let path = target.display();
        // Users were told when the agent started, if there is swap.
        tracing::debug!(%path, "this kernel may swap the volume out");
    }
    Ok(())
}

pub(super) fn hugetlbfs(target: &Path, pages: HugePages) -> Result<(), VolumeError> {
    if mounts::table::is_mount_point(target)? {
        return Ok(());
    }
    Ok(mounts::mount::hugetlbfs(target, pages)?)
}

pub(super) fn bind(source: &Path, target: &Path, read_only: bool) -> Result<(), VolumeError> {
    if mounts::table::is_mount_point(target)? {
        return Ok(());
    }
    let how = Bind { recursive: false, read_only };
    Ok(mounts::bind(&Place::follow(source)?, target, how)?)
}

pub(super) fn bind_file(source: &Path, target: &Path) -> Result<(), VolumeError> {
    let device = |path: &Path| {
        let facts = std::fs::metadata(path).map_err(|error| failed("look at", path, &error))?;
        Ok::<_, VolumeError>((facts.rdev(), facts.dev(), facts.ino()))
    };
    if mounts::table::is_mount_point(target)? {
        if device(source)? == device(target)? {
            return Ok(());
        }
        // Another device has the name by now.
        mounts::held::release(target)?;
        unmount_all(target)?;
    }
    mark(target)?;
    let how = Bind { recursive: false, read_only: false };
    Ok(mounts::bind(&Place::follow(source)?, target, how)?)
}

pub(super) fn link(target: &Path, link: &Path) -> Result<(), VolumeError> {
    let fail = |error: io::Error| failed("link", link, &error);
    if let Some(dir) = link.parent() {
        mounts::make_dir(dir, 0o750)?;
    }
    match std::fs::read_link(link) {
        Ok(found) if found == target => return Ok(()),
        Ok(_) => unlink(link)?,
        Err(error) if is_absent(&error) => {}
        Err(error) => return Err(fail(error)),
    }
    std::os::unix::fs::symlink(target, link).map_err(fail)
}

pub(super) fn unlink(path: &Path) -> Result<(), VolumeError> {
    match std::fs::remove_file(path) {
        Err(error) if !is_absent(&error) && error.kind() != io::ErrorKind::IsADirectory => {
            Err(failed("remove", path, &error))
        }
        _ => Ok(()),
    }
}

pub(super) fn unmount_all(path: &Path) -> Result<(), VolumeError> {
    for _ in 0..STACKED_MAX {
        if mounts::unmount(path)? == Unmounted::WasNot {
            return Ok(());
        }
    }
    Err(MountsError::Busy { path: path.to_owned() }.into())
}

pub(super) fn bind_sub_path(sub_path: &SubPathBind) -> Result<PathBuf, VolumeError> {
    let index = sub_path.index.to_string();
    Ok(mounts::sub_path::bind(&SubPath {
        volume: &sub_path.volume_path,
        path: &sub_path.path,
        root: &sub_path.root,
        target: [&sub_path.volume, &sub_path.container, &index],
    })?)
}

pub(super) fn exists(path: &Path) -> Result<bool, VolumeError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(failed("look at", path, &error)),
    }
}

pub(super) fn device_size(path: &Path) -> Result<u64, VolumeError> {
    let fail = |error: io::Error| failed("measure", path, &error);
    let mut device = File::open(path).map_err(fail)?;
    device.seek(SeekFrom::End(0)).map_err(fail)
}

pub(super) fn group_of(path: &Path) -> Result<u32, VolumeError> {
    let facts = std::fs::metadata(path).map_err(|error| failed("look at", path, &error))?;
    Ok(facts.gid())
}

pub(super) fn remove_empty_dir(path: &Path) -> Result<(), VolumeError> {
    match std::fs::remove_dir(path) {
        Err(error) if !is_absent(&error) => Err(failed("remove the directory", path, &error)),
        _ => Ok(()),
    }
}

pub(super) fn mark(path: &Path) -> Result<(), VolumeError> {
    if let Some(dir) = path.parent() {
        mounts::make_dir(dir, 0o750)?;
    }
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o640).open(path);
    made.map(drop).map_err(|error| failed("create", path, &error))
}

/// Names of the directories, or of all else.
pub(super) fn names_in(dir: &Path, dirs: bool) -> Result<Vec<String>, VolumeError> {
    let fail = |error: io::Error| failed("list", dir, &error);
    let entries = match std::fs::read_dir(dir) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail)?;
        // A mount whose server is gone has a kind, too: it is in the listing.
        let is_dir = entry.file_type().map_err(fail)?.is_dir();
        // No agent gives a name that is not UTF-8.
        names.extend(entry.file_name().into_string().ok().filter(|_| is_dir == dirs));
    }
    names.sort();
    Ok(names)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn failed(operation: &'static str, path: &Path, error: &io::Error) -> VolumeError {
    let source = Errno::from_io_error(error).unwrap_or(Errno::IO);
    MountsError::Call { operation, path: path.to_owned(), source }.into()
}
