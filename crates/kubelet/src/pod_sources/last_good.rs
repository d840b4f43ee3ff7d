//! Copies of the last good version of each manifest.
//!
//! A manifest that broke while the agent was down must not stop its pod. Owns
//! `<root>/klet/last-good`; one file per manifest, at most [`COPIES_MAX`]. Holds one
//! copy in memory at a time.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_model::manifest::{Fnv128, MAX_BYTES};
use serde::{Deserialize, Serialize};

use super::scan::FILES_MAX;
use crate::ports::Fs;

/// Most copies kept: one for each manifest that is read.
const COPIES_MAX: usize = FILES_MAX;
/// Largest copy read back: JSON may escape every byte of a manifest.
const COPY_BYTES_MAX: usize = 6 * MAX_BYTES + 65_536;

/// One copy as it is stored.
#[derive(Serialize, Deserialize)]
struct Copy {
    path: String,
    manifest: String,
}

/// The copies of one agent.
pub(super) struct LastGood {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// File names of the copies there are; `None` until the first look.
    names: Option<BTreeSet<String>>,
}

impl LastGood {
    pub(super) fn new(fs: Arc<dyn Fs>, root_dir: &Path) -> Self {
        Self { fs, dir: root_dir.join("klet").join("last-good"), names: None }
    }

    /// The copy of a manifest, if there is a usable one.
    pub(super) fn load(&self, path: &Path) -> Option<Vec<u8>> {
        let copy = self.read(&name_of(path))?;
        (copy.path == path.to_string_lossy()).then(|| copy.manifest.into_bytes())
    }

    /// Hands over every copy of a manifest that lies directly in `dir`, or is
    /// `dir` itself.
    pub(super) fn load_below(&mut self, dir: &Path, mut take: impl FnMut(PathBuf, Vec<u8>)) {
        for name in self.names().clone() {
            let Some(copy) = self.read(&name) else { continue };
            let path = PathBuf::from(copy.path);
            if path == dir || path.parent() == Some(dir) {
                take(path, copy.manifest.into_bytes());
            }
        }
    }

    /// Keeps `manifest` as the copy for `path`, unless it already is.
    ///
    /// # Errors
    /// The copy cannot be written, or there are too many.
    pub(super) fn store(&mut self, path: &Path, manifest: &[u8]) -> io::Result<()> {
        if self.load(path).as_deref() == Some(manifest) {
            return Ok(());
        }
        let name = name_of(path);
        let known = self.names();
        if !known.contains(&name) && known.len() >= COPIES_MAX {
            return Err(io::Error::other(format!("there are already {COPIES_MAX} copies")));
        }
        let copy = Copy {
            path: path.to_string_lossy().into_owned(),
            // A good manifest is text.
            manifest: String::from_utf8_lossy(manifest).into_owned(),
        };
        let content = serde_json::to_vec(&copy).map_err(io::Error::other)?;
        self.fs.create_dir_all(&self.dir, 0o700)?;
        self.fs.write(&self.dir.join(&name), &content)?;
        self.names().insert(name);
        Ok(())
    }

    /// Removes the copies of every manifest that is not among `paths`.
    ///
    /// # Errors
    /// The first copy that cannot be removed.
    pub(super) fn keep_only<'p>(
        &mut self,
        paths: impl Iterator<Item = &'p Path>,
    ) -> io::Result<()> {
        let wanted: BTreeSet<String> = paths.map(name_of).collect();
        let doomed: Vec<String> = self.names().difference(&wanted).cloned().collect();
        for name in doomed {
            self.fs.remove_file(&self.dir.join(&name))?;
            self.names().remove(&name);
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Option<Copy> {
        // A copy that cannot be read is as good as none. So is one that a power
        // cut tore: what was not written is missing or zero bytes, and JSON
        // allows neither.
        let content = self.fs.read(&self.dir.join(name), COPY_BYTES_MAX).ok()?;
        serde_json::from_slice(&content).ok()
    }

    fn names(&mut self) -> &mut BTreeSet<String> {
        let (fs, dir) = (&self.fs, &self.dir);
        self.names.get_or_insert_with(|| {
            let entries = match fs.list(dir) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %error, "cannot list last good copies");
                    Vec::new()
                }
            };
            let names = entries.into_iter().filter(|entry| entry.is_file);
            names.filter_map(|entry| entry.name.into_string().ok()).collect()
        })
    }
}

fn name_of(path: &Path) -> String {
    format!("{}.json", Fnv128::hex_of(path.as_os_str().as_encoded_bytes()))
}
