//! One untidy place: where, what, and how to mend it.

use std::fmt;
use std::path::{Path, PathBuf};

/// An untidy place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    path: PathBuf,
    line: usize,
    what: String,
    mend: &'static str,
}

impl Finding {
    /// In a file, at a line counted from 1.
    pub fn new(
        path: impl AsRef<Path>,
        line: usize,
        what: impl Into<String>,
        mend: &'static str,
    ) -> Self {
        Self { path: path.as_ref().to_owned(), line, what: what.into(), mend }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path.display(), self.line, self.what, self.mend)
    }
}
