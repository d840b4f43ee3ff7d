//! Giving a volume to a group: fsGroup.
//!
//! Children before parents, so a root that has the group vouches for all below
//! it. Changes group and mode, never the owner. Never follows a link, never
//! leaves the mount. Upstream: pkg/volume/volume_linux.go.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, Statx};
use rustix::io::Errno;

use crate::error::{Context, MountsError};
use crate::place::{Place, facts, through_proc};
use crate::walk::{At, Visitor, open_leaf, walk};

/// The group, and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsGroup {
    /// Its number.
    pub gid: u32,
    /// Whether it may only read.
    pub read_only: bool,
}

impl FsGroup {
    /// Permissions a file, or a directory, must at least have.
    fn mask(self, directory: bool) -> u32 {
        let files = if self.read_only { 0o440 } else { 0o660 };
        if directory { files | 0o110 | 0o2000 } else { files }
    }

    /// Whether an open root directory shows that nothing needs a change.
    fn has(self, root: &Statx) -> bool {
        let mask = self.mask(true);
        root.stx_gid == self.gid && u32::from(root.stx_mode) & mask == mask
    }
}

/// When to go through a whole volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangePolicy {
    /// Each time.
    Always,
    /// Only if the root does not have the group and its permissions.
    OnRootMismatch,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owned {
    /// Whether the root alone showed that there is nothing to do.
    pub skipped: bool,
    /// Files and directories visited.
    pub processed: u64,
    /// Those whose group or mode could not be changed.
    pub failed: u64,
    /// Why, for the first of them; to be logged.
    pub first_failure: Option<MountsError>,
}

/// Gives a directory and all below it to a group. `progress` hears after each file how
/// many have been visited: a slow disk may take seconds for one.
pub fn own(
    dir: &Path,
    group: FsGroup,
    policy: ChangePolicy,
    progress: &mut dyn FnMut(u64),
) -> Result<Owned, MountsError> {
    let place = Place::directory(dir)?;
    let root = facts(&place).context("look at", dir)?;
    if policy == ChangePolicy::OnRootMismatch && group.has(&root) {
        return Ok(Owned { skipped: true, ..Owned::default() });
    }
    own_open(place.as_fd(), dir, group, progress)
}

pub(crate) fn own_open(
    dir: BorrowedFd<'_>,
    path: &Path,
    group: FsGroup,
    progress: &mut dyn FnMut(u64),
) -> Result<Owned, MountsError> {
    let mut change = Change { group, owned: Owned::default(), progress };
    walk(dir, path, &mut change)?;
    Ok(change.owned)
}

struct Change<'a> {
    group: FsGroup,
    owned: Owned,
    progress: &'a mut dyn FnMut(u64),
}

impl Change<'_> {
    fn note(&mut self, at: &At<'_>, result: Result<(), (&'static str, Errno)>) -> ControlFlow<()> {
        self.owned.processed += 1;
        if let Err((operation, errno)) = result {
            self.owned.failed += 1;
            let first = &mut self.owned.first_failure;
            first.get_or_insert_with(|| at.error(operation, errno));
        }
        (self.progress)(self.owned.processed);
        ControlFlow::Continue(())
    }

    /// The mode is that from before: a change of group may drop bits from it.
    fn change(&self, fd: BorrowedFd<'_>, facts: &Statx) -> Result<(), (&'static str, Errno)> {
        let chown = || {
            let gid = Some(Gid::from_raw(self.group.gid));
            rustix::fs::chownat(fd, c"", None, gid, AtFlags::EMPTY_PATH)
        };
        let regroup = facts.stx_gid != self.group.gid;
        let grouped = if regroup { chown() } else { Ok(()) };
        let kind = FileType::from_raw_mode(facts.stx_mode.into());
        let before = u32::from(facts.stx_mode) & 0o7777;
        let mode = before | self.group.mask(kind == FileType::Directory);
        let chmod = || rustix::fs::chmod(through_proc(fd), Mode::from_raw_mode(mode));
        // A link's mode means nothing, and changing it would change its target's.
        let moded = match kind {
            FileType::Symlink => Ok(()),
            _ if mode == before && !(regroup && mode & 0o6000 != 0) => Ok(()),
            _ => chmod(),
        };
        grouped.map_err(|errno| ("change the group of", errno))?;
        moded.map_err(|errno| ("set the mode of", errno))
    }
}

impl Visitor for Change<'_> {
    fn leaf(&mut self, at: &At<'_>, _: &Statx) -> Result<ControlFlow<()>, MountsError> {
        let Some(fd) = open_leaf(at)? else { return Ok(ControlFlow::Continue(())) };
        // Only the descriptor's own facts count: the name may mean another file by now.
        let facts = facts(&fd).map_err(|errno| at.error("look at", errno))?;
        let result = self.change(fd.as_fd(), &facts);
        Ok(self.note(at, result))
    }

    fn directory(&mut self, at: &At<'_>, facts: &Statx) -> Result<ControlFlow<()>, MountsError> {
        let result = self.change(at.dir, facts);
        Ok(self.note(at, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_upstreams() {
        let masks = |read_only| {
            let group = FsGroup { gid: 7, read_only };
            (group.mask(false), group.mask(true))
        };
        assert_eq!(masks(false), (0o660, 0o2770));
        assert_eq!(masks(true), (0o440, 0o2550));
    }
}
