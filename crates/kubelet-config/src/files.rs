//! Reading files, bounded.
//!
//! The one place of this crate that touches the disk. Reads are limited in
//! size and to regular files, so that a wrong path (a device, a pipe nobody
//! writes to, a huge file) can neither fill memory nor hang a start.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Longest configuration file: two hundred times what any real one needs.
pub const FILE_MAX: u64 = 10 * 1024 * 1024;
/// Deepest nesting of a drop-in directory; stops link loops.
const DEPTH_MAX: usize = 16;
/// Most entries looked at in a drop-in directory.
const ENTRIES_MAX: usize = 10_000;

/// What the loader reads through.
pub trait Files {
    /// The whole of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Every file below a directory, in lexical order of the walk.
    fn walk(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;
    /// A path made absolute.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf>;
}

/// The real disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Opening a pipe waits for a writer, unless told not to.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        if !kind.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a pipe, socket or device; name a regular file",
            ));
        }
        let mut bytes = Vec::new();
        file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is larger than {FILE_MAX} bytes"),
            ));
        }
        Ok(bytes)
    }

    fn walk(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut out = Vec::new();
        walk(directory, 0, &mut out)?;
        Ok(out)
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path).map(|path| crate::layers::clean(&path))
    }
}

fn walk(directory: &Path, depth: usize, out: &mut Vec<PathBuf>) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("directories are nested deeper than {DEPTH_MAX}")));
    }
    let mut entries = std::fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        // The type of the entry itself: a link to a directory is a file here, as upstream.
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), depth + 1, out)?;
        } else {
            out.push(entry.path());
        }
        if out.len() > ENTRIES_MAX {
            return Err(io::Error::other(format!("there are more than {ENTRIES_MAX} files")));
        }
    }
    Ok(())
}
