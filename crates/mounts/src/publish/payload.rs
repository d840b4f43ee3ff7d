//! What to publish, and which paths it may have. No I/O.
//!
//! Upstream: pkg/volume/util/atomic_writer.go (validatePath).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 4096;

/// One file.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    /// Content.
    pub data: Vec<u8>,
    /// Exact permissions, whatever the umask.
    pub mode: u32,
    /// Owner, if not root.
    pub owner: Option<u32>,
}

/// Its size, but not its content: it may be a secret.
impl fmt::Debug for PayloadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, mode, owner } = self;
        write!(f, "{} bytes, mode {mode:o}, owner {owner:?}", data.len())
    }
}

/// Files by their paths in the volume, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payload {
    files: BTreeMap<String, PayloadFile>,
}

/// Why a path cannot be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It names nothing.
    #[error("invalid path: must not be empty: {0:?}")]
    Empty(String),
    /// It begins at the root.
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    /// It is too long.
    #[error("invalid path: must be less than or equal to {PATH_BYTES_MAX} characters")]
    TooLong,
    /// A name in it is too long.
    #[error("invalid path: filenames must be less than or equal to {NAME_BYTES_MAX} characters")]
    NameTooLong,
    /// It climbs.
    #[error("invalid path: must not contain '..': {0}")]
    Backsteps(String),
    /// Names that begin so belong to the publisher.
    #[error("invalid path: must not start with '..': {0}")]
    Reserved(String),
    /// No file system takes it.
    #[error("invalid path: must not contain a NUL byte: {0:?}")]
    Nul(String),
    /// It is a file and a directory at once.
    #[error("invalid path: {0} is a file and cannot also hold {1}; rename one of them")]
    FileAndDirectory(String, String),
}

impl Payload {
    /// Checks paths and gives each its shortest form; of two that are the same
    /// then, the later one counts.
    pub fn new(files: impl IntoIterator<Item = (String, PayloadFile)>) -> Result<Self, PathError> {
        let mut checked = BTreeMap::new();
        for (path, file) in files {
            checked.insert(clean_path(&path)?, file);
        }
        for path in checked.keys() {
            if let Some(above) = parents(path).find(|above| checked.contains_key(*above)) {
                return Err(PathError::FileAndDirectory(above.to_owned(), path.clone()));
            }
        }
        Ok(Self { files: checked })
    }

    /// The files, by their paths.
    pub fn files(&self) -> &BTreeMap<String, PayloadFile> {
        &self.files
    }

    /// Every file and directory there should be.
    pub(super) fn paths(&self) -> BTreeSet<&str> {
        self.files.keys().flat_map(|path| parents(path).chain([path.as_str()])).collect()
    }

    /// The first names, each with the owner of the first file below it.
    pub(super) fn visible(&self) -> BTreeMap<&str, Option<u32>> {
        let mut visible = BTreeMap::new();
        for (path, file) in &self.files {
            let name = path.split('/').next().unwrap_or(path);
            visible.entry(name).or_insert(file.owner);
        }
        visible
    }
}

/// The directories above a path: `a` and `a/b` for `a/b/c`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn clean_path(path: &str) -> Result<String, PathError> {
    if path.starts_with('/') {
        return Err(PathError::Absolute(path.to_owned()));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong);
    }
    if path.contains('\0') {
        return Err(PathError::Nul(path.to_owned()));
    }
    let names: Vec<&str> =
        path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    let Some(first) = names.first() else { return Err(PathError::Empty(path.to_owned())) };
    if names.contains(&"..") {
        return Err(PathError::Backsteps(path.to_owned()));
    }
    if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(PathError::NameTooLong);
    }
    // Looked at after cleaning: "./..data" is the publisher's as much as "..data".
    if first.starts_with("..") {
        return Err(PathError::Reserved(path.to_owned()));
    }
    Ok(names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(paths: &[&str]) -> Result<Payload, PathError> {
        let file = |path: &str| PayloadFile { data: path.into(), mode: 0o644, owner: None };
        Payload::new(paths.iter().map(|path| ((*path).to_owned(), file(path))))
    }

    #[test]
    fn paths_are_checked() {
        let name = "n".repeat(256);
        let long = "a/".repeat(2049);
        let own = |text: &str| text.to_owned();
        for (path, wanted) in [
            ("", Err(PathError::Empty(own("")))),
            ("./.", Err(PathError::Empty(own("./.")))),
            ("/a", Err(PathError::Absolute(own("/a")))),
            ("a/../b", Err(PathError::Backsteps(own("a/../b")))),
            ("..", Err(PathError::Backsteps(own("..")))),
            ("..data", Err(PathError::Reserved(own("..data")))),
            ("./..data", Err(PathError::Reserved(own("./..data")))),
            ("...", Err(PathError::Reserved(own("...")))),
            ("a\0", Err(PathError::Nul(own("a\0")))),
            (&name, Err(PathError::NameTooLong)),
            (&long, Err(PathError::TooLong)),
            ("a/..b", Ok(own("a/..b"))),
            (".a//b/./c/", Ok(own(".a/b/c"))),
        ] {
            assert_eq!(clean_path(path), wanted, "{path:?}");
        }
    }

    #[test]
    fn a_file_is_no_directory() {
        let error = payload(&["a/b", "a/b/c/d"]).unwrap_err();
        assert_eq!(error, PathError::FileAndDirectory("a/b".into(), "a/b/c/d".into()));
        payload(&["a/b", "a/bc", "a/b-/c"]).unwrap();
    }

    #[test]
    fn paths_include_directories_and_visible_names_are_first_names() {
        let payload = payload(&["a/b/c", "a/d", "e"]).unwrap();
        assert_eq!(Vec::from_iter(payload.paths()), ["a", "a/b", "a/b/c", "a/d", "e"]);
        assert_eq!(Vec::from_iter(payload.visible().into_keys()), ["a", "e"]);
    }
}
