//! A private directory for tests with real mounts, and the enemy in it.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::UnmountFlags;

/// A directory whose mounts go with it, also when a test fails.
pub struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// None, with the reason on stderr, where the machine cannot have mounts.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED, nothing was tested: needs root");
            return None;
        }
        Some(Self { dir: tempfile::tempdir().unwrap() })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A tree that nothing may touch, and what it looks like.
    pub fn canary(&self) -> Canary {
        let root = self.dir("canary");
        self.file("canary/file", "sacred");
        self.file("canary/deep/er/file", "sacred too");
        self.file("canary/..2020_01_01_00_00_00.1/file", "looks like ours");
        // What is published, and what is made in a volume.
        self.file("canary/a", "sacred");
        self.file("canary/b/c", "sacred");
        symlink("file", root.join("link")).unwrap();
        for (path, mode) in [("canary", 0o700), ("canary/deep", 0o701), ("canary/file", 0o604)] {
            fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        Canary { before: facts(&root), root }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The name of a mount on the directory itself comes last.
        let below = mounts::table::below(self.path()).unwrap_or_default();
        for point in below.iter().map(PathBuf::as_path).chain([self.path()]) {
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
            while rustix::mount::unmount(point, flags).is_ok() {}
        }
        // Removal would go through a mount that is still there.
        let clear = mounts::table::below(self.path()).is_ok_and(|left| left.is_empty());
        self.dir.disable_cleanup(!clear);
    }
}

/// A tree outside of what an operation may reach.
pub struct Canary {
    pub root: PathBuf,
    before: Facts,
}

impl Canary {
    /// Fails if anything about it has changed.
    pub fn assert_untouched(&self) {
        assert_eq!(facts(&self.root), self.before, "the canary was touched");
    }
}

/// Inode, mode, owner, group, last change and content or link target, by path. A directory
/// is changed by what is made in it, even if that is taken away again.
type Facts = BTreeMap<PathBuf, (u64, u32, u32, u32, (i64, i64), Vec<u8>)>;

pub fn facts(root: &Path) -> Facts {
    let mut found = Facts::new();
    let mut queue = vec![root.to_owned()];
    while let Some(path) = queue.pop() {
        let meta = path.symlink_metadata().unwrap();
        let content = if meta.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if meta.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let changed = (meta.ctime(), meta.ctime_nsec());
        found.insert(path, (meta.ino(), meta.mode(), meta.uid(), meta.gid(), changed, content));
    }
    found
}

/// A thread that does its worst until dropped.
pub struct Enemy {
    stop: Arc<AtomicBool>,
    hits: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Enemy {
    /// `attack` says how often it did what it wanted.
    pub fn new(mut attack: impl FnMut() -> u64 + Send + 'static) -> Self {
        let (stop, hits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), hits.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                count.fetch_add(attack(), Ordering::Relaxed);
            }
        });
        Self { stop, hits, thread: Some(thread) }
    }

    /// Keeps swapping two names.
    pub fn swapping(one: PathBuf, other: PathBuf) -> Self {
        Self::swapping_all(vec![(one, other)])
    }

    /// Keeps swapping pairs of names.
    pub fn swapping_all(pairs: Vec<(PathBuf, PathBuf)>) -> Self {
        let swap = |(one, other): &(PathBuf, PathBuf)| {
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
        };
        Self::new(move || pairs.iter().filter(|pair| swap(pair)).count() as u64)
    }

    /// Returns once the thread is at work.
    pub fn started(self) -> Self {
        while self.hits() == 0 {
            std::thread::yield_now();
        }
        self
    }

    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Enemy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

pub fn gid(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().gid()
}
