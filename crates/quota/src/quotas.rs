//! Directories that their file systems count.
//!
//! Owns which they are in this life of the agent. What it needs to know after a restart
//! is in the project files and on the directories. Upstream: quota_linux.go.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, QuotaError};
use crate::files::ProjectFiles;
use crate::kernel::{Kernel, Linux, Support, Used};
use crate::plan::{Counting, Facts, Step, plan};
use crate::projects::{ProjectId, Projects};

/// Numbers that nobody has listed and that hold files all the same; upstream's limit.
const TRIES: usize = 129;

/// Has file systems count directories.
pub struct Quotas {
    kernel: Box<dyn Kernel>,
    files: ProjectFiles,
    counted: Mutex<BTreeMap<PathBuf, ProjectId>>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new(Box::new(Linux), ProjectFiles::default())
    }
}

impl Quotas {
    /// With this kernel and these project files.
    pub fn new(kernel: Box<dyn Kernel>, files: ProjectFiles) -> Self {
        Self { kernel, files, counted: Mutex::default() }
    }

    /// Has a directory counted from now on, if that is possible. May be said again at any
    /// time. A limit is for those who look: as upstream, the greatest there is stands for
    /// any, so that nothing is ever refused.
    pub fn count(
        &self,
        dir: BorrowedFd<'_>,
        path: &Path,
        limited: bool,
    ) -> Result<Counting, QuotaError> {
        let facts = self.facts(dir, path)?;
        let id = match plan(facts) {
            Step::Leave(why) => return Ok(Counting::Not(why)),
            Step::Keep(id) => id,
            Step::Take { listed, limit_max } => {
                let limit = if limited { limit_max } else { 0 };
                self.take(dir, path, listed, limit)?
            }
        };
        self.lock().insert(path.to_owned(), id);
        Ok(Counting::Counted(id))
    }

    /// What a directory holds; `None` if it is not counted.
    pub fn used(&self, dir: BorrowedFd<'_>, path: &Path) -> Result<Option<Used>, QuotaError> {
        let Some(id) = self.lock().get(path).copied() else { return Ok(None) };
        let used = self.look(dir, path, id);
        if used.is_err() {
            // Who asks again is told that it is not counted, and not the same once more.
            self.lock().remove(path);
        }
        used.map(Some)
    }

    /// A directory is about to go: nothing of it stays behind. `dir` is `None` if it is
    /// gone. May be said again at any time.
    pub fn forget(&self, dir: Option<BorrowedFd<'_>>, path: &Path) -> Result<(), QuotaError> {
        self.lock().remove(path);
        // Most directories have none; the files are neither made nor locked for them.
        let Some(listed) = self.files.read()?.id_of(path) else { return Ok(()) };
        let unlimited = dir.map_or(Ok(()), |dir| self.unlimit(dir, path, listed));
        // As upstream, this is done even if that failed, lest the number stays taken.
        self.files.change(|projects| {
            projects.remove(path);
            Ok(())
        })?;
        unlimited
    }

    fn facts(&self, dir: BorrowedFd<'_>, path: &Path) -> Result<Facts, QuotaError> {
        if path.as_os_str().as_encoded_bytes().contains(&b'\n') {
            return Err(QuotaError::BadPath { path: path.to_owned() });
        }
        let support = self.kernel.support(dir).context("ask for quotas on", path)?;
        let mut facts = Facts { support, project: Default::default(), listed: None, empty: true };
        if matches!(facts.support, Support::Counts { .. }) {
            facts.project = self.kernel.project(dir).context("read the project of", path)?;
            facts.listed = self.files.read()?.id_of(path);
            facts.empty = is_empty(dir).context("list", path)?;
        }
        Ok(facts)
    }

    /// Puts it into a project, which is listed before: a number is never given twice.
    fn take(
        &self,
        dir: BorrowedFd<'_>,
        path: &Path,
        listed: Option<ProjectId>,
        limit: u64,
    ) -> Result<ProjectId, QuotaError> {
        let id = match listed {
            Some(id) => id,
            None => self.files.change(|projects| {
                let id = self.choose(dir, path, projects)?;
                projects.add(path, id);
                Ok(id)
            })?,
        };
        // The limit comes first, so that a directory in its project has all it needs.
        let taken =
            self.kernel.set_limit(dir, id, limit).context("set the quota of", path).and_then(
                |()| self.kernel.set_project(dir, id).context("set the project of", path),
            );
        if taken.is_err() {
            self.files.change(|projects| {
                projects.remove(path);
                Ok(())
            })?;
        }
        taken.map(|()| id)
    }

    /// The first number that neither a file mentions nor any file is in.
    fn choose(
        &self,
        dir: BorrowedFd<'_>,
        path: &Path,
        projects: &Projects,
    ) -> Result<ProjectId, QuotaError> {
        for id in projects.free().take(TRIES) {
            let used = self.kernel.used(dir, id).context("read the quota of a project on", path)?;
            if used == Used::default() {
                return Ok(id);
            }
        }
        Err(QuotaError::NoneFree { path: path.to_owned(), tried: TRIES })
    }

    fn look(&self, dir: BorrowedFd<'_>, path: &Path, id: ProjectId) -> Result<Used, QuotaError> {
        let project = self.kernel.project(dir).context("read the project of", path)?;
        if project.id != id.number() || !project.inherited {
            let (expected, found) = (id.number(), project.id);
            return Err(QuotaError::Moved { path: path.to_owned(), expected, found });
        }
        self.kernel.used(dir, id).context("read the quota of", path)
    }

    /// Takes the limit from a project, unless the directory is in somebody else's.
    fn unlimit(
        &self,
        dir: BorrowedFd<'_>,
        path: &Path,
        listed: ProjectId,
    ) -> Result<(), QuotaError> {
        let support = self.kernel.support(dir).context("ask for quotas on", path)?;
        if !matches!(support, Support::Counts { .. }) {
            return Ok(());
        }
        let project = self.kernel.project(dir).context("read the project of", path)?;
        match project.id == listed.number() {
            true => self.kernel.set_limit(dir, listed, 0).context("remove the quota of", path),
            false => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, ProjectId>> {
        self.counted.lock().expect("counted lock: no code panics while holding it")
    }
}

fn is_empty(dir: BorrowedFd<'_>) -> Result<bool, Errno> {
    // A descriptor of its own: the place in the listing is shared otherwise.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::openat(dir, c".", flags, Mode::empty())?;
    for entry in Dir::new(own)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            return Ok(false);
        }
    }
    Ok(true)
}
