//! Bind mounts from open descriptors, and the shared mount of the root directory.
//!
//! The source is a descriptor and the target is resolved once: nothing that is
//! swapped meanwhile is bound, or bound upon. Upstream: k8s.io/mount-utils and
//! pkg/volume/util/hostutil (MakeRShared).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountFlags, MountPropagationFlags, OpenTreeFlags};

use crate::error::{Context, MountsError, OPEN};
use crate::mount::{Options, Target, split_options};
use crate::place::{Entry, NAME, Place, mount_id, through_proc};
use crate::table;
use crate::unmount::unmount_entry;

/// How to bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bind {
    /// Whether mounts below the source come along.
    pub recursive: bool,
    /// Whether the bind is read-only; mounts that come along stay as they are.
    /// The target is writable for an instant, so nobody should use it yet.
    pub read_only: bool,
}

/// Mounts an open file or directory on a path of the same kind.
pub fn bind(source: &Place, target: &Path, how: Bind) -> Result<(), MountsError> {
    bind_entry(source.as_fd(), &Entry::of(target)?, how)
}

pub(crate) fn bind_entry(
    source: BorrowedFd<'_>,
    target: &Entry,
    how: Bind,
) -> Result<(), MountsError> {
    let place = Target::at(target)?;
    let tree = clone_tree(source, how.recursive, &target.path)?;
    place.attach(&tree).context("bind to", &target.path)?;
    if how.read_only {
        // Undone by the descriptor's own mount, so the descriptor goes first.
        if let Err(error) = make_read_only(&tree, &target.path) {
            drop(tree);
            unmount_entry(target)?;
            return Err(error);
        }
    }
    Ok(())
}

fn clone_tree(
    source: BorrowedFd<'_>,
    recursive: bool,
    path: &Path,
) -> Result<OwnedFd, MountsError> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    match rustix::mount::open_tree(source, c"", flags) {
        Err(Errno::NOSYS) => Err(MountsError::OldKernel { call: "open_tree" }),
        tree => tree.context("take the source of the bind to", path),
    }
}

/// Has what is bound to exactly this name obey mount options that restrict a mount, beside
/// what restricts it already. Returns those that are of a file system, which a bind does
/// not make.
pub fn restrict(target: &Path, options: &[String]) -> Result<Vec<String>, MountsError> {
    let Some(Options { flags, read_only, of_fs }) = split_options(options) else {
        let why = "has mount options of another kind of mount than a bind";
        return Err(MountsError::bad_path(target, why));
    };
    let mut more = MountFlags::empty();
    more.set(MountFlags::RDONLY, read_only);
    for (attribute, flag) in [
        (MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
        (MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
        (MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
        (MountAttrFlags::MOUNT_ATTR_STRICTATIME, MountFlags::STRICTATIME),
        (MountAttrFlags::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
    ] {
        more.set(flag, flags.contains(attribute));
    }
    if !more.is_empty() {
        let entry = Entry::of(target)?;
        let mount = entry.open(NAME).context(OPEN, target)?;
        add_flags(&mount, target, more, "set mount options of")?;
    }
    let text = |(key, value): (String, Option<String>)| match value {
        Some(value) => format!("{key}={value}"),
        None => key,
    };
    Ok(of_fs.into_iter().map(text).collect())
}

/// `mount` is the root of its mount.
fn make_read_only(mount: &OwnedFd, path: &Path) -> Result<(), MountsError> {
    add_flags(mount, path, MountFlags::RDONLY, "make read-only")
}

/// What else restricts the mount is kept.
fn add_flags(
    mount: &OwnedFd,
    path: &Path,
    more: MountFlags,
    operation: &'static str,
) -> Result<(), MountsError> {
    let now = rustix::fs::fstatvfs(mount).context(operation, path)?.f_flag;
    let mut flags = MountFlags::BIND | more;
    for (has, flag) in [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ] {
        if now.contains(has) {
            flags.insert(flag);
        }
    }
    // Of when files are read, the kernel keeps what is said, unless something is said.
    let times = MountFlags::NOATIME | MountFlags::STRICTATIME | MountFlags::NODIRATIME;
    if more.intersects(times) {
        if now.contains(StatVfsMountFlags::NODIRATIME) {
            flags.insert(MountFlags::NODIRATIME);
        }
        if now.contains(StatVfsMountFlags::NOATIME) && !more.contains(MountFlags::STRICTATIME) {
            flags.insert(MountFlags::NOATIME);
        }
    }
    rustix::mount::mount_remount(through_proc(mount.as_fd()), flags, c"").context(operation, path)
}

/// Makes mounts below a directory appear in the mount namespaces that got it
/// from this one, and the reverse: if its mount is not shared, the directory is
/// mounted on itself, shared. True if that was needed.
pub fn make_shared(dir: &Path) -> Result<bool, MountsError> {
    let place = Place::follow(dir)?;
    let id = mount_id(&place, dir)?;
    if table::read()?.iter().any(|mount| mount.id == id && mount.shared.is_some()) {
        return Ok(false);
    }
    let tree = clone_tree(place.as_fd(), true, dir)?;
    Target::from(place).attach(&tree).context("bind to itself", dir)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    rustix::mount::mount_change(through_proc(tree.as_fd()), shared).context("share", dir)?;
    Ok(true)
}
