//! Files and mounts of volumes, in memory.
//!
//! Works on the mount table; directories are those of the file system. What goes
//! wrong with all of it is decided in `volume_work`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use kubelet::ports::{Publication, RemoteDisk, Share, SubPathBind, VolumeError, VolumeHost};
use mounts::host_path::{HostPathError, HostPathType};
use mounts::mount::{HugePages, Tmpfs};
use mounts::ownership::{ChangePolicy, FsGroup, Owned};
use mounts::publish::Published;
use mounts::{Beginning, MountsError, Space, Usage};

use super::volume_work::SimVolumes;
use crate::claimed_disks::is_block_device;
use crate::world::State;

/// Bytes of the one disk there is.
const DISK_BYTES: u64 = 1 << 30;
/// Files that it could hold.
const DISK_INODES: u64 = 1 << 16;

#[async_trait]
impl VolumeHost for SimVolumes {
    async fn make_dir(&self, path: &Path, _mode: u32) -> Result<(), VolumeError> {
        let dir = path.to_owned();
        self.run(path, "make directory", move |state| {
            let now_ns = state.wall_ns();
            state.files.make_dir(&dir, now_ns);
            Ok(())
        })
        .await
    }

    async fn tmpfs(&self, target: &Path, _: Tmpfs) -> Result<(), VolumeError> {
        let dir = target.to_owned();
        self.run(target, "mount tmpfs", move |state| state.mount(&dir)).await
    }

    async fn can_refuse_swap(&self) -> Result<bool, VolumeError> {
        self.count("ask about swap", Path::new("/"));
        Ok(true)
    }

    async fn hugetlbfs(&self, target: &Path, _: HugePages) -> Result<(), VolumeError> {
        let dir = target.to_owned();
        self.run(target, "mount hugetlbfs", move |state| state.mount(&dir)).await
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool, VolumeError> {
        let point = path.to_owned();
        self.run(path, "look for a mount", move |state| {
            Ok(state.volumes.mounts.contains_key(&point))
        })
        .await
    }

    async fn unmount_all(&self, path: &Path) -> Result<(), VolumeError> {
        let point = path.to_owned();
        self.run(path, "unmount", move |state| state.unmount_if_free(&point)).await
    }

    async fn mounts_below(&self, dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let root = dir.to_owned();
        self.run(dir, "look for mounts below", move |state| {
            let mut below = state.volumes.at_or_below(&root);
            below.retain(|point| *point != root);
            Ok(below)
        })
        .await
    }

    async fn share(&self, dir: &Path) -> Result<(), VolumeError> {
        self.run(dir, "share", |_| Ok(())).await
    }

    async fn own(
        &self,
        dir: &Path,
        _: FsGroup,
        _: ChangePolicy,
        _: &AtomicU64,
    ) -> Result<Owned, VolumeError> {
        self.run(dir, "own", |_| Ok(Owned::default())).await
    }

    async fn group_of(&self, path: &Path) -> Result<u32, VolumeError> {
        self.run(path, "look for the group of", |_| Ok(0)).await
    }

    async fn make_inside(&self, volume: &Path, path: &Path, _: u32) -> Result<(), VolumeError> {
        let dir = volume.join(path);
        self.run(volume, "make directory in", move |state| {
            let now_ns = state.wall_ns();
            state.files.make_dir(&dir, now_ns);
            Ok(())
        })
        .await
    }

    async fn read_inside(
        &self,
        volume: &Path,
        path: &Path,
        limit: usize,
    ) -> Result<Beginning, VolumeError> {
        let file = volume.join(path.strip_prefix("/").unwrap_or(path));
        self.run(volume, "read a file in", move |state| match state.files.content(&file) {
            Some(content) => {
                let data = content.iter().copied().take(limit).collect();
                Ok(Beginning { data, whole: content.len() <= limit })
            }
            None => Err(MountsError::BadPath { path: file, why: "is missing" }.into()),
        })
        .await
    }

    async fn publish(&self, dir: &Path, files: &Publication) -> Result<Published, VolumeError> {
        let (root, payload) = (dir.to_owned(), Arc::clone(&files.payload));
        self.run(dir, "publish", move |state| {
            if !state.files.has(&root) {
                return Err(MountsError::BadPath { path: root, why: "is missing" }.into());
            }
            let data = root.join("..data");
            state.files.remove_tree(&data);
            let now_ns = state.wall_ns();
            for (path, file) in payload.files() {
                let path = data.join(path);
                state.files.make_dir(path.parent().unwrap_or(&data), now_ns);
                state.write_file(&path, file.data.clone());
            }
            Ok(Published::Written { owned: None })
        })
        .await
    }

    async fn mount_disk(
        &self,
        target: &Path,
        device: &Path,
        _: &str,
        _: &[String],
    ) -> Result<(), VolumeError> {
        let (dir, device) = (target.to_owned(), device.to_owned());
        self.run(target, "mount disk", move |state| {
            let now_ns = state.wall_ns();
            state.check_attached(&device)?;
            state.files.make_dir(&dir, now_ns);
            if !state.volumes.mounts.contains_key(&dir) {
                state.mount(&dir)?;
                state.bind(&dir, device);
            }
            Ok(())
        })
        .await
    }

    async fn mount_share(&self, target: &Path, share: &Share) -> Result<(), VolumeError> {
        let (dir, share) = (target.to_owned(), share.clone());
        self.run(target, "mount share", move |state| state.mount_share(&dir, &share)).await
    }

    async fn attach(&self, disk: &RemoteDisk) -> Result<PathBuf, VolumeError> {
        let (key, disk) = (PathBuf::from(disk.session()), disk.clone());
        self.run(&key, "attach", move |state| Ok(state.attach(&disk))).await
    }

    async fn detach(&self, disk: &RemoteDisk, last: bool) -> Result<(), VolumeError> {
        let (key, disk) = (PathBuf::from(disk.session()), disk.clone());
        let detach = move |state: &mut State| {
            state.detach(&disk, last);
            Ok(())
        };
        self.run(&key, "detach", detach).await
    }

    async fn sharers(&self, path: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let point = path.to_owned();
        self.run(path, "look for other mounts", move |state| Ok(state.sharers(&point))).await
    }

    /// No machine here has SELinux.
    async fn label_of(&self, path: &Path) -> Result<Option<String>, VolumeError> {
        self.count("look for the label of", path);
        Ok(None)
    }

    async fn bind(&self, source: &Path, target: &Path, _: bool) -> Result<(), VolumeError> {
        let (from, to) = (source.to_owned(), target.to_owned());
        self.run(target, "bind", move |state| {
            if !state.files.has(&from) || !state.files.has(&to) {
                return Err(MountsError::BadPath { path: from, why: "is missing" }.into());
            }
            if !state.volumes.mounts.contains_key(&to) {
                state.mount(&to)?;
                state.bind(&to, from);
            }
            Ok(())
        })
        .await
    }

    async fn bind_file(&self, source: &Path, target: &Path) -> Result<(), VolumeError> {
        let (from, to) = (source.to_owned(), target.to_owned());
        self.run(target, "bind file", move |state| {
            state.check_attached(&from)?;
            if !state.files.has(&from) {
                return Err(MountsError::BadPath { path: from, why: "is missing" }.into());
            }
            if !state.volumes.mounts.contains_key(&to) {
                let now_ns = state.wall_ns();
                state.files.make_dir(to.parent().unwrap_or(&to), now_ns);
                state.write_file(&to, Vec::new());
                state.mount_once(&to);
                state.bind(&to, from);
            }
            Ok(())
        })
        .await
    }

    async fn link(&self, target: &Path, link: &Path) -> Result<(), VolumeError> {
        let (to, at) = (target.to_owned(), link.to_owned());
        self.run(link, "link", move |state| {
            let now_ns = state.wall_ns();
            state.files.make_dir(at.parent().unwrap_or(&at), now_ns);
            // Nothing here follows it: that it is there, and where it leads, is enough.
            state.write_file(&at, to.display().to_string().into_bytes());
            Ok(())
        })
        .await
    }

    async fn unlink(&self, path: &Path) -> Result<(), VolumeError> {
        let file = path.to_owned();
        self.run(path, "unlink", move |state| {
            if state.volumes.mounts.contains_key(&file) {
                return Err(MountsError::Busy { path: file }.into());
            }
            if !state.files.is_dir(&file) {
                state.check_volume_undone(&file, "unlinks");
                state.files.remove_tree(&file);
            }
            Ok(())
        })
        .await
    }

    async fn bind_sub_path(&self, sub_path: &SubPathBind) -> Result<PathBuf, VolumeError> {
        let key = sub_path.root.join(&sub_path.volume);
        let target = key.join(&sub_path.container).join(sub_path.index.to_string());
        let (volume, part) = (sub_path.volume_path.clone(), sub_path.path.clone());
        self.run(&key, "bind sub path", move |state| {
            if !state.files.has(&volume) {
                return Err(MountsError::BadPath { path: volume, why: "is missing" }.into());
            }
            let now_ns = state.wall_ns();
            let source = state.volumes.source_of(&volume).join(part);
            state.files.make_dir(&source, now_ns);
            state.files.make_dir(&target, now_ns);
            state.mount(&target)?;
            state.bind(&target, source);
            Ok(target)
        })
        .await
    }

    async fn clean_sub_paths(&self, root: &Path, volume: &str) -> Result<(), VolumeError> {
        let key = root.join(volume);
        let dir = key.clone();
        self.run(&key, "clean sub paths", move |state| {
            for point in state.volumes.at_or_below(&dir).iter().rev() {
                state.unmount(point);
            }
            state.files.remove_tree(&dir);
            Ok(())
        })
        .await
    }

    async fn check_host_path(&self, path: &Path, kind: HostPathType) -> Result<(), VolumeError> {
        let checked = path.to_owned();
        self.run(path, "check host path", move |state| {
            if kind == HostPathType::DirectoryOrCreate {
                let now_ns = state.wall_ns();
                state.files.make_dir(&checked, now_ns);
            }
            let is_device = is_block_device(&checked);
            let (wanted, fits) = match kind {
                HostPathType::Unset => return Ok(()),
                HostPathType::BlockDevice => ("block device", is_device),
                _ => ("directory", !is_device),
            };
            match fits && state.files.has(&checked) {
                true => Ok(()),
                false => Err(HostPathError::Mismatch { path: checked, wanted }.into()),
            }
        })
        .await
    }

    async fn usage(&self, dir: &Path) -> Result<Usage, VolumeError> {
        let root = dir.to_owned();
        self.run(dir, "measure", move |state| Ok(state.files.usage(&root))).await
    }

    async fn space(&self, path: &Path) -> Result<Space, VolumeError> {
        self.run(path, "measure the file system of", |state| {
            let Usage { bytes: used, inodes: inodes_used } = state.files.usage(Path::new("/"));
            let (capacity, inodes) = (DISK_BYTES.max(used), DISK_INODES.max(inodes_used));
            let (available, inodes_free) = (capacity - used, inodes - inodes_used);
            Ok(Space { available, capacity, used, inodes, inodes_free, inodes_used })
        })
        .await
    }

    async fn remove_empty_dir(&self, path: &Path) -> Result<(), VolumeError> {
        let dir = path.to_owned();
        self.run(path, "remove the empty directory", move |state| {
            if !state.files.names_in(&dir).is_empty() || !state.volumes.at_or_below(&dir).is_empty()
            {
                return Err(MountsError::BadPath { path: dir, why: "is not empty" }.into());
            }
            state.files.remove_tree(&dir);
            Ok(())
        })
        .await
    }

    async fn remove_tree(&self, path: &Path) -> Result<(), VolumeError> {
        let root = path.to_owned();
        self.run(path, "remove", move |state| {
            if let Some(point) = state.volumes.at_or_below(&root).pop() {
                return Err(MountsError::MountInside { path: point }.into());
            }
            state.check_volume_undone(&root, "removes");
            state.files.remove_tree(&root);
            Ok(())
        })
        .await
    }

    async fn exists(&self, path: &Path) -> Result<bool, VolumeError> {
        let wanted = path.to_owned();
        self.run(path, "look for", move |state| Ok(state.files.has(&wanted))).await
    }

    async fn mark(&self, path: &Path) -> Result<(), VolumeError> {
        let marker = path.to_owned();
        self.run(path.parent().unwrap_or(path), "mark", move |state| {
            let now_ns = state.wall_ns();
            state.files.make_dir(marker.parent().unwrap_or(&marker), now_ns);
            state.write_file(&marker, Vec::new());
            Ok(())
        })
        .await
    }

    async fn files_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError> {
        let root = dir.to_owned();
        self.run(dir, "list files", move |state| Ok(names_in(state, &root, false))).await
    }

    async fn dirs_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError> {
        let root = dir.to_owned();
        self.run(dir, "list", move |state| Ok(names_in(state, &root, true))).await
    }
}

fn names_in(state: &State, dir: &Path, are_dirs: bool) -> Vec<String> {
    let names = state.files.names_in(dir);
    let wanted = names.iter().filter(|path| state.files.is_dir(path) == are_dirs);
    wanted.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}
