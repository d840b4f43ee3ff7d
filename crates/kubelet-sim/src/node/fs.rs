//! A file system in memory.
//!
//! Owns files, directories, symbolic links and watches. Reads fail and watches
//! miss changes as often as the faults say.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use kubelet::ports::{
    ChangeStream, DirEntry, FileStamp, Fs, Links, NewFile, OpenFile, WriteAlarms,
};
use mounts::Usage;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::alarms::{SetAlarms, SimAlarms};
use crate::oracle::Place;
use crate::world::{Life, State, World};

/// The manifest directory of every simulated node.
pub(crate) const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Links followed before a path counts as a loop.
const LINKS_MAX: usize = 8;

/// All files of the node.
#[derive(Default)]
pub(crate) struct FileTree {
    nodes: BTreeMap<PathBuf, Node>,
    watches: Vec<(PathBuf, mpsc::Sender<()>)>,
    pub(super) alarms: SetAlarms,
    inodes: u64,
}

struct Node {
    kind: Kind,
    inode: u64,
    modified_ns: i64,
}

enum Kind {
    Dir,
    File(Vec<u8>),
    Link(PathBuf),
    Socket,
}

impl FileTree {
    fn put(&mut self, path: PathBuf, kind: Kind, now_ns: i64) {
        self.inodes += 1;
        let node = Node { kind, inode: self.inodes, modified_ns: now_ns };
        self.nodes.insert(path, node);
    }

    /// Creates a directory and its parents.
    pub(crate) fn make_dir(&mut self, path: &Path, now_ns: i64) {
        for dir in path.ancestors() {
            if !self.nodes.contains_key(dir) {
                self.put(dir.to_owned(), Kind::Dir, now_ns);
            }
        }
    }

    /// Is there anything at a path?
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.nodes.contains_key(path)
    }

    /// Is there a directory at a path?
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        matches!(self.nodes.get(path), Some(Node { kind: Kind::Dir, .. }))
    }

    /// What is in a file.
    pub(crate) fn content(&self, path: &Path) -> Option<&[u8]> {
        match &self.nodes.get(path)?.kind {
            Kind::File(content) => Some(content),
            Kind::Dir | Kind::Link(_) | Kind::Socket => None,
        }
    }

    /// How much a directory holds.
    pub(crate) fn usage(&self, dir: &Path) -> Usage {
        let below = self.nodes.iter().filter(|(path, _)| path.starts_with(dir));
        below.fold(Usage::default(), |sum, (_, node)| {
            let bytes = match &node.kind {
                Kind::File(content) => u64::try_from(content.len()).unwrap_or(u64::MAX),
                Kind::Dir | Kind::Link(_) | Kind::Socket => 0,
            };
            Usage { bytes: sum.bytes.saturating_add(bytes), inodes: sum.inodes + 1 }
        })
    }

    /// Which file or directory a path names.
    pub(crate) fn inode(&self, path: &Path) -> Option<u64> {
        self.nodes.get(path).map(|node| node.inode)
    }

    /// The runtime writes a container's log.
    pub(crate) fn write_log(&mut self, path: &str, now_ns: i64) {
        let path = Path::new(path);
        if let Some(dir) = path.parent() {
            self.make_dir(dir, now_ns);
        }
        self.put(path.to_owned(), Kind::File(b"simulated\n".to_vec()), now_ns);
    }

    fn resolve(&self, path: &Path) -> Result<(&Path, &Node)> {
        let mut at = path;
        for _ in 0..LINKS_MAX {
            let (key, node) =
                self.nodes.get_key_value(at).ok_or_else(|| Error::from(ErrorKind::NotFound))?;
            match &node.kind {
                Kind::Link(target) => at = target,
                _ => return Ok((key, node)),
            }
        }
        Err(Error::other("too many levels of symbolic links"))
    }

    /// A path without links.
    pub(super) fn real_path(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.resolve(path)?.0.to_owned())
    }

    fn entry(&self, path: &Path) -> Result<DirEntry> {
        let (_, node) = self.resolve(path)?;
        let size = match &node.kind {
            Kind::File(content) => content.len() as u64,
            _ => 0,
        };
        Ok(DirEntry {
            name: path.file_name().unwrap_or_default().to_owned(),
            is_file: matches!(node.kind, Kind::File(_)),
            is_dir: matches!(node.kind, Kind::Dir),
            stamp: FileStamp {
                inode: (1, node.inode),
                size,
                modified_ns: node.modified_ns.into(),
                changed_ns: node.modified_ns.into(),
            },
        })
    }

    /// Direct entries of a directory, by name, links included.
    pub(crate) fn names_in(&self, dir: &Path) -> Vec<PathBuf> {
        self.nodes
            .range(dir.to_owned()..)
            .map(|(path, _)| path)
            .skip_while(|path| *path == dir)
            .take_while(|path| path.starts_with(dir))
            .filter(|path| path.parent() == Some(dir))
            .cloned()
            .collect()
    }

    /// Removes a path and what is below it; returns what was there.
    pub(crate) fn remove_tree(&mut self, path: &Path) -> Vec<PathBuf> {
        let doomed: Vec<PathBuf> = self
            .nodes
            .range(path.to_owned()..)
            .map(|(path, _)| path)
            .take_while(|below| below.starts_with(path))
            .cloned()
            .collect();
        for path in &doomed {
            self.nodes.remove(path);
        }
        doomed
    }
}

impl State {
    /// Writes a file from outside the agent.
    pub(crate) fn write_file(&mut self, path: &Path, content: Vec<u8>) {
        let now_ns = self.wall_ns();
        self.files.put(path.to_owned(), Kind::File(content), now_ns);
        self.tell_watches(path);
        self.sound_alarms(path);
    }

    /// Somebody outside the agent listens on a socket.
    pub(crate) fn bind_socket(&mut self, path: &Path) {
        let now_ns = self.wall_ns();
        self.files.make_dir(path.parent().unwrap_or(path), now_ns);
        self.files.put(path.to_owned(), Kind::Socket, now_ns);
        self.tell_watches(path);
    }

    /// Removes a file from outside the agent.
    pub(crate) fn delete_file(&mut self, path: &Path) {
        self.files.nodes.remove(path);
        self.tell_watches(path);
        self.sound_alarms(path);
    }

    fn tell_watches(&mut self, changed: &Path) {
        let lost = self.faults.watch_lost;
        if self.chance(lost) {
            return;
        }
        self.files.watches.retain(|(path, sender)| {
            let concerned = path == changed || changed.parent() == Some(path);
            // A full slot already promises a wake-up.
            !(concerned
                && matches!(sender.try_send(()), Err(mpsc::error::TrySendError::Closed(()))))
        });
    }

    fn note_manifest_read(&mut self, path: &Path) {
        if path.parent() == Some(Path::new(MANIFESTS))
            && let Some(name) = path.file_name()
        {
            let name = name.to_string_lossy().into_owned();
            self.oracle.note_read(Place::File(name));
        }
    }

    /// A read error, now and then.
    fn read_fault(&mut self, path: &Path) -> Result<()> {
        let rate = self.faults.fs_error;
        if !self.chance(rate) {
            return Ok(());
        }
        let now = self.now();
        self.oracle.shake_rivals(now);
        self.note("", format!("{} cannot be read", path.display()));
        Err(Error::other("simulated: input/output error"))
    }
}

/// The file port of one life.
#[derive(Clone)]
pub struct SimFs {
    world: Arc<World>,
    life: Life,
}

impl SimFs {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        if !self.life.is_alive() {
            return Err(Error::other("simulated: this agent is dead"));
        }
        act(&mut self.world.lock())
    }
}

impl Fs for SimFs {
    fn stat(&self, path: &Path) -> Result<DirEntry> {
        self.with(|state| state.files.entry(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.with(|state| {
            state.read_fault(dir)?;
            let (real, node) = state.files.resolve(dir)?;
            if !matches!(node.kind, Kind::Dir) {
                return Err(Error::from(ErrorKind::NotADirectory));
            }
            let names = state.files.names_in(real);
            // A dangling link is listed as neither file nor directory.
            Ok(names
                .iter()
                .map(|path| {
                    state.files.entry(path).unwrap_or_else(|_| DirEntry {
                        name: path.file_name().unwrap_or_default().to_owned(),
                        is_file: false,
                        is_dir: false,
                        stamp: FileStamp::default(),
                    })
                })
                .collect())
        })
    }

    fn links(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.with(|state| {
            state.read_fault(dir)?;
            let (real, _) = state.files.resolve(dir)?;
            let is_link = |path: &PathBuf| {
                matches!(state.files.nodes.get(path), Some(Node { kind: Kind::Link(_), .. }))
            };
            Ok(state.files.names_in(real).into_iter().filter(is_link).collect())
        })
    }

    fn read(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        self.with(|state| {
            state.read_fault(path)?;
            state.note_manifest_read(path);
            match &state.files.resolve(path)?.1.kind {
                Kind::File(content) if content.len() > limit => {
                    Err(Error::from(ErrorKind::FileTooLarge))
                }
                Kind::File(content) => Ok(content.clone()),
                _ => Err(Error::from(ErrorKind::IsADirectory)),
            }
        })
    }

    fn open(&self, path: &Path, links: Links) -> Result<Box<dyn OpenFile>> {
        self.with(|state| {
            state.read_fault(path)?;
            let is_link =
                matches!(state.files.nodes.get(path), Some(Node { kind: Kind::Link(_), .. }));
            if is_link && links == Links::Refuse {
                return Err(Error::from(ErrorKind::InvalidInput));
            }
            match state.files.resolve(path)?.1 {
                Node { kind: Kind::File(_), inode, .. } => {
                    Ok(Box::new(SimOpenFile { fs: self.clone(), inode: *inode }) as _)
                }
                _ => Err(Error::from(ErrorKind::InvalidInput)),
            }
        })
    }

    fn create(&self, path: &Path, _mode: u32) -> Result<Box<dyn NewFile>> {
        self.write(path, &[])?;
        self.with(|state| {
            let inode = state.files.nodes.get(path).map_or(0, |node| node.inode);
            Ok(Box::new(SimOpenFile { fs: self.clone(), inode }) as _)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.with(|state| {
            let parent = to.parent().unwrap_or(Path::new("/"));
            if !state.files.nodes.contains_key(parent) {
                return Err(Error::from(ErrorKind::NotFound));
            }
            let node =
                state.files.nodes.remove(from).ok_or_else(|| Error::from(ErrorKind::NotFound))?;
            state.files.nodes.insert(to.to_owned(), node);
            state.tell_watches(from);
            state.tell_watches(to);
            Ok(())
        })
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        self.with(|state| {
            let parent = path.parent().unwrap_or(Path::new("/"));
            if !state.files.nodes.contains_key(parent) {
                return Err(Error::from(ErrorKind::NotFound));
            }
            state.write_file(path, content.to_vec());
            Ok(())
        })
    }

    fn create_dir_all(&self, path: &Path, _mode: u32) -> Result<()> {
        self.with(|state| {
            let now_ns = state.wall_ns();
            state.files.make_dir(path, now_ns);
            Ok(())
        })
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        self.with(|state| {
            let parent = link.parent().unwrap_or(Path::new("/"));
            if !state.files.nodes.contains_key(parent) {
                return Err(Error::from(ErrorKind::NotFound));
            }
            let now_ns = state.wall_ns();
            let kind = Kind::Link(target.to_owned());
            state.files.put(link.to_owned(), kind, now_ns);
            Ok(())
        })
    }

    fn read_link(&self, link: &Path) -> Result<PathBuf> {
        self.with(|state| match state.files.nodes.get(link) {
            Some(Node { kind: Kind::Link(target), .. }) => Ok(target.clone()),
            Some(_) => Err(Error::from(ErrorKind::InvalidInput)),
            None => Err(Error::from(ErrorKind::NotFound)),
        })
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.with(|state| {
            if matches!(state.files.nodes.get(path), Some(Node { kind: Kind::Dir, .. })) {
                return Err(Error::from(ErrorKind::IsADirectory));
            }
            state.files.nodes.remove(path);
            state.sound_alarms(path);
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        self.with(|state| {
            if let Some(point) = state.volumes.at_or_below(path).first() {
                let text = format!("{} is mounted", point.display());
                return Err(Error::new(ErrorKind::ResourceBusy, text));
            }
            state.check_volume_undone(path, "removes");
            for path in state.files.remove_tree(path) {
                state.sound_alarms(&path);
            }
            Ok(())
        })
    }

    fn watch(&self, path: &Path) -> Result<ChangeStream> {
        self.with(|state| {
            state.files.resolve(path)?;
            let (sender, receiver) = mpsc::channel(1);
            state.files.watches.push((path.to_owned(), sender));
            Ok(ReceiverStream::new(receiver).boxed())
        })
    }

    fn write_alarms(&self) -> Result<Box<dyn WriteAlarms>> {
        self.with(|state| {
            state.files.alarms.prune();
            Ok(())
        })?;
        Ok(Box::new(SimAlarms::new(Arc::clone(&self.world))))
    }
}

/// A file held open, wherever it is moved. Once removed it can no longer be read.
struct SimOpenFile {
    fs: SimFs,
    inode: u64,
}

impl SimOpenFile {
    fn with<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        self.fs.with(|state| {
            let found = state.files.nodes.values_mut().find(|node| node.inode == self.inode);
            match found.map(|node| &mut node.kind) {
                Some(Kind::File(content)) => Ok(act(content)),
                _ => Err(Error::from(ErrorKind::NotFound)),
            }
        })
    }
}

impl OpenFile for SimOpenFile {
    fn read_at(&self, offset: u64, limit: usize) -> Result<Vec<u8>> {
        self.with(|content| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
            let end = start.saturating_add(limit).min(content.len());
            content[start..end].to_vec()
        })
    }

    fn stamp(&self) -> Result<FileStamp> {
        let size = self.with(|content| content.len() as u64)?;
        Ok(FileStamp { inode: (1, self.inode), size, ..FileStamp::default() })
    }

    fn mode(&self) -> Result<u32> {
        Ok(0o640)
    }

    fn owner(&self) -> Result<u32> {
        Ok(0)
    }
}

impl NewFile for SimOpenFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.with(|content| content.extend_from_slice(bytes))
    }
}
