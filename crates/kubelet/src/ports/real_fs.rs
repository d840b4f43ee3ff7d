//! The machine's file system.
//!
//! Reads are bounded and never block on a FIFO or device, writes replace whole files,
//! and removal stays inside one mount. Holds no state.

mod alarms;
mod open;
#[cfg(test)]
mod tests;
mod watch;

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mounts::MountsError;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::fs::{ChangeStream, DirEntry, FileStamp, Fs, Links, NewFile, OpenFile, WriteAlarms};

/// The kernel's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl Fs for RealFs {
    fn stat(&self, path: &Path) -> io::Result<DirEntry> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(entry(name.to_owned(), &rustix::fs::stat(path)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for found in std::fs::read_dir(dir)? {
            let name = found?.file_name();
            match rustix::fs::stat(dir.join(&name)) {
                Ok(stat) => entries.push(entry(name, &stat)),
                Err(Errno::NOENT) => {}
                // There is something; reading it will say what is wrong.
                Err(_) => entries.push(DirEntry {
                    name,
                    is_file: true,
                    is_dir: false,
                    stamp: FileStamp::default(),
                }),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn links(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut links = Vec::new();
        for found in std::fs::read_dir(dir)? {
            let found = found?;
            if found.file_type()?.is_symlink() {
                links.push(found.path());
            }
        }
        links.sort();
        Ok(links)
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let (file, stat) = open::regular(path, OFlags::empty())?;
        let too_large = || {
            let message = format!("the file has more than {limit} bytes");
            io::Error::new(ErrorKind::FileTooLarge, message)
        };
        let size = usize::try_from(stat.st_size).map_err(|_| too_large())?;
        if size > limit {
            return Err(too_large());
        }
        // The file may grow while it is read.
        let mut content = Vec::with_capacity(size);
        let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        file.take(bound).read_to_end(&mut content)?;
        if content.len() > limit {
            return Err(too_large());
        }
        Ok(content)
    }

    fn open(&self, path: &Path, links: Links) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(open::Opened::new(path, links)?))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(open::Created::new(path, mode)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        replace(path, content, false)
    }

    fn write_durably(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        replace(path, content, true)?;
        // The new name is there for good once its directory is.
        let dir = path.parent().unwrap_or(Path::new("/"));
        File::open(dir)?.sync_all()
    }

    fn write_in_place(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let file = rustix::fs::open(path, flags, mode)?;
        if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
        }
        // The mode asked for, whatever the process masks.
        rustix::fs::fchmod(&file, mode)?;
        let mut file = File::from(file);
        file.set_len(0)?;
        file.write_all(content)
    }

    fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        match std::os::unix::fs::symlink(target, link) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made,
        }
        let draft = draft_of(link)?;
        self.remove_file(&draft)?;
        std::os::unix::fs::symlink(target, &draft)?;
        std::fs::rename(&draft, link).inspect_err(|_| {
            let _ = std::fs::remove_file(&draft);
        })
    }

    fn read_link(&self, link: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(link)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        mounts::remove_tree(path).map_err(not_removed)
    }

    fn remove_dirs(&self, path: &Path) -> io::Result<()> {
        mounts::remove_dirs(path).map_err(not_removed)
    }

    fn watch(&self, path: &Path) -> io::Result<ChangeStream> {
        watch::watch(path)
    }

    fn write_alarms(&self) -> io::Result<Box<dyn WriteAlarms>> {
        Ok(Box::new(alarms::Alarms::new()?))
    }
}

fn not_removed(error: MountsError) -> io::Error {
    let kind = match &error {
        MountsError::MountInside { .. } => ErrorKind::ResourceBusy,
        MountsError::FileInside { .. } => ErrorKind::DirectoryNotEmpty,
        _ => error.errno().map_or(ErrorKind::Other, |errno| io::Error::from(errno).kind()),
    };
    io::Error::new(kind, error)
}

fn entry(name: OsString, stat: &Stat) -> DirEntry {
    let kind = FileType::from_raw_mode(stat.st_mode);
    DirEntry { name, is_file: kind.is_file(), is_dir: kind.is_dir(), stamp: stamp(stat) }
}

fn stamp(stat: &Stat) -> FileStamp {
    let nanoseconds =
        |seconds: i64, rest: u64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    FileStamp {
        inode: (stat.st_dev, stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Where the next version of a file is written, beside it.
///
/// The name is fixed, so that drafts left by crashes do not pile up.
fn draft_of(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        let message = format!("{} has no file name", path.display());
        io::Error::new(ErrorKind::InvalidInput, message)
    })?;
    // Never longer than the name itself, which may be as long as a name can be.
    let mut hasher = Sha256::new();
    hasher.update(name.as_encoded_bytes());
    let digest = hasher.finalize();
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(path.with_file_name(format!(".{hex}.new")))
}

fn replace(path: &Path, content: &[u8], durable: bool) -> io::Result<()> {
    let draft = draft_of(path)?;
    let written = write_draft(&draft, content, durable);
    written.and_then(|()| std::fs::rename(&draft, path)).inspect_err(|_| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&draft);
    })
}

fn write_draft(draft: &Path, content: &[u8], durable: bool) -> io::Result<()> {
    RealFs.remove_file(draft)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(draft, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content)?;
    // Else not synced: that would hold up the whole agent, once per file.
    if durable { file.sync_all() } else { Ok(()) }
}
