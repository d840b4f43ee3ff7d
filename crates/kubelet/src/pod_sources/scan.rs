//! One look at the manifest path: which pods and objects it defines now.
//!
//! Owns the manifests known so far and has their last good copies kept. One that
//! is gone takes its pods with it; a path that cannot be looked at keeps them all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{ConfigObject, FullName, PodUid};

use super::PODS_MAX;
use super::known::{Known, ManifestReader};
use super::last_good::LastGood;
use super::notice::Notice;
use super::objects::pick;
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
    /// What was last said about the path as a whole and about entries.
    said: BTreeSet<String>,
    /// The first copy of this look that could not be kept or removed, and why.
    copy_failed: Option<(PathBuf, String)>,
    /// Why copies could not be kept or removed the last time.
    copy_problem: Option<String>,
    first: bool,
    complete: bool,
    objects: Vec<Arc<ConfigObject>>,
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
            said: BTreeSet::new(),
            copy_failed: None,
            copy_problem: None,
            first: true,
            complete: false,
            objects: Vec::new(),
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
                // First, so that there is room for new ones.
                self.drop_copies(entries.iter().map(|(path, _)| path.as_path()));
                for (path, entry) in entries {
                    changed |= self.look(path, &entry);
                    // Thousands of manifests must not hold up the rest of the agent.
                    tokio::task::yield_now().await;
                }
            }
            Ok(None) => {
                changed |= !self.known.is_empty();
                self.known.clear();
                self.drop_copies(std::iter::empty());
                let missing = Notice::Missing { path: self.path.clone() };
                self.say(&mut said, MISSING.to_owned(), missing);
            }
            Err(error) => changed |= self.keep_all(&error, &mut said),
        }
        let unreadable = said.contains(UNREADABLE);
        let unread = match unreadable {
            true => Some(self.path.clone()),
            false => self.known.iter().find(|(_, known)| !known.is_read()).map(|(p, _)| p.clone()),
        };
        changed |= unread.is_none() && !self.complete;
        self.complete |= unread.is_none();
        if let Some(path) = unread.filter(|_| !self.complete) {
            let key = format!("incomplete {}", path.display());
            self.say(&mut said, key, Notice::Incomplete { path });
        }
        self.report_copies();
        let pods = match changed {
            true => {
                self.pick_objects(&mut said);
                Some(self.pods(&mut said))
            }
            false => {
                let standing = |key: &&String| key.starts_with(DUPLICATE) || *key == TOO_MANY_PODS;
                said.extend(self.said.iter().filter(standing).cloned());
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

    /// ConfigMaps and Secrets, as of the last look.
    pub(super) fn objects(&self) -> Vec<Arc<ConfigObject>> {
        self.objects.clone()
    }

    /// All objects in the order of their files, each once.
    fn pick_objects(&mut self, said: &mut BTreeSet<String>) {
        let all = self.known.iter().flat_map(|(path, known)| {
            known.objects.iter().map(move |object| (path.as_path(), object))
        });
        let (picked, notices) = pick(all);
        self.objects = picked;
        for (key, notice) in notices {
            self.say(said, format!("{DUPLICATE} {key}"), notice);
        }
    }

    /// Removes the last good copies of manifests that are gone.
    fn drop_copies<'p>(&mut self, there: impl Iterator<Item = &'p Path>) {
        if let Err(error) = self.copies.keep_only(there) {
            self.copy_failed = Some((self.path.clone(), error.to_string()));
        }
    }

    /// Says that copies fail: a full disk fails them all, and once is enough.
    fn report_copies(&mut self) {
        let failed = self.copy_failed.take();
        let problem = failed.as_ref().map(|(_, why)| why.clone());
        if let Some((path, why)) = failed.filter(|_| problem != self.copy_problem) {
            self.notices.push(Notice::CopyFailed { path, why });
        }
        self.copy_problem = problem;
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
            // At once: the bytes of all manifests together may be too many.
            if let Err(error) = self.copies.store(&path, &bytes) {
                self.copy_failed.get_or_insert_with(|| (path.clone(), error.to_string()));
            }
        }
        self.known.insert(path, known);
        look.changed
    }

    /// The path cannot be looked at: everything stays, or comes from copies.
    fn keep_all(&mut self, error: &io::Error, said: &mut BTreeSet<String>) -> bool {
        let mut changed = false;
        if self.first {
            let (reader, known) = (&self.reader, &mut self.known);
            self.copies.load_below(&self.path, |path, bytes| {
                let mut one = Known::default();
                changed |= reader.fall_back(&path, &bytes, &mut one);
                known.insert(path, one);
            });
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
        'files: for (path, known) in &self.known {
            for pod in known.good.iter().flatten() {
                let meta = &pod.metadata;
                let full_name = FullName::of(
                    meta.name.as_deref().unwrap_or_default(),
                    meta.namespace.as_deref().unwrap_or_default(),
                );
                match owners.get(&full_name) {
                    None if pods.len() == PODS_MAX => {
                        let origin = path.display().to_string();
                        let notice = Notice::TooManyPods { origin, limit: PODS_MAX };
                        notices.push((TOO_MANY_PODS.to_owned(), notice));
                        break 'files;
                    }
                    Some(by) => {
                        let key = format!("{DUPLICATE} {full_name} {}", path.display());
                        let (path, by) = (path.clone(), by.clone());
                        let uid = PodUid::new(meta.uid.as_deref().unwrap_or_default());
                        notices.push((key, Notice::Duplicate { path, full_name, uid, by }));
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

    /// Says something unless it was said just now or the last time.
    fn say(&mut self, said: &mut BTreeSet<String>, key: String, notice: Notice) {
        let known = self.said.contains(&key);
        if said.insert(key) && !known {
            self.notices.push(notice);
        }
    }
}

/// Keys of what is said about the path as a whole, and their start for pods.
const UNREADABLE: &str = "unreadable";
const MISSING: &str = "missing";
const DUPLICATE: &str = "duplicate";
const TOO_MANY_PODS: &str = "too many pods";
