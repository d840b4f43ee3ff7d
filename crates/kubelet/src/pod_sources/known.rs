//! One manifest file: its version, its last good pods and objects, and what was
//! last said.
//!
//! Reads the file through the port when its stamp changed. A manifest that
//! breaks keeps its last good pods.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::ConfigObject;
use kubelet_model::manifest::{self, Fnv128, MAX_BYTES, Origin, Prepared, Problem};

use super::PODS_MAX;
use super::notice::Notice;
use crate::ports::{Clock, FileStamp, Fs};

/// A file changed more recently than this may change again without a new
/// stamp: the kernel's clock ticks every few milliseconds.
const STAMP_SETTLES_NS: i128 = 100_000_000;

/// What is known about one manifest.
#[derive(Default)]
pub(super) struct Known {
    /// Version last read; `None` if it must be read again.
    stamp: Option<FileStamp>,
    /// Hash of the content last read.
    content: Option<String>,
    pub(super) good: Option<Vec<Pod>>,
    /// ConfigMaps and Secrets of the same version.
    pub(super) objects: Vec<Arc<ConfigObject>>,
    /// What was last said about it.
    problem: Option<Vec<Problem>>,
}

/// What a look at a manifest led to.
#[derive(Default)]
pub(super) struct Look {
    /// Its pods may have changed.
    pub(super) changed: bool,
    pub(super) notices: Vec<Notice>,
    /// Content to keep as the last good copy.
    pub(super) to_copy: Option<Vec<u8>>,
}

/// What a manifest turned out to be.
enum Found {
    /// The same version, or one that cannot be seen any more.
    Unchanged,
    /// Another version with the same content.
    Touched,
    Good {
        prepared: Prepared,
        bytes: Vec<u8>,
        content: String,
    },
    Bad {
        problems: Vec<Problem>,
        content: Option<String>,
    },
}

/// Reads manifest files.
pub(super) struct ManifestReader {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) node_name: String,
}

impl ManifestReader {
    /// Reads a manifest if it changed. `copy` is the last good copy of an
    /// earlier run, for a manifest this run has not seen yet.
    pub(super) fn look(
        &self,
        path: &Path,
        stamp: FileStamp,
        known: &mut Known,
        copy: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Look {
        match self.find(path, stamp, known) {
            Found::Unchanged => Look::default(),
            Found::Touched => {
                known.stamp = self.settled(stamp);
                Look::default()
            }
            Found::Good { prepared, bytes, content } => {
                known.stamp = self.settled(stamp);
                known.content = Some(content);
                known.accept(path, prepared, bytes)
            }
            Found::Bad { problems, content } => {
                let from_copy = copy().is_some_and(|bytes| self.fall_back(path, &bytes, known));
                // What could not be read has no version.
                known.stamp = content.as_ref().and_then(|_| self.settled(stamp));
                let notice = known.complain(path, problems, content, from_copy);
                Look { changed: from_copy, notices: notice.into_iter().collect(), to_copy: None }
            }
        }
    }

    /// Takes the last good copy of an earlier run; `false` if it is unusable.
    pub(super) fn fall_back(&self, path: &Path, bytes: &[u8], known: &mut Known) -> bool {
        let origin = Origin::File(path.to_owned());
        let Ok(mut prepared) = manifest::prepare(bytes, &self.node_name, &origin) else {
            (known.good, known.objects) = (None, Vec::new());
            return false;
        };
        // When it was good, the limit was said.
        prepared.pods.truncate(PODS_MAX);
        (known.good, known.objects) = (Some(prepared.pods), prepared.objects);
        true
    }

    fn find(&self, path: &Path, stamp: FileStamp, known: &Known) -> Found {
        if known.stamp == Some(stamp) {
            return Found::Unchanged;
        }
        let bytes = match self.fs.read(path, MAX_BYTES) {
            Ok(bytes) => bytes,
            // Listed and gone before it was read: the next look drops it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Found::Unchanged,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                let content = is_final(&error).then(|| message.clone());
                let problem = Problem { line: None, column: None, field: String::new(), message };
                return Found::Bad { problems: vec![problem], content };
            }
        };
        let content = Fnv128::hex_of(&bytes);
        if known.content.as_ref() == Some(&content) {
            return Found::Touched;
        }
        match manifest::prepare(&bytes, &self.node_name, &Origin::File(path.to_owned())) {
            Ok(prepared) => Found::Good { prepared, bytes, content },
            Err(problems) => Found::Bad { problems, content: Some(content) },
        }
    }

    /// The stamp, if a later change is sure to alter it.
    fn settled(&self, stamp: FileStamp) -> Option<FileStamp> {
        let now = self.clock.wall().as_nanosecond();
        let latest = stamp.modified_ns.max(stamp.changed_ns);
        (now - latest >= STAMP_SETTLES_NS).then_some(stamp)
    }
}

/// Too large, no file, a loop of links: that is all there is to know about this
/// version. Anything else may read better the next time.
fn is_final(error: &std::io::Error) -> bool {
    let kinds = [ErrorKind::FileTooLarge, ErrorKind::InvalidInput];
    let looped = rustix::io::Errno::LOOP.raw_os_error();
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(looped)
}

impl Known {
    /// Its content or a good version of it is known.
    pub(super) fn is_read(&self) -> bool {
        self.good.is_some() || self.content.is_some()
    }

    fn accept(&mut self, path: &Path, mut prepared: Prepared, bytes: Vec<u8>) -> Look {
        let origin = path.display().to_string();
        let mut notices = Vec::new();
        if self.problem.take().is_some() {
            notices.push(Notice::Recovered { origin: origin.clone() });
        }
        notices.extend(cap_pods(&mut prepared.pods, || origin.clone()));
        if !prepared.warnings.is_empty() {
            notices.push(Notice::Warnings { origin, warnings: prepared.warnings });
        }
        (self.good, self.objects) = (Some(prepared.pods), prepared.objects);
        Look { changed: true, notices, to_copy: Some(bytes) }
    }

    /// Says what is wrong, unless it was said about this very content.
    fn complain(
        &mut self,
        path: &Path,
        problems: Vec<Problem>,
        content: Option<String>,
        from_copy: bool,
    ) -> Option<Notice> {
        let said = self.problem.as_ref() == Some(&problems);
        let same_content = content.is_none() || content == self.content;
        self.problem = Some(problems.clone());
        self.content = content;
        let origin = path.display().to_string();
        let kept = self.good.is_some();
        (!said || !same_content).then_some(Notice::Broken { origin, problems, kept, from_copy })
    }
}

/// Keeps the first pods of a manifest that has more than a source may have.
pub(super) fn cap_pods(pods: &mut Vec<Pod>, origin: impl FnOnce() -> String) -> Option<Notice> {
    if pods.len() <= PODS_MAX {
        return None;
    }
    pods.truncate(PODS_MAX);
    pods.shrink_to_fit();
    Some(Notice::TooManyPods { origin: origin(), limit: PODS_MAX })
}
