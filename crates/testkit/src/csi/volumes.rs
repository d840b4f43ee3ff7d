//! The volumes of a driver: directories, or devices, bound to where callers want them.
//!
//! Answers come from the disk and the mount table alone, as they must in a
//! driver that may crash at any time. Touches nothing outside the kubelet's
//! directory. Notes the mounts it makes, only to clean up after a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use tonic::Status;

use super::script::lock;
use super::wanted::Wanted;
use crate::host;

/// Key of the volume context that gives a volume a size, in bytes.
pub const SIZE_KEY: &str = "size";

/// All volumes of a driver.
pub(super) struct Volumes {
    /// The kubelet's directory; its path has no symbolic links.
    root: PathBuf,
    /// One directory per volume, with `data` and perhaps `size` in it.
    pub(super) dir: PathBuf,
    made: Mutex<BTreeSet<PathBuf>>,
    /// The driver stages volumes.
    stages: bool,
}

pub(super) fn failed(what: &str, path: &Path, err: impl Into<io::Error>) -> Status {
    Status::internal(format!("cannot {what} {}: {}", path.display(), err.into()))
}

impl Volumes {
    pub(super) fn new(root: &Path, dir: PathBuf, stages: bool) -> Self {
        Self { root: root.to_owned(), dir, made: Mutex::default(), stages }
    }

    /// Where the volume's files are.
    pub(super) fn data(&self, volume: &str) -> PathBuf {
        self.dir.join(volume).join("data")
    }

    fn size_file(&self, volume: &str) -> PathBuf {
        self.dir.join(volume).join("size")
    }

    /// The volume's size, if it has one.
    pub(super) fn size(&self, volume: &str) -> Option<u64> {
        fs::read_to_string(self.size_file(volume)).ok()?.parse().ok()
    }

    pub(super) fn set_size(&self, volume: &str, size: u64) -> Result<(), Status> {
        let file = self.size_file(volume);
        fs::write(&file, size.to_string()).map_err(|err| failed("write", &file, err))
    }

    /// Makes the volume if it is new, and sets its group.
    fn prepare(
        &self,
        volume: &str,
        wanted: &Wanted,
        context: &BTreeMap<String, String>,
    ) -> Result<PathBuf, Status> {
        let data = self.data(volume);
        fs::create_dir_all(&data).map_err(|err| failed("create", &data, err))?;
        if let Some(size) = context.get(SIZE_KEY)
            && self.size(volume).is_none()
        {
            let size = size.parse().map_err(|_| Status::invalid_argument("size is no number"))?;
            self.set_size(volume, size)?;
        }
        if let Some(group) = wanted.group {
            let give = || {
                chown(&data, None, Some(group))?;
                let mode = fs::metadata(&data)?.mode() | 0o2770;
                fs::set_permissions(&data, fs::Permissions::from_mode(mode))
            };
            give().map_err(|err| failed("give to the group", &data, err))?;
        }
        Ok(data)
    }

    pub(super) fn stage(
        &self,
        volume: &str,
        staging: &str,
        wanted: &Wanted,
        context: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        self.check_id(volume)?;
        let staging = self.below(staging)?;
        if wanted.block {
            return self.attach(volume, context).map(drop);
        }
        let data = self.prepare(volume, wanted, context)?;
        self.bind(&data, &staging, wanted.flags)
    }

    /// Publishes from `staging`, or the volume itself if there is no staging.
    pub(super) fn publish(
        &self,
        volume: &str,
        staging: Option<&str>,
        target: &str,
        wanted: &Wanted,
        context: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        self.check_id(volume)?;
        let target = self.below(target)?;
        if wanted.block {
            let device = match (staging, self.device(volume)?) {
                (_, Some(device)) => device,
                (None, None) => self.attach(volume, context)?,
                (Some(_), None) => {
                    return Err(Status::failed_precondition(format!("{volume} is not staged")));
                }
            };
            let made = OpenOptions::new().write(true).create(true).truncate(false).open(&target);
            made.map_err(|err| failed("create", &target, err))?;
            return self.bind(&device, &target, wanted.flags);
        }
        let source = match staging {
            Some(staging) => self.mounted_at(volume, staging).map_err(|_| {
                Status::failed_precondition(format!("{volume} is not staged at {staging:?}"))
            })?,
            None => self.prepare(volume, wanted, context)?,
        };
        // The caller makes the parent, and only that.
        match fs::create_dir(&target) {
            Err(err) if err.kind() != ErrorKind::AlreadyExists => {
                return Err(failed("create", &target, err));
            }
            _ => (),
        }
        self.bind(&source, &target, wanted.flags)
    }

    pub(super) fn unpublish(&self, volume: &str, target: &str) -> Result<(), Status> {
        self.check_id(volume)?;
        self.release(volume, &self.below(target)?)?;
        // A driver that stages nothing is done with the device when nobody has it.
        if self.is_block(volume) && !self.stages && self.mounts_of(volume)?.is_empty() {
            return self.detach(volume);
        }
        Ok(())
    }

    pub(super) fn unstage(&self, volume: &str, staging: &str) -> Result<(), Status> {
        self.check_id(volume)?;
        let staging = self.below(staging)?;
        let mounts = self.mounts_of(volume)?;
        if let Some(target) = mounts.iter().find(|path| **path != staging) {
            let target = target.display();
            return Err(Status::failed_precondition(format!("{volume} is in use at {target}")));
        }
        if self.is_block(volume) {
            return self.detach(volume);
        }
        self.release(volume, &staging)
    }

    /// The path, if the volume is mounted there.
    pub(super) fn mounted_at(&self, volume: &str, path: &str) -> Result<PathBuf, Status> {
        self.check_id(volume)?;
        let path = self.below(path)?;
        if self.mounts_of(volume)?.contains(&path) {
            return Ok(path);
        }
        Err(Status::not_found(format!("{volume} is not mounted at {}", path.display())))
    }

    /// Everywhere the volume is mounted.
    pub(super) fn mounts_of(&self, volume: &str) -> Result<Vec<PathBuf>, Status> {
        let source = self.source(volume)?;
        let mut mounts = self.mounts()?;
        mounts.retain(|path| same(path, &source));
        Ok(mounts)
    }

    /// What is bound where callers want the volume.
    fn source(&self, volume: &str) -> Result<PathBuf, Status> {
        Ok(self.device(volume)?.unwrap_or_else(|| self.data(volume)))
    }

    fn mounts(&self) -> Result<Vec<PathBuf>, Status> {
        host::mounts_below(&self.root).map_err(|err| Status::internal(format!("{err:#}")))
    }

    fn bind(&self, source: &Path, target: &Path, flags: MountFlags) -> Result<(), Status> {
        if self.mounts()?.iter().any(|path| path == target) {
            let found = statvfs(target).map_err(|err| failed("look at", target, err))?;
            let read_only = found.f_flag.contains(StatVfsMountFlags::RDONLY);
            if same(source, target) && read_only == flags.contains(MountFlags::RDONLY) {
                return Ok(());
            }
            let shown = target.display();
            return Err(Status::already_exists(format!("something else is mounted at {shown}")));
        }
        lock(&self.made).insert(target.to_owned());
        mount_bind(source, target).map_err(|err| failed("mount", target, err))?;
        if flags.is_empty() {
            return Ok(());
        }
        // A bind mount takes its flags only in a second step.
        mount_remount(target, MountFlags::BIND | flags, "").map_err(|err| {
            let _ = unmount(target, UnmountFlags::DETACH);
            failed("set mount flags of", target, err)
        })
    }

    /// Unmounts and removes; both may have happened before.
    fn release(&self, volume: &str, target: &Path) -> Result<(), Status> {
        if self.mounts()?.iter().any(|path| path == target) {
            if !same(target, &self.source(volume)?) {
                let shown = target.display();
                return Err(Status::failed_precondition(format!("{volume} is not at {shown}")));
            }
            unmount(target, UnmountFlags::NOFOLLOW)
                .map_err(|err| failed("unmount", target, err))?;
        }
        let remove = if self.is_block(volume) { fs::remove_file } else { fs::remove_dir };
        match remove(target) {
            Err(err) if err.kind() != ErrorKind::NotFound => Err(failed("remove", target, err)),
            _ => {
                lock(&self.made).remove(target);
                Ok(())
            }
        }
    }

    /// Takes away every mount made and not yet taken away.
    pub(super) fn clean(&self) {
        for path in std::mem::take(&mut *lock(&self.made)).iter().rev() {
            // Whatever else is mounted above it goes too.
            while unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
        }
        self.detach_all();
    }

    fn check_id(&self, volume: &str) -> Result<(), Status> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if volume.is_empty() || volume.starts_with('.') || !volume.chars().all(plain) {
            return Err(Status::invalid_argument(format!("{volume:?} is no volume id")));
        }
        Ok(())
    }

    /// The path, if it is in the kubelet's directory.
    fn below(&self, path: &str) -> Result<PathBuf, Status> {
        let path = PathBuf::from(path);
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if climbs || !path.starts_with(&self.root) || path == self.root {
            let (path, root) = (path.display(), self.root.display());
            return Err(Status::invalid_argument(format!("path {path} is not below {root}")));
        }
        Ok(path)
    }
}

/// Whether the paths lead to the same directory.
fn same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|found| identity(other) == Some(found))
}
