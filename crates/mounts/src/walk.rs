//! A walk through a tree that others may be changing: everything in a
//! directory before the directory itself, in no order.
//!
//! Holds few descriptors and no lists, whatever the shape of the tree: of the levels
//! above it remembers names and facts. Never follows a link and never enters another
//! mount.

use std::ffi::{CStr, CString, OsStr};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, ResolveFlags, Statx};
use rustix::io::Errno;

use crate::error::{Context, MountsError, OPEN};
use crate::place::{LIST, facts, facts_at, open_inside, resolve, same_file, told_mount};

/// Directories held open at once. Those further up are opened anew on the way
/// back, if they are still the same.
const OPEN_MAX: usize = 32;
/// Far deeper than a path could name, because whoever fills a volume need not use paths,
/// and must not hide anything by that. A level takes up to 600 bytes: 60 MB in all.
const DEPTH_MAX: usize = 100_000;
/// The directory above, in the same mount.
const ABOVE: ResolveFlags =
    ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// What to do at each step.
pub(crate) trait Visitor {
    /// At something that is not a directory, or was not one when looked at.
    fn leaf(&mut self, at: &At<'_>, facts: &Statx) -> Result<ControlFlow<()>, MountsError>;

    /// At a directory, after everything below it.
    fn directory(&mut self, at: &At<'_>, facts: &Statx) -> Result<ControlFlow<()>, MountsError>;
}

/// Where a walk is.
pub(crate) struct At<'a> {
    /// For a leaf the directory that holds it, else the directory itself.
    pub(crate) dir: BorrowedFd<'a>,
    /// The leaf's name.
    pub(crate) name: &'a CStr,
    root: &'a Path,
    levels: &'a [Level],
}

impl At<'_> {
    /// The path from the root of the walk.
    pub(crate) fn relative(&self) -> PathBuf {
        let above = self.levels.iter().skip(1).map(|level| level.name.as_c_str());
        let leaf = (!self.name.is_empty()).then_some(self.name);
        above.chain(leaf).map(|name| OsStr::from_bytes(name.to_bytes())).collect()
    }

    /// Names the whole path, which takes a while to put together.
    pub(crate) fn error(&self, operation: &'static str, errno: Errno) -> MountsError {
        MountsError::call(operation, &self.root.join(self.relative()), errno)
    }
}

struct Level {
    name: CString,
    facts: Statx,
    dir: Option<Dir>,
    /// Where the listing goes on.
    cookie: Option<i64>,
}

impl Level {
    /// Opens this directory from one in it, which takes as long at any depth. If that one
    /// was moved away meanwhile, it stays closed.
    fn climb(&mut self, from: &Dir) -> Result<(), Errno> {
        let Ok(above) = resolve(from.fd()?, c"..", LIST, ABOVE) else { return Ok(()) };
        let found = facts(&above)?;
        let same_mount = told_mount(&found) == told_mount(&self.facts);
        if same_mount && same_file(&found, &self.facts) {
            self.dir = Some(self.listing(above)?);
        }
        Ok(())
    }

    /// The listing of this directory from where it was left.
    fn listing(&self, opened: OwnedFd) -> Result<Dir, Errno> {
        let mut dir = Dir::new(opened)?;
        if let Some(cookie) = self.cookie {
            dir.seek(cookie)?;
        }
        Ok(dir)
    }
}

/// Walks through the tree at an open directory.
pub(crate) fn walk(
    root: BorrowedFd<'_>,
    path: &Path,
    visitor: &mut dyn Visitor,
) -> Result<(), MountsError> {
    walk_down(root, path, visitor, DEPTH_MAX)
}

fn walk_down(
    root: BorrowedFd<'_>,
    path: &Path,
    visitor: &mut dyn Visitor,
    depth_max: usize,
) -> Result<(), MountsError> {
    let mut walk = Walk { root, path, depth_max, levels: Vec::new() };
    let first = open_inside(root, c".", LIST).context(OPEN, path)?;
    walk.enter(c"".to_owned(), first)?;
    loop {
        walk.reopen()?;
        let flow = match walk.next_name()? {
            Some(name) => walk.step(name, visitor)?,
            None => walk.leave(visitor)?,
        };
        if flow.is_break() || walk.levels.is_empty() {
            return Ok(());
        }
    }
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    path: &'a Path,
    depth_max: usize,
    levels: Vec<Level>,
}

impl Walk<'_> {
    fn step(
        &mut self,
        name: CString,
        visitor: &mut dyn Visitor,
    ) -> Result<ControlFlow<()>, MountsError> {
        let Some(level) = self.levels.last() else { return Ok(ControlFlow::Continue(())) };
        let Some(dir) = &level.dir else { return Ok(ControlFlow::Continue(())) };
        let dir = dir.fd().context(OPEN, self.path)?;
        let at = At { dir, name: &name, root: self.path, levels: &self.levels };
        let facts = match facts_at(dir, &name) {
            Err(Errno::NOENT) => return Ok(ControlFlow::Continue(())),
            facts => facts.map_err(|errno| at.error("look at", errno))?,
        };
        if told_mount(&facts) != told_mount(&level.facts) {
            return Ok(ControlFlow::Continue(()));
        }
        if FileType::from_raw_mode(facts.stx_mode.into()) != FileType::Directory {
            return visitor.leaf(&at, &facts);
        }
        match open_inside(dir, name.as_c_str(), LIST) {
            // Gone, swapped for something else, or mounted upon, just now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
            opened => {
                let opened = opened.map_err(|errno| at.error(OPEN, errno))?;
                self.enter(name, opened)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn enter(&mut self, name: CString, dir: OwnedFd) -> Result<(), MountsError> {
        if self.levels.len() >= self.depth_max {
            let (path, limit) = (self.path.to_owned(), self.depth_max);
            return Err(MountsError::TooDeep { path, limit });
        }
        if let Some(oldest) = self.levels.len().checked_sub(OPEN_MAX) {
            self.levels[oldest].dir = None;
        }
        let facts = facts(&dir).context("look at", self.path)?;
        let dir = Some(Dir::new(dir).context("list", self.path)?);
        self.levels.push(Level { name, facts, dir, cookie: None });
        Ok(())
    }

    fn leave(&mut self, visitor: &mut dyn Visitor) -> Result<ControlFlow<()>, MountsError> {
        let mut flow = ControlFlow::Continue(());
        if let Some(Level { dir: Some(dir), facts, .. }) = self.levels.last() {
            let dir = dir.fd().context(OPEN, self.path)?;
            let at = At { dir, name: c"", root: self.path, levels: &self.levels };
            flow = visitor.directory(&at, facts)?;
        }
        let left = self.levels.pop();
        if let (Some(Level { dir: Some(dir), .. }), Some(level)) = (left, self.levels.last_mut())
            && level.dir.is_none()
        {
            level.climb(&dir).context("list", self.path)?;
        }
        Ok(flow)
    }

    fn next_name(&mut self) -> Result<Option<CString>, MountsError> {
        let Some(Level { dir: Some(dir), cookie, .. }) = self.levels.last_mut() else {
            return Ok(None);
        };
        while let Some(entry) = dir.read() {
            let entry = entry.context("list", self.path)?;
            *cookie = Some(entry.offset());
            if entry.file_name() != c"." && entry.file_name() != c".." {
                return Ok(Some(entry.file_name().to_owned()));
            }
        }
        Ok(None)
    }

    /// Opens the directory the walk has come back to, and some above it. One
    /// that was moved away meanwhile is left out with all in it.
    fn reopen(&mut self) -> Result<(), MountsError> {
        while self.levels.last().is_some_and(|level| level.dir.is_none()) {
            let mut current = open_inside(self.root, c".", LIST).context(OPEN, self.path)?;
            let keep_from = self.levels.len().saturating_sub(OPEN_MAX / 2);
            for index in 0..self.levels.len() {
                let level = &mut self.levels[index];
                if index > 0 {
                    let opened = open_inside(&current, level.name.as_c_str(), LIST);
                    match opened.and_then(|dir| Ok((facts(&dir)?, dir))) {
                        Ok((facts, dir)) if same_file(&facts, &level.facts) => current = dir,
                        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                            self.levels.truncate(index);
                            break;
                        }
                        Err(errno) => return Err(MountsError::call(OPEN, self.path, errno)),
                    }
                }
                if index >= keep_from {
                    let listing = open_inside(&current, c".", LIST).context(OPEN, self.path)?;
                    level.dir = Some(level.listing(listing).context("list", self.path)?);
                }
            }
        }
        Ok(())
    }
}

/// The descriptor of a leaf, if it still is something this walk may touch.
pub(crate) fn open_leaf(at: &At<'_>) -> Result<Option<OwnedFd>, MountsError> {
    match open_inside(at.dir.as_fd(), at.name, crate::place::NAME) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::XDEV) => Ok(None),
        Err(errno) => Err(at.error(OPEN, errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use rustix::fs::{Mode, mkdirat};

    use super::*;
    use crate::place::Place;

    #[derive(Default)]
    struct Record {
        seen: Vec<PathBuf>,
        stop_after: Option<usize>,
    }

    impl Record {
        fn add(&mut self, at: &At<'_>) -> Result<ControlFlow<()>, MountsError> {
            self.seen.push(at.relative());
            let enough = self.stop_after.is_some_and(|limit| self.seen.len() >= limit);
            Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }
    }

    impl Visitor for Record {
        fn leaf(&mut self, at: &At<'_>, _: &Statx) -> Result<ControlFlow<()>, MountsError> {
            self.add(at)
        }
        fn directory(&mut self, at: &At<'_>, _: &Statx) -> Result<ControlFlow<()>, MountsError> {
            self.add(at)
        }
    }

    fn walked(path: &Path, stop_after: Option<usize>) -> Result<Vec<PathBuf>, MountsError> {
        let mut record = Record { stop_after, ..Record::default() };
        walk(Place::directory(path)?.as_fd(), path, &mut record)?;
        Ok(record.seen)
    }

    #[test]
    fn everything_is_visited_once_and_directories_last() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("a/b")).unwrap();
        for file in ["a/b/x", "a/y", "z"] {
            fs::write(temp.path().join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("/etc", temp.path().join("a/link")).unwrap();
        let seen = walked(temp.path(), None).unwrap();
        let wanted = ["", "a", "a/b", "a/b/x", "a/link", "a/y", "z"].map(PathBuf::from);
        assert_eq!(BTreeSet::from_iter(seen.clone()), BTreeSet::from(wanted));
        assert_eq!(seen.len(), 7);
        let place = |path: &str| seen.iter().position(|seen| seen == Path::new(path)).unwrap();
        assert!(place("a/b/x") < place("a/b") && place("a/b") < place("a") && place("") == 6);
    }

    #[test]
    fn a_walk_stops_when_told() {
        let temp = tempfile::tempdir().unwrap();
        for name in 0..10 {
            fs::write(temp.path().join(name.to_string()), "").unwrap();
        }
        assert_eq!(walked(temp.path(), Some(3)).unwrap().len(), 3);
    }

    /// Nests directories deeper than any path, each with files beside the next.
    fn nest(root: &Path, depth: usize, files: &[&str]) {
        let name = "d".repeat(200);
        let mut dir = open_inside(Place::directory(root).unwrap(), c".", LIST).unwrap();
        for _ in 0..depth {
            for file in files {
                let mode = Mode::from_raw_mode(0o600);
                let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
                rustix::fs::openat(&dir, *file, flags, mode).unwrap();
            }
            mkdirat(&dir, name.as_str(), Mode::from_raw_mode(0o700)).unwrap();
            dir = open_inside(&dir, name.as_str(), LIST).unwrap();
        }
    }

    #[test]
    fn deep_trees_need_few_descriptors_and_no_long_paths() {
        let temp = tempfile::tempdir().unwrap();
        nest(temp.path(), 300, &["before", "zafter"]);
        let seen = walked(temp.path(), None).unwrap();
        assert_eq!(seen.len(), 901);
        crate::remove_tree(&temp.path().join("d".repeat(200))).unwrap();
    }

    #[test]
    fn nothing_is_hidden_by_depth() {
        let temp = tempfile::tempdir().unwrap();
        nest(temp.path(), 3_000, &["file"]);
        let mut told = 0;
        let usage = crate::measure(temp.path(), &mut |files| told = files).unwrap();
        assert_eq!((usage.inodes, told), (6_001, 6_001));
        crate::remove_tree(&temp.path().join("d".repeat(200))).unwrap();
    }

    #[test]
    fn a_directory_that_is_moved_away_leads_nowhere_else() {
        /// At the first leaf, moves the deepest directory to the root.
        struct Moves<'a>(&'a Path, Record);
        impl Visitor for Moves<'_> {
            fn leaf(&mut self, at: &At<'_>, _: &Statx) -> Result<ControlFlow<()>, MountsError> {
                fs::rename(self.0.join(at.relative()).parent().unwrap(), self.0.join("moved"))
                    .unwrap();
                self.1.add(at)
            }
            fn directory(
                &mut self,
                at: &At<'_>,
                _: &Statx,
            ) -> Result<ControlFlow<()>, MountsError> {
                self.1.add(at)
            }
        }
        let temp = tempfile::tempdir().unwrap();
        let deep = "d/".repeat(OPEN_MAX + 8);
        fs::create_dir_all(temp.path().join(&deep)).unwrap();
        fs::write(temp.path().join(&deep).join("leaf"), "").unwrap();
        let mut visitor = Moves(temp.path(), Record::default());
        walk(Place::directory(temp.path()).unwrap().as_fd(), temp.path(), &mut visitor).unwrap();
        let dirs = visitor.1.seen.iter().filter(|path| !path.ends_with("leaf")).count();
        assert!(dirs >= OPEN_MAX + 9, "all that led there is visited: {dirs}");
        assert_eq!(visitor.1.seen.last(), Some(&PathBuf::new()), "the root last");
    }

    #[test]
    fn trees_that_nobody_needs_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        nest(temp.path(), 64, &[]);
        let refused = |limit| {
            let root = Place::directory(temp.path()).unwrap();
            walk_down(root.as_fd(), temp.path(), &mut Record::default(), limit)
        };
        assert_eq!(refused(65), Ok(()));
        let error = refused(64).unwrap_err();
        assert!(matches!(error, MountsError::TooDeep { limit: 64, .. }), "{error}");
    }
}
