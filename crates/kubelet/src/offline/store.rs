//! The files of kept pods.
//!
//! Owns `<root>/klet/offline`, one file a pod, mode 0600 in a directory of mode 0700.
//! Nothing is read that somebody else could have written: links, files of others and
//! files that others may open are refused, and so is what is not exactly as it was
//! written. A refused file stays until the API server has said which pods there are;
//! then it is replaced or removed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_model::PodUid;

use super::format::{self, Encoded, FormatError, KeptPod};
use super::plan::LIMITS;
use crate::ports::{Fs, Links};

/// How the files' names end.
const SUFFIX: &str = ".json";
/// Refused files that are told of one by one.
const TOLD_MAX: usize = 20;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// It cannot be opened or read, or is a link.
    #[error("it cannot be read, or is no plain file: {0}")]
    Unreadable(#[from] io::Error),
    /// Others own it.
    #[error("it belongs to user {0}, not to the agent's user")]
    Owner(u32),
    /// Others may open it.
    #[error("its mode {0:04o} lets others open it; kept pods have mode 0600")]
    Mode(u32),
    /// No pod is that large.
    #[error("it has {0} bytes, more than is ever kept of a pod")]
    TooLarge(u64),
    /// Together with the others it is too much.
    #[error("there are more kept pods than the agent keeps")]
    TooMany,
    /// It is not what was written.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Its pod has another uid than its name says.
    #[error("it holds another pod than its name says")]
    Misnamed,
    /// Its pod belongs elsewhere.
    #[error("its pod was assigned to node {0:?}, not to this one")]
    OtherNode(String),
}

/// The files, and what is known to be in them.
pub(super) struct Store {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    files: BTreeMap<PodUid, Filed>,
}

struct Filed {
    bytes: usize,
    /// Of what it holds; `None` if it was refused.
    digest: Option<String>,
}

/// Where kept pods lie.
pub(super) fn dir_below(root: &Path) -> PathBuf {
    root.join("klet").join("offline")
}

/// What was found: usable pods, and what is wrong with the others, in words.
#[derive(Default)]
pub(super) struct Found {
    pub pods: Vec<KeptPod>,
    pub problems: Vec<String>,
}

impl Store {
    /// Opens the directory, making it if need be, and reads what is there.
    ///
    /// # Errors
    /// The directory cannot be made or listed, or is a link.
    pub(super) fn open(fs: Arc<dyn Fs>, root: &Path, node: &str) -> io::Result<(Self, Found)> {
        let dir = dir_below(root);
        fs.create_dir_all(&dir, 0o700)?;
        if let Some(parent) = dir.parent()
            && fs.links(parent)?.contains(&dir)
        {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is a symbolic link"));
        }
        let mut store = Self { fs, dir, files: BTreeMap::new() };
        let found = store.load(node)?;
        Ok((store, found))
    }

    fn load(&mut self, node: &str) -> io::Result<Found> {
        let (mut found, mut all) = (Found::default(), 0_usize);
        for entry in self.fs.list(&self.dir)? {
            let name = entry.name.to_string_lossy();
            // What else lies there is a draft that a crash left; the next replaces it.
            let Some(uid) = name.strip_suffix(SUFFIX).filter(|uid| is_plain(uid)) else { continue };
            let uid = PodUid::new(uid);
            let room = LIMITS.all_bytes.saturating_sub(all);
            let full = self.files.len() >= LIMITS.files;
            let read = if full { Err(Refused::TooMany) } else { self.read(&uid, node, room) };
            let filed = match read {
                Ok((pod, bytes, digest)) => {
                    all = all.saturating_add(bytes);
                    found.pods.push(pod);
                    Filed { bytes, digest: Some(digest) }
                }
                Err(why) => {
                    let path = self.path(&uid);
                    if found.problems.len() < TOLD_MAX {
                        found.problems.push(format!("{}: {why}", path.display()));
                    }
                    Filed { bytes: 0, digest: None }
                }
            };
            self.files.insert(uid, filed);
        }
        Ok(found)
    }

    fn read(
        &self,
        uid: &PodUid,
        node: &str,
        room: usize,
    ) -> Result<(KeptPod, usize, String), Refused> {
        let file = self.fs.open(&self.path(uid), Links::Refuse)?;
        let (owner, mode) = (file.owner()?, file.mode()?);
        if owner != rustix::process::geteuid().as_raw() {
            return Err(Refused::Owner(owner));
        }
        if mode & 0o077 != 0 {
            return Err(Refused::Mode(mode));
        }
        let told = file.stamp()?.size;
        let size = usize::try_from(told).ok().filter(|size| *size <= LIMITS.file_bytes);
        let size = size.ok_or(Refused::TooLarge(told))?;
        if size > room {
            return Err(Refused::TooMany);
        }
        let (kept, digest) = format::decode(&file.read_at(0, size)?)?;
        let meta = &kept.pod.metadata;
        if meta.uid.as_deref() != Some(uid.as_str()) {
            return Err(Refused::Misnamed);
        }
        let assigned = kept.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        match assigned.unwrap_or_default() {
            assigned if assigned == node => Ok((kept, size, digest)),
            other => Err(Refused::OtherNode(other.to_owned())),
        }
    }

    /// Bytes of each file.
    pub(super) fn sizes(&self) -> BTreeMap<PodUid, usize> {
        self.files.iter().map(|(uid, filed)| (uid.clone(), filed.bytes)).collect()
    }

    /// Whether a file holds exactly this.
    pub(super) fn holds(&self, uid: &PodUid, digest: &str) -> bool {
        self.files.get(uid).is_some_and(|filed| filed.digest.as_deref() == Some(digest))
    }

    /// Writes a pod, and returns once the disk has it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) async fn write(&mut self, uid: &PodUid, encoded: Encoded) -> io::Result<()> {
        let Encoded { bytes, digest } = encoded;
        let (fs, path, size) = (Arc::clone(&self.fs), self.path(uid), bytes.len());
        // Waiting for the disk must not hold up the agent's one thread.
        let done = tokio::task::spawn_blocking(move || fs.write_durably(&path, &bytes));
        done.await.map_err(io::Error::other)??;
        self.files.insert(uid.clone(), Filed { bytes: size, digest: Some(digest) });
        Ok(())
    }

    /// Removes a pod's file.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn remove(&mut self, uid: &PodUid) -> io::Result<()> {
        self.fs.remove_file(&self.path(uid))?;
        self.files.remove(uid);
        Ok(())
    }

    fn path(&self, uid: &PodUid) -> PathBuf {
        self.dir.join(format!("{}{SUFFIX}", uid.as_str()))
    }
}

/// A uid that can be a file's name; the same as for pods of an API server.
fn is_plain(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}
