//! Paths of the host: whether one is what its volume says it is.
//!
//! Follows links, as the paths are an administrator's. Makes what the type asks
//! to make. The texts of errors are upstream's, as users see them in events.
//! Upstream: pkg/volume/hostpath.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Context, MountsError, shown};
use crate::place::{LIST, facts, open_inside, resolve};

/// What a path should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPathType {
    /// Anything, or nothing.
    Unset,
    /// A directory, made with mode 0755 if missing, and those above it.
    DirectoryOrCreate,
    /// A directory.
    Directory,
    /// A file, made with mode 0644 if missing.
    FileOrCreate,
    /// A file.
    File,
    /// A unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Why a path cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPathError {
    /// It has an element `..`.
    #[error("invalid HostPath `{}`: must not contain '..'", shown(.0))]
    Backsteps(PathBuf),
    /// It is something else.
    #[error("hostPath type check failed: {} is not a {wanted}", shown(.path))]
    Mismatch {
        /// Which.
        path: PathBuf,
        /// What it should be.
        wanted: &'static str,
    },
    /// No such type.
    #[error("{0} is an invalid volume type")]
    Type(String),
    /// It cannot be made.
    #[error(transparent)]
    Make(#[from] MountsError),
}

impl FromStr for HostPathType {
    type Err = HostPathError;

    fn from_str(text: &str) -> Result<Self, HostPathError> {
        Ok(match text {
            "" => Self::Unset,
            "DirectoryOrCreate" => Self::DirectoryOrCreate,
            "Directory" => Self::Directory,
            "FileOrCreate" => Self::FileOrCreate,
            "File" => Self::File,
            "Socket" => Self::Socket,
            "CharDevice" => Self::CharDevice,
            "BlockDevice" => Self::BlockDevice,
            other => return Err(HostPathError::Type(other.to_owned())),
        })
    }
}

impl HostPathType {
    /// The kind of file, and what users call it.
    fn wanted(self) -> Option<(FileType, &'static str)> {
        Some(match self {
            Self::Unset => return None,
            Self::DirectoryOrCreate | Self::Directory => (FileType::Directory, "directory"),
            Self::FileOrCreate | Self::File => (FileType::RegularFile, "file"),
            Self::Socket => (FileType::Socket, "socket file"),
            Self::CharDevice => (FileType::CharacterDevice, "character device"),
            Self::BlockDevice => (FileType::BlockDevice, "block device"),
        })
    }
}

/// Checks a path, and makes what is missing if the type asks for it.
pub fn check(path: &Path, kind: HostPathType) -> Result<(), HostPathError> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(HostPathError::Backsteps(path.to_owned()));
    }
    let Some((file_type, wanted)) = kind.wanted() else { return Ok(()) };
    let found = match open(path) {
        Ok(fd) => facts(&fd).ok().map(|facts| FileType::from_raw_mode(facts.stx_mode.into())),
        // Like upstream: what cannot be looked at counts as absent.
        Err(_) if kind == HostPathType::DirectoryOrCreate => return Ok(make_dirs(path)?),
        Err(_) if kind == HostPathType::FileOrCreate => Some(make_file(path)?),
        Err(_) => None,
    };
    if found == Some(file_type) {
        return Ok(());
    }
    Err(HostPathError::Mismatch { path: path.to_owned(), wanted })
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    resolve(CWD, path, OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::empty())
}

/// From the longest part that exists, with its links, only new directories.
fn make_dirs(path: &Path) -> Result<(), MountsError> {
    const OPERATION: &str = "create directory";
    let mut missing = Vec::new();
    let mut known = path;
    let mut dir = loop {
        match (open(known), known.parent(), known.file_name()) {
            (Ok(dir), ..) => break dir,
            (Err(Errno::NOENT), Some(parent), Some(name)) => {
                missing.push(name);
                known = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            }
            (Err(errno), ..) => return Err(MountsError::call(OPERATION, path, errno)),
        }
    };
    for name in missing.into_iter().rev() {
        match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(MountsError::call(OPERATION, path, errno)),
        }
        dir = open_inside(&dir, name, LIST).context(OPERATION, path)?;
    }
    Ok(())
}

/// Makes a file, also where a link leads to nothing, and says what is there.
fn make_file(path: &Path) -> Result<FileType, MountsError> {
    // Another may come first, and a pipe would block.
    let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let made = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
        .context("create file", path)?;
    let facts = facts(&made).context("look at", path)?;
    Ok(FileType::from_raw_mode(facts.stx_mode.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn text(path: &Path, kind: &str) -> String {
        match kind.parse().and_then(|kind| check(path, kind)) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string().replace(&format!("{}", path.display()), "P"),
        }
    }

    #[test]
    fn types_are_checked_with_upstreams_texts() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink("dir", at("link")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let failed = |what: &str| format!("hostPath type check failed: P is not a {what}");
        for (name, kind, wanted) in [
            ("absent", "", "ok".to_owned()),
            ("dir", "Directory", "ok".to_owned()),
            ("link", "Directory", "ok".to_owned()),
            ("link", "DirectoryOrCreate", "ok".to_owned()),
            ("file", "DirectoryOrCreate", failed("directory")),
            ("absent", "Directory", failed("directory")),
            ("file", "File", "ok".to_owned()),
            ("dir", "File", failed("file")),
            ("dir", "FileOrCreate", failed("file")),
            ("socket", "Socket", "ok".to_owned()),
            ("file", "Socket", failed("socket file")),
            ("file", "CharDevice", failed("character device")),
            ("file", "BlockDevice", failed("block device")),
            ("file", "Pipe", "Pipe is an invalid volume type".to_owned()),
            ("a/../b", "", "invalid HostPath `P`: must not contain '..'".to_owned()),
        ] {
            assert_eq!(text(&at(name), kind), wanted, "{name} {kind}");
        }
        assert_eq!(text(Path::new("/dev/null"), "CharDevice"), "ok");
    }

    #[test]
    fn what_is_missing_is_made() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("real")).unwrap();
        symlink("real", temp.path().join("link")).unwrap();
        let dir = temp.path().join("link/a/b");
        assert_eq!(text(&dir, "DirectoryOrCreate"), "ok");
        assert!(temp.path().join("real/a/b").is_dir());
        let file = dir.join("file");
        assert_eq!(text(&file, "FileOrCreate"), "ok");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        symlink("target", dir.join("dangling")).unwrap();
        assert_eq!(text(&dir.join("dangling"), "FileOrCreate"), "ok");
        assert!(dir.join("target").is_file());
        let error = text(&dir.join("none/file"), "FileOrCreate");
        assert!(error.starts_with("cannot create file P: No such file or directory"), "{error}");
    }
}
