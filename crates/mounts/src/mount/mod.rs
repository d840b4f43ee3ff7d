//! Mounting of file systems: memory, huge pages, devices.
//!
//! A file system is made apart and then put on the open target, so the target's
//! name is resolved once. Never runs a mount helper.
//! Upstream: k8s.io/mount-utils, pkg/volume/emptydir.

mod options;

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

use crate::error::{Context, MountsError, OPEN};
use crate::place::{Entry, NAME, Place, facts};
pub(crate) use options::{Options, split_options};

/// Messages of the kernel kept with an error, and the length of each.
const LOG_LINES_MAX: usize = 8;
const LOG_LINE_BYTES_MAX: usize = 512;

/// A file system in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tmpfs {
    /// Bytes it may hold; half of the memory unless given.
    pub size: Option<NonZeroU64>,
    /// Mode of its root, 1777 unless given.
    pub mode: Option<u32>,
}

/// A file system of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of a page.
    pub page_size: NonZeroU64,
    /// Bytes it may hold; no limit unless given.
    pub size: Option<NonZeroU64>,
}

/// A file system on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device<'a> {
    /// The device.
    pub source: &'a Path,
    /// Kind of file system.
    pub fs_type: &'a str,
    /// Options as in fstab, one each.
    pub options: &'a [String],
    /// Whether it is read-only, whatever the options say.
    pub read_only: bool,
}

/// Mounts memory on a directory. True if its pages are never swapped out, which
/// Linux 6.4 and later can promise.
pub fn tmpfs(target: &Path, tmpfs: Tmpfs) -> Result<bool, MountsError> {
    let making = Making::start("tmpfs", "tmpfs", target)?;
    if let Some(size) = tmpfs.size {
        making.set("size", Some(&size.to_string()))?;
    }
    if let Some(mode) = tmpfs.mode {
        making.set("mode", Some(&format!("{mode:o}")))?;
    }
    let noswap = making.set("noswap", None).is_ok();
    making.finish(MountAttrFlags::empty())?;
    Ok(noswap)
}

/// Can memory be mounted so that its pages are never swapped out? Mounts nothing.
pub fn can_refuse_swap() -> Result<bool, MountsError> {
    let making = Making::start("tmpfs", "tmpfs", Path::new(""))?;
    Ok(making.set("noswap", None).is_ok())
}

/// Mounts huge pages on a directory, without devices.
pub fn hugetlbfs(target: &Path, pages: HugePages) -> Result<(), MountsError> {
    let making = Making::start("hugetlbfs", "nodev", target)?;
    making.set("pagesize", Some(&pages.page_size.to_string()))?;
    if let Some(size) = pages.size {
        making.set("size", Some(&size.to_string()))?;
    }
    making.finish(MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// Mounts a device on a directory.
pub fn device(target: &Path, device: &Device<'_>) -> Result<(), MountsError> {
    let source = device
        .source
        .to_str()
        .ok_or_else(|| MountsError::bad_path(device.source, "is not UTF-8"))?;
    let mut options = split_options(device.options).ok_or_else(|| MountsError::Mount {
        fs_type: device.fs_type.to_owned(),
        target: target.to_owned(),
        source: Errno::INVAL,
        log: "the options ask for another kind of mount than that of a device".to_owned(),
    })?;
    if device.read_only {
        options.read_only = true;
    }
    let making = Making::start(device.fs_type, source, target)?;
    if options.read_only {
        making.set("ro", None)?;
        options.flags |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    for (key, value) in &options.of_fs {
        making.set(key, value.as_deref())?;
    }
    making.finish(options.flags)
}

/// A file system in the making.
struct Making<'a> {
    fs: OwnedFd,
    fs_type: &'a str,
    target: &'a Path,
}

impl<'a> Making<'a> {
    fn start(fs_type: &'a str, source: &str, target: &'a Path) -> Result<Self, MountsError> {
        let fs = match rustix::mount::fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(fs) => fs,
            Err(Errno::NOSYS) => return Err(MountsError::OldKernel { call: "fsopen" }),
            Err(source) => {
                let (fs_type, target) = (fs_type.to_owned(), target.to_owned());
                return Err(MountsError::Mount { fs_type, target, source, log: String::new() });
            }
        };
        let making = Self { fs, fs_type, target };
        making.set("source", Some(source))?;
        Ok(making)
    }

    fn set(&self, key: &str, value: Option<&str>) -> Result<(), MountsError> {
        let result = match value {
            Some(value) => rustix::mount::fsconfig_set_string(&self.fs, key, value),
            None => rustix::mount::fsconfig_set_flag(&self.fs, key),
        };
        result.map_err(|errno| {
            let mut error = self.refused(errno);
            if let MountsError::Mount { log, .. } = &mut error
                && log.is_empty()
            {
                *log = format!("option {key}");
            }
            error
        })
    }

    fn finish(self, flags: MountAttrFlags) -> Result<(), MountsError> {
        // Resolved first: a bad target should not start a device up.
        let target = Target::open(self.target)?;
        let mounted = rustix::mount::fsconfig_create(&self.fs)
            .and_then(|()| rustix::mount::fsmount(&self.fs, FsMountFlags::FSMOUNT_CLOEXEC, flags))
            .and_then(|mount| target.attach(&mount));
        mounted.map_err(|errno| self.refused(errno))
    }

    /// Reads out what the kernel has to say.
    fn refused(&self, source: Errno) -> MountsError {
        let mut lines = Vec::new();
        let mut line = [0; LOG_LINE_BYTES_MAX];
        while lines.len() < LOG_LINES_MAX {
            let Ok(length) = rustix::io::read(&self.fs, &mut line) else { break };
            let text = String::from_utf8_lossy(&line[..length]);
            // Each begins with a letter for its weight.
            lines.push(text.get(2..).unwrap_or_default().trim().to_owned());
        }
        MountsError::Mount {
            fs_type: self.fs_type.to_owned(),
            target: self.target.to_owned(),
            source,
            log: lines.join("; "),
        }
    }
}

/// An open file or directory to mount on.
pub(crate) struct Target(OwnedFd);

impl From<Place> for Target {
    fn from(place: Place) -> Self {
        Self(place.into())
    }
}

impl Target {
    pub(crate) fn open(path: &Path) -> Result<Self, MountsError> {
        Self::at(&Entry::of(path)?)
    }

    pub(crate) fn at(entry: &Entry) -> Result<Self, MountsError> {
        let fd = entry.open(NAME).context(OPEN, &entry.path)?;
        let facts = facts(&fd).context("look at", &entry.path)?;
        if FileType::from_raw_mode(facts.stx_mode.into()) == FileType::Symlink {
            return Err(MountsError::bad_path(&entry.path, "is a symbolic link"));
        }
        Ok(Self(fd))
    }

    /// Puts a mount that is nowhere yet on it.
    pub(crate) fn attach(&self, mount: &OwnedFd) -> Result<(), Errno> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(mount, c"", &self.0, c"", flags)
    }
}
