//! What can go wrong with a group, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::name::NameError;

/// Why a group could not be read, made, changed or removed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CgroupError {
    /// The root shows no control groups.
    #[error(
        "no control groups below {}: mount cgroup2 there, or the cgroup v1 controllers cpu, \
         cpuacct, cpuset and memory",
        .0.display()
    )]
    NotMounted(PathBuf),
    /// A version 1 machine lacks a controller that pods need.
    #[error(
        "cgroup controller {} not mounted below {}; mount it, or start the kernel without cgroup_disable",
        .missing.join(", "),
        .root.display()
    )]
    MissingControllers {
        /// Where they should be.
        root: PathBuf,
        /// Which.
        missing: Vec<String>,
    },
    /// A directory cannot be made.
    #[error("cannot create control group {}: {source}{}", .path.display(), hint(.source))]
    Create {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// A value was refused.
    #[error("cannot write {value:?} to {}: {source}{}", .path.display(), hint(.source))]
    Write {
        /// Which file.
        path: PathBuf,
        /// What.
        value: String,
        /// Why.
        source: Arc<io::Error>,
    },
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}{}", .path.display(), hint(.source))]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// A directory cannot be removed.
    #[error("cannot remove control group {}: {source}{}", .path.display(), hint(.source))]
    Remove {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Arc<io::Error>,
    },
    /// Killed processes have not gone yet, or cannot go.
    #[error(
        "control group {group} still holds processes {pids:?} after they were killed; they may \
         be stuck in the kernel, try again later"
    )]
    Busy {
        /// Which group.
        group: String,
        /// Some of its processes.
        pids: Vec<i32>,
    },
    /// The tree below a group is larger than any runtime makes.
    #[error("control group {} has more than {limit} groups below it; remove them by hand", .path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// How many are followed.
        limit: usize,
    },
    /// A file does not say what the kernel should say there.
    #[error("{} says {text:?}, which is not {expected}", .path.display())]
    Unexpected {
        /// Which file.
        path: PathBuf,
        /// What it says.
        text: String,
        /// What it should.
        expected: &'static str,
    },
    /// A name that cannot be a group's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Groups are systemd's, and it cannot be asked.
    #[error(
        "cannot ask systemd for control groups (cgroup driver systemd): {why}; check that systemd \
         runs and its bus is reachable (in a container, mount /run), or set cgroupDriver: cgroupfs, \
         and SystemdCgroup = false in the runtime"
    )]
    SystemdUnreachable {
        /// What went wrong.
        why: String,
    },
    /// systemd says no.
    #[error(
        "systemd refused to {operation} {unit}: {why}; see systemctl status and journalctl -u {unit}"
    )]
    SystemdRefused {
        /// What it was asked to do.
        operation: &'static str,
        /// With which unit.
        unit: String,
        /// In its words.
        why: String,
    },
    /// The driver is not known yet.
    #[error(
        "the runtime has not yet said which cgroup driver it uses; check that it runs and answers"
    )]
    DriverUnknown,
}

impl CgroupError {
    pub(crate) fn create(path: &Path, source: io::Error) -> Self {
        Self::Create { path: path.to_owned(), source: Arc::new(source) }
    }
    pub(crate) fn write(path: &Path, value: &str, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), value: value.to_owned(), source: Arc::new(source) }
    }
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source: Arc::new(source) }
    }
    pub(crate) fn remove(path: &Path, source: io::Error) -> Self {
        Self::Remove { path: path.to_owned(), source: Arc::new(source) }
    }
}

/// What to do about the errors that a machine's set-up causes.
fn hint(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "; run as root, and in a container give it the host's cgroup namespace and write access"
        }
        Some(Errno::ROFS) => "; mount the control groups read-write (a container needs privileged)",
        Some(Errno::NOSPC) => "; the kernel's limit of groups is reached, remove unused ones",
        Some(Errno::BUSY) => {
            "; processes use it (in version 2, only a group without processes of its own can \
             pass controllers on)"
        }
        Some(Errno::NOENT) => "; the kernel lacks this controller or the group is gone",
        _ => "",
    }
}
