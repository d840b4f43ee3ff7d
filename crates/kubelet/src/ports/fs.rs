//! The file system, as far as the agent needs one.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::stream::{BoxStream, Stream};

/// Identifies one version of a file's content without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileStamp {
    /// Device and inode.
    pub inode: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds.
    pub modified_ns: i128,
    /// Change time in nanoseconds: catches a rewrite that restores the size and mtime.
    pub changed_ns: i128,
}

/// One entry of a directory. Symbolic links are followed for kind and stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name without the directory.
    pub name: OsString,
    /// Is it a regular file (after following links)?
    pub is_file: bool,
    /// Is it a directory (after following links)?
    pub is_dir: bool,
    /// Version of its content.
    pub stamp: FileStamp,
}

/// Yields an item after something below a watched path may have changed.
/// Many changes may fold into one item; the stream never ends by itself
/// unless the watch broke, and then the caller falls back to rescanning.
pub type ChangeStream = BoxStream<'static, ()>;

/// Names one alarm of a [`WriteAlarms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlarmId(pub u64);

/// Alarms on files, however many, for the price of one descriptor. Yields the id
/// of each alarm whose file was written to; that alarm is spent. The stream
/// ends if no alarm can come any more. An alarm may be lost.
pub trait WriteAlarms: Stream<Item = AlarmId> + Send + Unpin {
    /// Sets an alarm for the next write to a file.
    fn arm(&mut self, path: &Path) -> io::Result<AlarmId>;
    /// Takes an alarm back; one that is spent or unknown is fine.
    fn disarm(&mut self, alarm: AlarmId);
}

/// A file held open: it can be read on after it is renamed or removed.
pub trait OpenFile: Send + Sync {
    /// Bytes from `offset` on, `limit` at most; fewer only where the file ends.
    fn read_at(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>>;
    /// Version of its content.
    fn stamp(&self) -> io::Result<FileStamp>;
    /// Permission bits.
    fn mode(&self) -> io::Result<u32>;
    /// The user it belongs to.
    fn owner(&self) -> io::Result<u32>;
}

/// A file being written from its beginning.
pub trait NewFile: Send {
    /// Appends all of `bytes`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// What opening does when the last part of a path is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Opens what it leads to.
    Follow,
    /// Fails.
    Refuse,
}

/// File operations. All are quick and local; none follows a link when removing.
pub trait Fs: Send + Sync + 'static {
    /// Entry for one path, following links.
    fn stat(&self, path: &Path) -> io::Result<DirEntry>;
    /// Entries of a directory sorted by name. An entry that vanishes meanwhile is left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Symbolic links in a directory, wherever they lead, sorted by name.
    fn links(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;
    /// Reads a regular file of at most `limit` bytes; a larger one, or a FIFO or
    /// device, is an error and never blocks.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// Opens a regular file for reading; anything else is an error and never blocks.
    fn open(&self, path: &Path, links: Links) -> io::Result<Box<dyn OpenFile>>;
    /// Opens a regular file for writing, emptied if it exists; never through a link.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn NewFile>>;
    /// Moves a file within its file system, replacing what is at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Replaces a file's content by a temporary file and a rename, mode 0600. A
    /// reader sees the old content or the new, also when the agent is killed.
    /// Nothing waits for the disk: after a power cut the file may be old, empty
    /// or torn, so it must hold something whose reader notices.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Does as [`Fs::write`], and returns once the disk has it, which may take long. A
    /// file system without a disk has nothing to wait for.
    fn write_durably(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.write(path, content)
    }
    /// Writes a file where it lies, with this mode: whoever has it mounted sees
    /// the new content. A file system without modes may do as [`Fs::write`] does.
    fn write_in_place(&self, path: &Path, content: &[u8], _mode: u32) -> io::Result<()> {
        self.write(path, content)
    }
    /// Creates a directory and its parents; existing ones are fine.
    fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Makes `link` a symbolic link to `target`, replacing an old link.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    /// Where a symbolic link points.
    fn read_link(&self, link: &Path) -> io::Result<PathBuf>;
    /// Removes a file or link; absent is fine.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory tree without following links or crossing into
    /// another mount; absent is fine.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Removes directories below a path, and that itself, but nothing else: a file in it
    /// is an error that names it. A file system that holds nobody's data may do as
    /// [`Fs::remove_dir_all`] does.
    fn remove_dirs(&self, path: &Path) -> io::Result<()> {
        self.remove_dir_all(path)
    }
    /// Watches a file or directory for changes to it or its direct entries.
    fn watch(&self, path: &Path) -> io::Result<ChangeStream>;
    /// Opens a set of alarms, none armed yet. A file system may have none.
    fn write_alarms(&self) -> io::Result<Box<dyn WriteAlarms>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
