//! The machine's files, with counts, and with alarms or none left.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ports::{ChangeStream, DirEntry, Fs, Links, NewFile, OpenFile, RealFs, WriteAlarms};

#[derive(Default)]
pub(super) struct CountedFs {
    pub has_alarms: bool,
    /// How often alarms were asked for.
    pub asked: AtomicUsize,
    /// How often a file was looked at.
    pub looks: AtomicUsize,
}

impl Fs for CountedFs {
    fn write_alarms(&self) -> io::Result<Box<dyn WriteAlarms>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.has_alarms {
            true => RealFs.write_alarms(),
            false => Err(rustix::io::Errno::MFILE.into()),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<DirEntry> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        RealFs.stat(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        RealFs.list(dir)
    }
    fn links(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        RealFs.links(dir)
    }
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        RealFs.read(path, limit)
    }
    fn open(&self, path: &Path, links: Links) -> io::Result<Box<dyn OpenFile>> {
        RealFs.open(path, links)
    }
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn NewFile>> {
        RealFs.create(path, mode)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealFs.write(path, content)
    }
    fn create_dir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        RealFs.create_dir_all(path, mode)
    }
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        RealFs.symlink(target, link)
    }
    fn read_link(&self, link: &Path) -> io::Result<PathBuf> {
        RealFs.read_link(link)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealFs.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        RealFs.remove_dir_all(path)
    }
    fn watch(&self, path: &Path) -> io::Result<ChangeStream> {
        RealFs.watch(path)
    }
}
