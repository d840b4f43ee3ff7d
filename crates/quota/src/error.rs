//! What can go wrong, and what to do about it.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why a directory cannot be counted, or not any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// A system call was refused.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Call {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: Errno,
    },
    /// A project file could be anything.
    #[error("{} is no plain file; remove it, or put a plain file there", .path.display())]
    NotPlain {
        /// Which.
        path: PathBuf,
    },
    /// A project file is in use.
    #[error(
        "{} has been locked by another process for {seconds} s; see who holds it (lslocks), and \
         try again",
        .path.display()
    )]
    Locked {
        /// Which.
        path: PathBuf,
        /// How long this caller waited.
        seconds: u64,
    },
    /// A project file has no sensible size.
    #[error("{} is larger than {limit} bytes; remove what is not needed", .path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// What is read at most.
        limit: u64,
    },
    /// A path that no line can hold.
    #[error("{} cannot be written to a project file: it contains a line break", .path.display())]
    BadPath {
        /// Which.
        path: PathBuf,
    },
    /// All numbers are in use.
    #[error(
        "no project is free for {}: {tried} that no project file mentions hold files; remove \
         those files, or list their projects in /etc/projects",
        .path.display()
    )]
    NoneFree {
        /// What was to be counted.
        path: PathBuf,
        /// How many were looked at.
        tried: usize,
    },
    /// Somebody took the directory out of its project.
    #[error("{} is in project {found} and no longer in {expected}", .path.display())]
    Moved {
        /// Which directory.
        path: PathBuf,
        /// The agent's project.
        expected: u32,
        /// Where it is now; 0 is none.
        found: u32,
    },
}

pub(crate) trait Context<T> {
    /// Names what was tried on what.
    fn context(self, operation: &'static str, path: &Path) -> Result<T, QuotaError>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, QuotaError> {
        let path = || path.to_owned();
        self.map_err(|source| QuotaError::Call { operation, path: path(), source })
    }
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, QuotaError> {
        self.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            .context(operation, path)
    }
}
