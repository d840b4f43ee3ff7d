//! The project files on the disk, changed by one process at a time.
//!
//! As upstream: both are locked, the new text is written beside the old one and takes its
//! name, and neither may be a link. Other than upstream, a lock on a file that was
//! replaced while waiting for it does not count, and nobody waits for ever.
//! Upstream: pkg/volume/util/fsquota/project.go.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Context, QuotaError};
use crate::projects::Projects;

/// A line is about 150 bytes; a node has some hundred volumes.
const SIZE_MAX: u64 = 16 << 20;
/// How long to wait for somebody else's lock: writing the files takes milliseconds.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
const LOCK_TRIES: u32 = 250;

/// Where the files are.
#[derive(Debug)]
pub struct ProjectFiles {
    dirs: PathBuf,
    names: PathBuf,
    /// Threads of this process wait here rather than for the files' locks.
    turn: Mutex<()>,
}

impl Default for ProjectFiles {
    fn default() -> Self {
        Self::new("/etc/projects".into(), "/etc/projid".into())
    }
}

impl ProjectFiles {
    /// The file that says which directory is in which project, and that of the names.
    pub fn new(dirs: PathBuf, names: PathBuf) -> Self {
        Self { dirs, names, turn: Mutex::new(()) }
    }

    /// What they say now; nothing if there are none.
    pub(crate) fn read(&self) -> Result<Projects, QuotaError> {
        let _turn = self.turn();
        Ok(Projects::parse(&self.text(&self.dirs)?, &self.text(&self.names)?))
    }

    fn text(&self, path: &Path) -> Result<Vec<u8>, QuotaError> {
        match open(path, false)? {
            Some((mut file, _)) => contents(&mut file, path),
            None => Ok(Vec::new()),
        }
    }

    /// Changes both, which are made if they are not there. Nobody else does meanwhile.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Projects) -> Result<T, QuotaError>,
    ) -> Result<T, QuotaError> {
        let _turn = self.turn();
        let (mut dirs, dirs_stat) = lock(&self.dirs)?;
        let (mut names, names_stat) = lock(&self.names)?;
        let old = (contents(&mut dirs, &self.dirs)?, contents(&mut names, &self.names)?);
        let mut projects = Projects::parse(&old.0, &old.1);
        let before = projects.clone();
        let result = change(&mut projects)?;
        if projects != before {
            let new = projects.texts();
            // As upstream, names first: a name without a directory harms nobody.
            if new.1 != old.1 {
                replace(&self.names, &names_stat, &new.1)?;
            }
            replace(&self.dirs, &dirs_stat, &new.0)?;
        }
        Ok(result)
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        // It protects no state of this process, so a panic of a holder spoils nothing.
        self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Opens a file, which has to be a plain one.
fn open(path: &Path, make: bool) -> Result<Option<(File, Stat)>, QuotaError> {
    // A pipe in its place must not keep anybody waiting.
    let mut flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    flags.set(OFlags::CREATE, make);
    let file = match rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) if !make => return Ok(None),
        Err(Errno::LOOP) => return Err(QuotaError::NotPlain { path: path.to_owned() }),
        Err(errno) => return Err(errno).context("open", path),
    };
    let stat = rustix::fs::fstat(&file).context("look at", path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Some((file, stat))),
        _ => Err(QuotaError::NotPlain { path: path.to_owned() }),
    }
}

/// Opens and locks the file that has the name once it is locked.
fn lock(path: &Path) -> Result<(File, Stat), QuotaError> {
    for _ in 0..LOCK_TRIES {
        let Some((file, stat)) = open(path, true)? else { continue };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                sleep(LOCK_PAUSE);
                continue;
            }
            Err(errno) => return Err(errno).context("lock", path),
        }
        let now = rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino)) {
            return Ok((file, stat));
        }
    }
    let seconds = (LOCK_PAUSE * LOCK_TRIES).as_secs();
    Err(QuotaError::Locked { path: path.to_owned(), seconds })
}

fn contents(file: &mut File, path: &Path) -> Result<Vec<u8>, QuotaError> {
    let mut text = Vec::new();
    file.take(SIZE_MAX + 1).read_to_end(&mut text).context("read", path)?;
    match text.len() as u64 > SIZE_MAX {
        true => Err(QuotaError::TooLarge { path: path.to_owned(), limit: SIZE_MAX }),
        false => Ok(text),
    }
}

/// Gives the name to a new file with this text and the mode and owner of the old one.
fn replace(path: &Path, old: &Stat, text: &[u8]) -> Result<(), QuotaError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".klet");
    // The name is the lock holder's: what lies there is of an agent that was killed.
    let new = path.with_file_name(name);
    match rustix::fs::unlink(&new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno).context("remove", &new),
    }
    let written = write(&new, old, text)
        .and_then(|()| rustix::fs::rename(&new, path).context("replace", path));
    if written.is_err() {
        // What is left of it goes with the next change.
        let _ = rustix::fs::unlink(&new);
    }
    written
}

fn write(new: &Path, old: &Stat, text: &[u8]) -> Result<(), QuotaError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(new, flags, Mode::from_raw_mode(0o600)).context("create", new)?;
    let mut file = File::from(fd);
    let (user, group) =
        (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
    rustix::fs::fchown(&file, Some(user), Some(group)).context("give away", new)?;
    let mode = Mode::from_raw_mode(old.st_mode & 0o777);
    rustix::fs::fchmod(&file, mode).context("set the mode of", new)?;
    file.write_all(text).context("write", new)?;
    // Else a machine that loses power could be left without the administrator's lines.
    file.sync_all().context("write", new)
}
