//! How much a directory holds, and how much its file system could.
//!
//! Reads facts, never content. Stays in the mount it starts in.
//! Upstream: pkg/volume/util/fs (DiskUsage, Info).

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::Statx;

use crate::error::{Context, MountsError};
use crate::place::{Place, identity};
use crate::walk::{At, Visitor, walk};

/// Files with several names that are remembered. Beyond it each name counts,
/// which harms only who made so many.
const LINKED_MAX: usize = 1_000_000;

/// What a tree takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of allocated blocks.
    pub bytes: u64,
    /// Files and directories, the root included; several names of one file count once.
    pub inodes: u64,
}

/// Measures a directory.
pub fn usage(dir: &Path) -> Result<Usage, MountsError> {
    measure(dir, &mut |_| {})
}

/// The same; `progress` hears after each file how many have been visited.
pub fn measure(dir: &Path, progress: &mut dyn FnMut(u64)) -> Result<Usage, MountsError> {
    let place = Place::directory(dir)?;
    let mut count = Count { usage: Usage::default(), linked: HashSet::new(), visited: 0, progress };
    walk(place.as_fd(), dir, &mut count)?;
    Ok(count.usage)
}

struct Count<'a> {
    usage: Usage,
    linked: HashSet<(u32, u32, u64)>,
    visited: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Count<'_> {
    fn visit(&mut self) -> ControlFlow<()> {
        self.visited += 1;
        (self.progress)(self.visited);
        ControlFlow::Continue(())
    }

    fn add(&mut self, facts: &Statx) {
        // Blocks are of 512 bytes whatever those of the file system are.
        self.usage.bytes = self.usage.bytes.saturating_add(facts.stx_blocks.saturating_mul(512));
        self.usage.inodes += 1;
    }
}

impl Visitor for Count<'_> {
    fn leaf(&mut self, _: &At<'_>, facts: &Statx) -> Result<ControlFlow<()>, MountsError> {
        let known = facts.stx_nlink > 1
            && if self.linked.len() < LINKED_MAX {
                !self.linked.insert(identity(facts))
            } else {
                self.linked.contains(&identity(facts))
            };
        if !known {
            self.add(facts);
        }
        Ok(self.visit())
    }

    fn directory(&mut self, _: &At<'_>, facts: &Statx) -> Result<ControlFlow<()>, MountsError> {
        self.add(facts);
        Ok(self.visit())
    }
}

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that others than root may still use.
    pub available: u64,
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Inodes in all; 0 where they are made on demand.
    pub inodes: u64,
    /// Inodes left.
    pub inodes_free: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

/// Room of the file system a path is on.
pub fn space(path: &Path) -> Result<Space, MountsError> {
    let place = Place::follow(path)?;
    let stat = rustix::fs::fstatfs(&place).context("measure the file system of", path)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or_default();
    Ok(Space {
        available: stat.f_bavail.saturating_mul(block),
        capacity: stat.f_blocks.saturating_mul(block),
        used: stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn blocks_are_summed_and_hard_links_count_once() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/file"), vec![7; 100_000]).unwrap();
        fs::hard_link(dir.join("sub/file"), dir.join("again")).unwrap();
        symlink("/", dir.join("root")).unwrap();
        let blocks = |name: &str| dir.join(name).symlink_metadata().unwrap().blocks();
        let wanted = blocks("") + blocks("sub") + blocks("sub/file") + blocks("root");
        assert_eq!(usage(dir).unwrap(), Usage { bytes: wanted * 512, inodes: 4 });
        assert!(wanted * 512 >= 100_000);
    }

    #[test]
    fn a_file_system_has_room() {
        let temp = tempfile::tempdir().unwrap();
        let space = space(temp.path()).unwrap();
        assert!(space.capacity >= space.used && space.capacity >= space.available);
        assert_eq!(space.inodes, space.inodes_free + space.inodes_used);
        assert!(space.capacity > 0);
    }
}
