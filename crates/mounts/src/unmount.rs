//! Unmounting of exactly the mount a name shows.
//!
//! Never follows a link in the last name, and never hides a busy mount by
//! detaching it. Upstream: k8s.io/mount-utils, CleanupMountPoint.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::MountsError;
use crate::place::Entry;
use crate::table::is_mounted;

/// What an unmount found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// A mount, which is gone now.
    Done,
    /// No mount.
    WasNot,
}

/// Unmounts the topmost mount on a path; it is fine if there is none.
pub fn unmount(path: &Path) -> Result<Unmounted, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(Unmounted::WasNot),
        entry => unmount_entry(&entry?),
    }
}

/// The same by force: requests to a server that does not answer fail, and so does whoever
/// waits for them. What is in use stays.
pub fn force_unmount(path: &Path) -> Result<Unmounted, MountsError> {
    match Entry::of(path) {
        Err(error) if error.is_not_found() => Ok(Unmounted::WasNot),
        entry => unmount_with(&entry?, UnmountFlags::FORCE),
    }
}

pub(crate) fn unmount_entry(entry: &Entry) -> Result<Unmounted, MountsError> {
    unmount_with(entry, UnmountFlags::empty())
}

fn unmount_with(entry: &Entry, how: UnmountFlags) -> Result<Unmounted, MountsError> {
    match rustix::mount::unmount(entry.through_proc(), UnmountFlags::NOFOLLOW | how) {
        Ok(()) => Ok(Unmounted::Done),
        Err(Errno::NOENT) => Ok(Unmounted::WasNot),
        // Also said of mounts that may not be undone.
        Err(Errno::INVAL) if !is_mounted(entry)? => Ok(Unmounted::WasNot),
        Err(Errno::BUSY) => Err(MountsError::Busy { path: entry.path.clone() }),
        Err(errno) => Err(MountsError::call("unmount", &entry.path, errno)),
    }
}
