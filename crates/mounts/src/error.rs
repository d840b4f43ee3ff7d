//! What can go wrong with a volume's files and mounts, and what to do about it.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountsError {
    /// A system call was refused.
    #[error("cannot {operation} {}: {source}{}", shown(.path), advice(*.source))]
    Call {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: Errno,
    },
    /// The kernel is too old to do this safely.
    #[error(
        "this kernel has no {call}, without which volumes cannot be handled safely; run Linux 5.6 \
         or later, and let a sandbox around the agent allow the call"
    )]
    OldKernel {
        /// The missing call.
        call: &'static str,
    },
    /// A file system was refused.
    #[error(
        "cannot mount {fs_type} on {}: {source}{}{}",
        shown(.target), said(.log), mount_advice(*.source)
    )]
    Mount {
        /// Which kind.
        fs_type: String,
        /// Where.
        target: PathBuf,
        /// Why not.
        source: Errno,
        /// What the kernel said beside that.
        log: String,
    },
    /// Processes still use what is mounted.
    #[error(
        "cannot unmount {}: it is in use; end the processes that have files open there (fuser -m \
         lists them), then try again",
        shown(.path)
    )]
    Busy {
        /// Which mount.
        path: PathBuf,
    },
    /// The machine has nothing to keep a device open with.
    #[error(
        "cannot keep the device {} open: there are no loop devices on this node ({source}); load \
         the kernel's module `loop`, and let a sandbox around the agent see /dev/loop-control",
        .path.display()
    )]
    NoLoopDevices {
        /// Which device.
        path: PathBuf,
        /// Why not.
        source: Errno,
    },
    /// A mount is in the way of a removal.
    #[error(
        "will not remove {}: something is mounted there; unmount it first, then try again",
        shown(.path)
    )]
    MountInside {
        /// Where.
        path: PathBuf,
    },
    /// A file is in the way of a removal of directories.
    #[error(
        "will not remove {}: it is no directory, and may be data of a volume; save what is \
         needed, remove it, and the rest goes",
        shown(.path)
    )]
    FileInside {
        /// Which.
        path: PathBuf,
    },
    /// A path leads out of the volume it should be in.
    #[error(
        "{} leads out of the volume {}, by a symbolic link or by '..'; point the link to a \
         relative path inside the volume",
        shown(.sub_path), shown(.volume)
    )]
    LeavesVolume {
        /// The volume.
        volume: PathBuf,
        /// The path inside it.
        sub_path: PathBuf,
    },
    /// A path that cannot be used.
    #[error("cannot use the path {}: it {why}; give another path", shown(.path))]
    BadPath {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Directories nested deeper than anyone needs.
    #[error(
        "directories below {} are nested more than {limit} deep; remove some of them",
        shown(.path)
    )]
    TooDeep {
        /// The tree.
        path: PathBuf,
        /// How deep is followed.
        limit: usize,
    },
    /// Somebody fills a directory while it is removed.
    #[error(
        "{} keeps filling up while it is removed; end the processes that write to it, then try \
         again",
        shown(.path)
    )]
    KeepsFilling {
        /// Which.
        path: PathBuf,
    },
    /// More text than the kernel should have.
    #[error("{} is longer than {limit} bytes; unmount what is not needed", shown(.path))]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// How much is read.
        limit: u64,
    },
    /// The mount table does not read like one.
    #[error("the mount table says {line:?}, which has no {missing}; is /proc that of this kernel?")]
    Table {
        /// The line.
        line: String,
        /// What was looked for.
        missing: &'static str,
    },
}

impl MountsError {
    pub(crate) fn call(operation: &'static str, path: &Path, source: Errno) -> Self {
        Self::Call { operation, path: path.to_owned(), source }
    }

    pub(crate) fn bad_path(path: &Path, why: &'static str) -> Self {
        Self::BadPath { path: path.to_owned(), why }
    }

    pub(crate) fn mount_inside(path: &Path) -> Self {
        Self::MountInside { path: path.to_owned() }
    }

    /// The error number behind it, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { source, .. } | Self::Mount { source, .. } => Some(*source),
            _ => None,
        }
    }

    /// Whether it failed because something does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }
}

/// Adds the operation and the object to a bare error number.
pub(crate) trait Context<T> {
    /// Names what was tried, and on what.
    fn context(self, operation: &'static str, path: &Path) -> Result<T, MountsError>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn context(self, operation: &'static str, path: &Path) -> Result<T, MountsError> {
        self.map_err(|errno| match (operation, errno) {
            (OPEN, Errno::NOSYS) => MountsError::OldKernel { call: "openat2" },
            _ => MountsError::call(operation, path, errno),
        })
    }
}

/// The operation whose absence means an old kernel.
pub(crate) const OPEN: &str = "open";

/// A path for a message: whoever names files in a volume writes no lines of the log, nor
/// to a terminal.
pub(crate) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" ({log})") }
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => "; run as root with CAP_SYS_ADMIN, CAP_CHOWN and CAP_FOWNER",
        Errno::ROFS => "; the file system is read-only, mount it read-write",
        Errno::NOSPC => "; the file system is full, free space or inodes on it",
        Errno::DQUOT => "; a quota is used up, raise it or free space",
        Errno::MFILE | Errno::NFILE => "; raise the limit of open files",
        Errno::NOENT => "; create it first, or correct the path",
        Errno::NOTDIR | Errno::LOOP => "; a file or a symbolic link is where a directory should be",
        Errno::NOTEMPTY => "; it should be empty, move away what is in it",
        Errno::IO | Errno::STALE | Errno::NOTCONN => {
            "; its device or server does not answer, look into the kernel's log"
        }
        Errno::BUSY => "; something is mounted on it or uses it",
        Errno::NAMETOOLONG => "; shorten the names",
        _ => "; the kernel's log may say more",
    }
}

fn mount_advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NODEV => "; load the kernel module of this file system",
        Errno::INVAL => "; check the mount options, and that the device holds this file system",
        Errno::NXIO | Errno::NOTBLK => "; the source is not a block device that is present",
        Errno::ACCESS => "; the device may be write-protected, mount it read-only",
        Errno::BUSY => "; the device is already mounted with other options, or is in use",
        other => advice(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: MountsError) -> String {
        error.to_string()
    }

    #[test]
    fn a_kernel_without_openat2_is_told_apart() {
        let path = Path::new("/volume");
        let error = Err::<(), _>(Errno::NOSYS).context(OPEN, path).unwrap_err();
        assert_eq!(error, MountsError::OldKernel { call: "openat2" });
        assert!(text(error).contains("run Linux 5.6 or later"));
        let error = Err::<(), _>(Errno::NOENT).context(OPEN, path).unwrap_err();
        assert!(error.is_not_found());
    }

    #[test]
    fn names_of_files_write_no_lines() {
        let path = PathBuf::from("/v/a\nERROR all is lost\x1b[2J\r\u{9b}é b");
        let wanted = r"will not remove /v/a\nERROR all is lost\u{1b}[2J\r\u{9b}é b: something";
        assert!(text(MountsError::mount_inside(&path)).starts_with(wanted));
        let error = Err::<(), _>(Errno::NOENT).context(OPEN, &path).unwrap_err();
        assert!(!text(error).contains(char::is_control));
    }

    #[test]
    fn a_refused_mount_says_what_the_kernel_said() {
        let refused = |log: &str| MountsError::Mount {
            fs_type: "ext4".to_owned(),
            target: "/volume".into(),
            source: Errno::INVAL,
            log: log.to_owned(),
        };
        let wanted = "cannot mount ext4 on /volume: Invalid argument (os error 22)";
        let advice = "; check the mount options, and that the device holds this file system";
        assert_eq!(text(refused("")), format!("{wanted}{advice}"));
        assert_eq!(text(refused("bad size")), format!("{wanted} (bad size){advice}"));
        assert_eq!(refused("").errno(), Some(Errno::INVAL));
    }
}
