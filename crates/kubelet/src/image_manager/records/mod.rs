//! Records of which credentials an image was pulled with.
//!
//! Owns `<root>/image_manager/{pulling,pulled}`: an intent is written before a
//! pull and becomes a record after it, so that a pod without credentials cannot
//! use what another pod's credentials brought here, also after a crash.
//! Upstream: pkg/kubelet/images/pullmanager.

mod format;
mod merge;
mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use cri::v1;

pub use format::{PullCredentials, PullSecret, PullServiceAccount, PulledRecord};
pub use policy::{PodCredentials, Verdict, Verification};

use super::metrics::{ImageMetrics, MustPull};
use crate::ports::{Clock, DirEntry, Fs};
use format::{OnDisk, PullIntent};

/// Largest record read: a hundred secrets take some 30 KiB.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} is no record of a pull: {why}; remove it and the image is pulled again", .path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// The records of this node. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    pulling: PathBuf,
    pulled: PathBuf,
    verification: Verification,
    metrics: ImageMetrics,
    /// Pulls of each image under way; the last one to end removes the intent.
    under_way: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Records {
    /// The records below the agent's root directory.
    pub fn new(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        root: &Path,
        verification: Verification,
        metrics: ImageMetrics,
    ) -> Self {
        let dir = root.join("image_manager");
        let (pulling, pulled) = (dir.join("pulling"), dir.join("pulled"));
        Self { fs, clock, pulling, pulled, verification, metrics, under_way: Arc::default() }
    }

    /// Brings old records up to date; returns images whose pull an earlier
    /// agent began and never saw the end of.
    pub fn open(&self) -> BTreeSet<String> {
        for (path, record, old) in self.all::<PulledRecord>(&self.pulled) {
            if old && let Err(error) = self.write(&path, &record) {
                tracing::warn!(%error, "record of a pull not brought up to date");
            }
        }
        let mut unfinished = BTreeSet::new();
        for (path, intent, old) in self.all::<PullIntent>(&self.pulling) {
            if old && let Err(error) = self.write(&path, &intent) {
                tracing::warn!(%error, "intent of a pull not brought up to date");
            }
            unfinished.insert(intent.image);
        }
        self.count();
        unfinished
    }

    /// Turns unfinished pulls whose image is there into records without
    /// credentials: it was pulled, but nobody knows with what.
    pub fn settle(&self, unfinished: &BTreeSet<String>, images: &[v1::Image]) {
        for image in images {
            let names = image.repo_tags.iter().chain(&image.repo_digests);
            for name in names.filter(|name| unfinished.contains(*name)) {
                match self.record(name, &image.id, &PullCredentials::default()) {
                    Ok(()) if self.lock().get(name).is_none() => self.remove_intent(name),
                    Ok(()) => {}
                    Err(error) => tracing::warn!(%error, "unfinished pull not settled"),
                }
            }
        }
    }

    /// May the pod use the image that is here, without a pull?
    pub fn may_use(&self, image: &str, image_ref: &str, pod: &PodCredentials) -> bool {
        let (record, pulled) = match self.facts(image, image_ref) {
            Ok(facts) => facts,
            Err(error) => {
                tracing::warn!(image, %error, "records of pulls cannot be read; pulling to be sure");
                self.metrics.checked(MustPull::Error);
                return false;
            }
        };
        let verdict = policy::decide(&self.verification, image, pulled, record.as_ref(), pod);
        self.metrics.checked(match verdict {
            Verdict::Unchecked => MustPull::PolicyAllowed,
            Verdict::Use | Verdict::UseAndRecord(_) => MustPull::RecordFound,
            Verdict::Pull => MustPull::MustAuthenticate,
        });
        match verdict {
            Verdict::Unchecked | Verdict::Use => true,
            Verdict::Pull => false,
            Verdict::UseAndRecord(secret) => {
                let credentials =
                    PullCredentials { kubernetes_secrets: vec![secret], ..Default::default() };
                if let Err(error) = self.record(image, image_ref, &credentials) {
                    tracing::warn!(image, %error, "credentials that may use an image not recorded");
                }
                true
            }
        }
    }

    fn facts(
        &self,
        image: &str,
        image_ref: &str,
    ) -> Result<(Option<PulledRecord>, bool), RecordError> {
        let record = self.read::<PulledRecord>(&self.pulled.join(format::file_name(image_ref)))?;
        // Another image of the same digest is not expected; it would prove nothing.
        let record =
            record.map(|(record, _)| record).filter(|record| record.image_ref == image_ref);
        if record.is_some() || self.lock().contains_key(image) {
            return Ok((record, true));
        }
        let intent = self.read::<PullIntent>(&self.pulling.join(format::file_name(image)))?;
        Ok((None, intent.is_some_and(|(intent, _)| intent.image == image)))
    }

    /// A pull begins. It ends with the guard.
    pub fn begin(&self, image: &str) -> Result<Intent, RecordError> {
        self.write(&self.pulling.join(format::file_name(image)), &PullIntent::new(image))?;
        *self.lock().entry(image.to_owned()).or_default() += 1;
        Ok(Intent { records: self.clone(), image: image.to_owned(), keep: false })
    }

    fn end(&self, image: &str, keep: bool) {
        let mut under_way = self.lock();
        let Some(count) = under_way.get_mut(image) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            under_way.remove(image);
            if !keep {
                self.remove_intent(image);
            }
        }
    }

    fn record(
        &self,
        image: &str,
        image_ref: &str,
        credentials: &PullCredentials,
    ) -> Result<(), RecordError> {
        let path = self.pulled.join(format::file_name(image_ref));
        let old = self.read::<PulledRecord>(&path).unwrap_or_else(|error| {
            tracing::warn!(image, %error, "record of a pull is replaced");
            None
        });
        let (now, name) = (self.clock.wall(), policy::name_of(image));
        let record = match old {
            Some((old, _)) if old.image_ref == image_ref => {
                let Some(merged) = merge::merge(&old, &name, credentials, now) else {
                    return Ok(());
                };
                merged
            }
            _ => {
                let new = PulledRecord::new(image_ref, now);
                merge::merge(&new, &name, credentials, now).unwrap_or(new)
            }
        };
        self.write(&path, &record)
    }

    fn remove_intent(&self, image: &str) {
        let path = self.pulling.join(format::file_name(image));
        if let Err(error) = self.fs.remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "intent of a pull not removed");
        }
        self.count();
    }

    /// Tells how many there are on disk.
    fn count(&self) {
        let ImageMetrics { intents, records, .. } = &self.metrics;
        for (dir, gauge) in [(&self.pulling, intents), (&self.pulled, records)] {
            let names = match self.fs.list(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(_) => continue,
                Ok(names) => names,
            };
            let is_record =
                |entry: &&DirEntry| entry.name.to_str().is_some_and(format::is_record_name);
            let count = names.iter().filter(is_record).count();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    fn all<T: OnDisk>(&self, dir: &Path) -> Vec<(PathBuf, T, bool)> {
        let Ok(entries) = self.fs.list(dir) else { return Vec::new() };
        let is_record = |name: &str| format::is_record_name(name);
        let paths = entries
            .into_iter()
            .filter(|entry| entry.is_file && entry.name.to_str().is_some_and(is_record))
            .map(|entry| dir.join(entry.name));
        paths
            .filter_map(|path| match self.read(&path) {
                Ok(found) => found.map(|(record, old)| (path, record, old)),
                Err(error) => {
                    tracing::warn!(%error, "record of a pull not read");
                    None
                }
            })
            .collect()
    }

    fn read<T: OnDisk>(&self, path: &Path) -> Result<Option<(T, bool)>, RecordError> {
        match self.fs.read(path, RECORD_BYTES_MAX) {
            Ok(content) => format::decode(&content)
                .map(Some)
                .map_err(|why| RecordError::Content { path: path.to_owned(), why }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RecordError::File { path: path.to_owned(), source }),
        }
    }

    fn write(&self, path: &Path, record: &impl OnDisk) -> Result<(), RecordError> {
        let content = format::encode(record)
            .map_err(|why| RecordError::Content { path: path.to_owned(), why })?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        self.fs
            .create_dir_all(dir, 0o700)
            .and_then(|()| self.fs.write(path, &content))
            .map_err(|source| RecordError::File { path: path.to_owned(), source })?;
        self.count();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.under_way.lock().expect("intent lock: no code panics while holding it")
    }
}

/// A pull under way. Dropped without [`Self::succeeded`], it has failed.
pub struct Intent {
    records: Records,
    image: String,
    keep: bool,
}

impl Intent {
    /// The pull succeeded with these credentials.
    pub fn succeeded(mut self, image_ref: &str, credentials: &PullCredentials) {
        if let Err(error) = self.records.record(&self.image, image_ref, credentials) {
            // The intent then goes on saying that a kubelet pulled the image.
            self.keep = true;
            tracing::warn!(image = self.image, %error, "pull not recorded");
        }
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        self.records.end(&self.image, self.keep);
    }
}

#[cfg(test)]
mod tests;
