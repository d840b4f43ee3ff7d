//! Bounded reads of the kernel's small files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest file read is `cgroup.procs` of a large group.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A file that should tell something and does not.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What it says makes no sense.
    #[error("{path} should hold {expected}")]
    Unexpected {
        /// Which.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
    },
}

impl FileError {
    pub(crate) fn unexpected(path: &Path, expected: &'static str) -> Self {
        Self::Unexpected { path: path.to_owned(), expected }
    }
}

/// Text of a file.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let text = || {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        io::Result::Ok(text)
    };
    text().map_err(|source| FileError::Read { path: path.to_owned(), source })
}

/// Text of a file; `None` if there is no such file, or the kernel has nothing to tell.
pub(crate) fn read_if_any(path: &Path) -> Result<Option<String>, FileError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(FileError::Read { source, .. }) if is_absent(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A removed group's open file says ENODEV, a process that ended ESRCH, pressure
/// that is switched off EOPNOTSUPP.
fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let absent = [Errno::NOENT, Errno::NOTDIR, Errno::NODEV, Errno::SRCH, Errno::OPNOTSUPP];
    absent.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The number in a file, if there is such a file.
pub(crate) fn number(path: &Path) -> Result<Option<u64>, FileError> {
    let Some(text) = read_if_any(path)? else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| FileError::unexpected(path, "a number"))
}

/// Numbers from this on mean "no limit": the kernel rounds the largest one to pages.
const NO_LIMIT: u64 = 1 << 62;

/// A limit, as version 1 (huge numbers, -1) and version 2 (`max`) write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// This much.
    At(u64),
    /// As much as there is.
    None,
}

impl Limit {
    /// What is left below it; `None` without a limit.
    pub fn left(self, used: u64) -> Option<u64> {
        match self {
            Self::At(limit) => Some(limit.saturating_sub(used)),
            Self::None => None,
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "max" | "-1" => Some(Self::None),
            text => {
                let value: u64 = text.parse().ok()?;
                Some(if value > NO_LIMIT { Self::None } else { Self::At(value) })
            }
        }
    }
}

/// The limit in a file, if there is such a file.
pub(crate) fn limit(path: &Path) -> Result<Option<Limit>, FileError> {
    let Some(text) = read_if_any(path)? else { return Ok(None) };
    Limit::parse(&text).map(Some).ok_or_else(|| FileError::unexpected(path, "a number or max"))
}

/// The value after a key, in a text of lines `key value`.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::{Limit, keyed};

    #[test]
    fn limits_of_both_versions() {
        let table = [
            ("max\n", Some(Limit::None)),
            ("-1", Some(Limit::None)),
            ("9223372036854771712\n", Some(Limit::None)),
            ("1048576\n", Some(Limit::At(1_048_576))),
            ("0", Some(Limit::At(0))),
            ("", None),
            ("1.5", None),
        ];
        for (text, expected) in table {
            assert_eq!(Limit::parse(text), expected, "{text:?}");
        }
        assert_eq!(Limit::At(5).left(7), Some(0));
        assert_eq!(Limit::None.left(7), None);
    }

    #[test]
    fn keys_are_whole_words() {
        let text = "total_rss_huge 7\ntotal_rss 3\nbad\nodd x\n";
        assert_eq!(keyed(text, "total_rss"), Some(3));
        assert_eq!(keyed(text, "rss"), None);
        assert_eq!(keyed(text, "odd"), None);
    }
}
