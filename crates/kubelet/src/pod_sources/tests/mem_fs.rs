//! A file system in memory whose errors, stamps and watches a test controls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::ports::{ChangeStream, DirEntry, FileStamp, Fs, Links, NewFile, OpenFile};

#[derive(Clone, Default)]
pub(super) struct MemFs(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    files: BTreeMap<PathBuf, (Vec<u8>, i128)>,
    dirs: BTreeSet<PathBuf>,
    pub(super) odd: BTreeSet<PathBuf>,
    /// Paths whose every access fails.
    pub(super) broken: BTreeMap<PathBuf, ErrorKind>,
    watches: Vec<mpsc::UnboundedSender<()>>,
    pub(super) watch_error: Option<ErrorKind>,
    pub(super) watch_attempts: usize,
    pub(super) reads: usize,
    pub(super) lists: usize,
    versions: i128,
}

impl MemFs {
    pub(super) fn with_dir(dir: &str) -> Self {
        let fs = Self::default();
        fs.state().dirs.insert(dir.into());
        fs
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Writes without announcing it.
    pub(super) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let mut state = self.state();
        state.versions += 1;
        let version = state.versions;
        state.files.insert(path.into(), (content.as_ref().to_vec(), version));
    }

    pub(super) fn delete(&self, path: &str) {
        self.state().files.remove(Path::new(path));
    }

    pub(super) fn announce(&self) {
        self.state().watches.retain(|watch| watch.send(()).is_ok());
    }

    pub(super) fn end_watches(&self) {
        self.state().watches.clear();
    }

    pub(super) fn files_below(&self, dir: &str) -> Vec<PathBuf> {
        self.state().files.keys().filter(|path| path.starts_with(dir)).cloned().collect()
    }
}

impl State {
    pub(super) fn dirs_insert(&mut self, path: &str) {
        self.dirs.insert(path.into());
    }

    pub(super) fn dirs_remove(&mut self, path: &str) {
        self.dirs.remove(Path::new(path));
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        match self.broken.get(path) {
            Some(kind) => Err((*kind).into()),
            None => Ok(()),
        }
    }

    fn entry(&self, path: &Path) -> Option<DirEntry> {
        let file = self.files.get(path);
        let is_dir = self.dirs.contains(path);
        if file.is_none() && !is_dir && !self.odd.contains(path) {
            return None;
        }
        let version = file.map_or(0, |(_, version)| *version);
        Some(DirEntry {
            name: path.file_name().unwrap_or_default().to_owned(),
            is_file: file.is_some(),
            is_dir,
            stamp: FileStamp {
                inode: (1, 1),
                size: file.map_or(0, |(content, _)| content.len() as u64),
                modified_ns: version,
                changed_ns: version,
            },
        })
    }
}

impl Fs for MemFs {
    fn stat(&self, path: &Path) -> io::Result<DirEntry> {
        let state = self.state();
        state.check(path)?;
        state.entry(path).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.state();
        state.lists += 1;
        state.check(dir)?;
        if !state.dirs.contains(dir) {
            return Err(ErrorKind::NotFound.into());
        }
        let paths = state.files.keys().chain(&state.dirs).chain(&state.odd);
        let below: BTreeSet<&PathBuf> = paths.filter(|path| path.parent() == Some(dir)).collect();
        Ok(below.into_iter().filter_map(|path| state.entry(path)).collect())
    }

    fn links(&self, _dir: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.reads += 1;
        state.check(path)?;
        match state.files.get(path) {
            Some((content, _)) if content.len() > limit => Err(ErrorKind::FileTooLarge.into()),
            Some((content, _)) => Ok(content.clone()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn open(&self, _: &Path, _: Links) -> io::Result<Box<dyn OpenFile>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn create(&self, _: &Path, _: u32) -> io::Result<Box<dyn NewFile>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.state().check(path)?;
        self.put(path.to_str().unwrap(), content);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path, _: u32) -> io::Result<()> {
        self.state().dirs.insert(path.to_owned());
        Ok(())
    }

    fn symlink(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn read_link(&self, _: &Path) -> io::Result<PathBuf> {
        Err(ErrorKind::Unsupported.into())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state().check(path)?;
        self.state().files.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn watch(&self, _: &Path) -> io::Result<ChangeStream> {
        let mut state = self.state();
        state.watch_attempts += 1;
        if let Some(kind) = state.watch_error {
            return Err(kind.into());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        state.watches.push(sender);
        Ok(UnboundedReceiverStream::new(receiver).boxed())
    }
}
