//! One look at the manifest path: which pods it defines now.
//!
//! Owns the manifests known so far. One that is gone takes its pods with it; a
//! path that cannot be looked at keeps them all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::FullName;

use super::known::{Known, ManifestReader};
use super::last_good::LastGood;
use super::notice::Notice;
use crate::ports::{Clock, DirEntry, Fs};

/// Most manifests read from one directory; one node runs far fewer pods.
pub(super) const FILES_MAX: usize = 10_000;
/// Looks at the manifest path, again and again.
pub(super) struct Scanner {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    reader: ManifestReader,
    copies: LastGood,
    known: BTreeMap<PathBuf, Known>,
    /// Manifests whose copies are to be written.
    uncopied: Vec<(PathBuf, Vec<u8>)>,
    /// What was last said about the path as a whole and about entries.
    said: BTreeSet<String>,
    /// Why old copies could not be removed the last time.
    copy_problem: Option<String>,
    first: bool,
    complete: bool,
    notices: Vec<Notice>,
}

impl Scanner {
    pub(super) fn new(
        path: PathBuf,
        node_name: String,
        root_dir: &Path,
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            path,
            copies: LastGood::new(fs.clone(), root_dir),
            reader: ManifestReader { fs: fs.clone(), clock, node_name },
            fs,
            known: BTreeMap::new(),
            uncopied: Vec::new(),
            said: BTreeSet::new(),
            copy_problem: None,
            first: true,
            complete: false,
            notices: Vec::new(),
        }
    }

    /// Looks once. Returns all pods if they may have changed, and what to say.
    pub(super) async fn scan(&mut self) -> (Option<Vec<Pod>>, Vec<Notice>) {
        let mut said = BTreeSet::new();
        let mut changed = self.first;
        match self.entries() {
            Ok(Some(entries)) => {
                if self.said.contains(UNREADABLE) || self.said.contains(MISSING) {
                    self.notices.push(Notice::Back { path: self.path.clone() });
                }
                let entries = self.select(entries, &mut said);
                changed |= self.forget_others(&entries);
                for (path, entry) in entries {
                    changed |= self.look(path, &entry);
                    // Thousands of manifests must not hold up the rest of the agent.
                    tokio::task::yield_now().await;
                }
            }
            Ok(None) => {
                changed |= !self.known.is_empty();
                self.known.clear();
                let missing = Notice::Missing { path: self.path.clone() };
                self.say(&mut said, MISSING.to_owned(), missing);
            }
            Err(error) => changed |= self.keep_all(&error, &mut said),
        }
        let unreadable = said.contains(UNREADABLE);
        let complete = !unreadable && self.known.values().all(Known::is_read);
        changed |= complete && !self.complete;
        self.complete |= complete;
        let pods = match changed {
            true => Some(self.pods(&mut said)),
            false => {
                let standing = self.said.iter().filter(|key| key.starts_with(DUPLICATE));
                said.extend(standing.cloned());
                None
            }
        };
        self.said = said;
        self.first = false;
        (pods, std::mem::take(&mut self.notices))
    }

    /// Has everything below the path been read once?
    pub(super) fn complete(&self) -> bool {
        self.complete
    }

    /// Brings the last good copies up to date, one manifest at a time.
    pub(super) async fn update_copies(&mut self) -> Vec<Notice> {
        for (path, bytes) in std::mem::take(&mut self.uncopied) {
            if let Err(error) = self.copies.store(&path, &bytes) {
                self.notices.push(Notice::CopyFailed { path, why: error.to_string() });
            }
            tokio::task::yield_now().await;
        }
        // While the path cannot be read, nobody knows which manifests are gone.
        if !self.said.contains(UNREADABLE) {
            let known = self.known.keys().map(PathBuf::as_path);
            let problem = self.copies.keep_only(known).err().map(|error| error.to_string());
            if let Some(why) = problem.clone().filter(|_| problem != self.copy_problem) {
                self.notices.push(Notice::CopyFailed { path: self.path.clone(), why });
            }
            self.copy_problem = problem;
        }
        std::mem::take(&mut self.notices)
    }

    /// Entries of the manifest path; `None` if it does not exist.
    fn entries(&self) -> io::Result<Option<Vec<(PathBuf, DirEntry)>>> {
        let listed = self.fs.stat(&self.path).and_then(|entry| match entry {
            DirEntry { is_dir: true, .. } => {
                let path = |entry: DirEntry| (self.path.join(&entry.name), entry);
                Ok(self.fs.list(&self.path)?.into_iter().map(path).collect())
            }
            DirEntry { is_file: true, .. } => Ok(vec![(self.path.clone(), entry)]),
            _ => Err(io::Error::new(ErrorKind::InvalidInput, "neither a file nor a directory")),
        });
        match listed {
            Ok(entries) => Ok(Some(entries)),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Entries that may be manifests.
    fn select(
        &mut self,
        entries: Vec<(PathBuf, DirEntry)>,
        said: &mut BTreeSet<String>,
    ) -> Vec<(PathBuf, DirEntry)> {
        let mut selected = Vec::new();
        for (path, entry) in entries {
            let single = path == self.path;
            if !single && entry.name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if !entry.is_file {
                let why = match entry.is_dir {
                    true => "a directory; only the files of the manifest path itself are read",
                    false => "not a regular file",
                };
                let key = format!("skipped {}", path.display());
                self.say(said, key, Notice::Skipped { path, why });
                continue;
            }
            selected.push((path, entry));
        }
        if selected.len() > FILES_MAX {
            selected.truncate(FILES_MAX);
            let notice = Notice::TooMany { path: self.path.clone(), limit: FILES_MAX };
            self.say(said, "too many".to_owned(), notice);
        }
        selected
    }

    /// Drops manifests that are gone.
    fn forget_others(&mut self, entries: &[(PathBuf, DirEntry)]) -> bool {
        let there: BTreeSet<&Path> = entries.iter().map(|(path, _)| path.as_path()).collect();
        let before = self.known.len();
        self.known.retain(|path, _| there.contains(path.as_path()));
        before != self.known.len()
    }

    /// Looks at one manifest. Returns whether its pods may have changed.
    fn look(&mut self, path: PathBuf, entry: &DirEntry) -> bool {
        let new = !self.known.contains_key(&path);
        let mut known = self.known.remove(&path).unwrap_or_default();
        let copies = &self.copies;
        let copy = || new.then(|| copies.load(&path)).flatten();
        let look = self.reader.look(&path, entry.stamp, &mut known, copy);
        self.notices.extend(look.notices);
        if let Some(bytes) = look.to_copy {
            self.uncopied.push((path.clone(), bytes));
        }
        self.known.insert(path, known);
        look.changed
    }

    /// The path cannot be looked at: everything stays, or comes from copies.
    fn keep_all(&mut self, error: &io::Error, said: &mut BTreeSet<String>) -> bool {
        let mut changed = false;
        if self.first {
            for (path, bytes) in self.copies.load_below(&self.path) {
                let mut known = Known::default();
                changed |= self.reader.fall_back(&path, &bytes, &mut known);
                self.known.insert(path, known);
            }
        }
        let pods_kept =
            self.known.values().filter_map(|known| known.good.as_ref()).flatten().count();
        let (path, why) = (self.path.clone(), error.to_string());
        said.insert(UNREADABLE.to_owned());
        // What is below cannot be seen, so what was said about it stands.
        let entries = self.said.iter().filter(|key| *key != UNREADABLE && !key.starts_with("why "));
        said.extend(entries.cloned());
        self.say(said, format!("why {why}"), Notice::Unreadable { path, why, pods_kept });
        changed
    }

    /// All pods in the order of their files, each full name once.
    fn pods(&mut self, said: &mut BTreeSet<String>) -> Vec<Pod> {
        let mut owners: BTreeMap<FullName, PathBuf> = BTreeMap::new();
        let mut pods = Vec::new();
        let mut notices = Vec::new();
        for (path, known) in &self.known {
            for pod in known.good.iter().flatten() {
                let meta = &pod.metadata;
                let full_name = FullName::of(
                    meta.name.as_deref().unwrap_or_default(),
                    meta.namespace.as_deref().unwrap_or_default(),
                );
                match owners.get(&full_name) {
                    Some(by) => {
                        let key = format!("{DUPLICATE} {full_name} {}", path.display());
                        let (path, by) = (path.clone(), by.clone());
                        notices.push((key, Notice::Duplicate { path, full_name, by }));
                    }
                    None => {
                        owners.insert(full_name, path.clone());
                        pods.push(pod.clone());
                    }
                }
            }
        }
        for (key, notice) in notices {
            self.say(said, key, notice);
        }
        pods
    }

    /// Says something unless it was said the last time.
    fn say(&mut self, said: &mut BTreeSet<String>, key: String, notice: Notice) {
        if !self.said.contains(&key) {
            self.notices.push(notice);
        }
        said.insert(key);
    }
}

/// Keys of what is said about the path as a whole, and their start for pods.
const UNREADABLE: &str = "unreadable";
const MISSING: &str = "missing";
const DUPLICATE: &str = "duplicate";
