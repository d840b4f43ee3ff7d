//! Volumes on the kernel's files and mounts.
//!
//! Each piece of work runs on a thread of its own, because the kernel may keep a
//! mount waiting for ever, and is begun once, whoever asks for it meanwhile.

mod disk;
mod fc;
mod flights;
mod iscsi;
mod iscsi_steps;
mod machine;
mod quotas;
mod share;
mod tool;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use mounts::host_path::HostPathType;
use mounts::mount::{HugePages, Tmpfs};
use mounts::ownership::{ChangePolicy, FsGroup, Owned};
use mounts::publish::Published;
use mounts::{Beginning, Space, Usage};

use self::disk::Disk;
use self::flights::{Flights, Manner};
use self::machine::Machine;
use self::quotas::Counter;
use super::remote_disk::{RemoteDisk, Share};
use super::volumes::{Publication, SubPathBind, VolumeError, VolumeHost, VolumeQuotas};

/// The kernel's mounts and files.
#[derive(Clone, Default)]
pub struct RealVolumeHost {
    flights: Flights,
    counter: Option<Arc<Counter>>,
}

impl RealVolumeHost {
    /// Work on a path that lasts until the sender is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self, path: &Path) -> std::sync::mpsc::Sender<()> {
        self.flights.hold(path)
    }
}

#[async_trait]
impl VolumeHost for RealVolumeHost {
    async fn make_dir(&self, path: &Path, mode: u32) -> Result<(), VolumeError> {
        let (what, dir) = (format!("making a directory of mode {mode:o} at"), path.to_owned());
        self.flights.run(path, what, move || Ok(mounts::make_dir(&dir, mode)?)).await
    }

    async fn tmpfs(&self, target: &Path, tmpfs: Tmpfs) -> Result<(), VolumeError> {
        let (what, dir) = (format!("mounting {tmpfs:?} on"), target.to_owned());
        self.flights.run(target, what, move || work::tmpfs(&dir, tmpfs)).await
    }

    async fn can_refuse_swap(&self) -> Result<bool, VolumeError> {
        // Neither a disk nor a server is asked: this cannot hang.
        Ok(mounts::mount::can_refuse_swap()?)
    }

    async fn hugetlbfs(&self, target: &Path, pages: HugePages) -> Result<(), VolumeError> {
        let (what, dir) = (format!("mounting {pages:?} on"), target.to_owned());
        self.flights.run(target, what, move || work::hugetlbfs(&dir, pages)).await
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::is_mount_point(&point)?);
        self.flights
            .fly(Manner::Look, path, "looking for a mount on".to_owned(), move |_| look())
            .await
    }

    async fn unmount_all(&self, path: &Path) -> Result<(), VolumeError> {
        let point = path.to_owned();
        self.flights.run(path, "unmounting".to_owned(), move || work::unmount_all(&point)).await
    }

    async fn force_unmount(&self, path: &Path) -> Result<(), VolumeError> {
        let point = path.to_owned();
        let force = move || Ok(mounts::force_unmount(&point).map(drop)?);
        self.flights
            .fly(Manner::Beside, path, "unmounting by force".to_owned(), move |_| force())
            .await
    }

    async fn mounts_below(&self, dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let root = dir.to_owned();
        let look = move || Ok(mounts::table::below(&root)?);
        self.flights.run(dir, "looking for mounts below".to_owned(), look).await
    }

    async fn share(&self, dir: &Path) -> Result<(), VolumeError> {
        let root = dir.to_owned();
        let share = move || Ok(mounts::make_shared(&root).map(drop)?);
        self.flights.run(dir, "sharing mounts below".to_owned(), share).await
    }

    async fn own(
        &self,
        dir: &Path,
        group: FsGroup,
        policy: ChangePolicy,
        visited: &AtomicU64,
    ) -> Result<Owned, VolumeError> {
        let (what, root) = (format!("giving group {} all of", group.gid), dir.to_owned());
        let own = move |steps: &AtomicU64| {
            let mut progress = |files| steps.store(files, Ordering::Relaxed);
            Ok(mounts::ownership::own(&root, group, policy, &mut progress)?)
        };
        self.flights.fly(Manner::Walk(visited), dir, what, own).await
    }

    async fn group_of(&self, path: &Path) -> Result<u32, VolumeError> {
        let looked = path.to_owned();
        let look = move || work::group_of(&looked);
        self.flights
            .fly(Manner::Look, path, "looking for the group of".to_owned(), move |_| look())
            .await
    }

    async fn make_inside(&self, volume: &Path, path: &Path, mode: u32) -> Result<(), VolumeError> {
        let what = format!("making directory {} in", path.display());
        let (root, path) = (volume.to_owned(), path.to_owned());
        let make = move || Ok(mounts::sub_path::make_inside(&root, &path, mode)?);
        self.flights.run(volume, what, make).await
    }

    async fn read_inside(
        &self,
        volume: &Path,
        path: &Path,
        limit: usize,
    ) -> Result<Beginning, VolumeError> {
        let what = format!("reading {limit} bytes of {} in", path.display());
        let (root, path) = (volume.to_owned(), path.to_owned());
        let read = move || Ok(mounts::read_inside(&root, &path, limit)?);
        self.flights.run(volume, what, read).await
    }

    async fn publish(&self, dir: &Path, files: &Publication) -> Result<Published, VolumeError> {
        let what = format!("publishing {} in", files.digest);
        let (root, files) = (dir.to_owned(), files.clone());
        let publish = move || {
            let Publication { payload, group, at, .. } = files;
            Ok(mounts::publish::publish(&root, &payload, group, at)?)
        };
        self.flights.run(dir, what, publish).await
    }

    async fn mount_disk(
        &self,
        target: &Path,
        device: &Path,
        fs_type: &str,
        options: &[String],
    ) -> Result<(), VolumeError> {
        let what = format!("mounting disk {} on", device.display());
        let (place, device) = (target.to_owned(), device.to_owned());
        let disk = Disk { device, fs_type: fs_type.to_owned(), options: options.to_vec() };
        self.flights.run(target, what, move || disk::mount(&place, &disk)).await
    }

    async fn mount_share(&self, target: &Path, share: &Share) -> Result<(), VolumeError> {
        let what = format!("mounting {} on", share.source);
        let (place, share) = (target.to_owned(), share.clone());
        self.flights
            .run(target, what, move || share::mount(&Machine::default(), &place, &share))
            .await
    }

    async fn attach(&self, disk: &RemoteDisk) -> Result<PathBuf, VolumeError> {
        // One after another for all that share a session.
        let (key, disk) = (PathBuf::from(disk.session()), disk.clone());
        let attach = move |disk: RemoteDisk| match &disk {
            RemoteDisk::Iscsi(one) => iscsi::attach(&Machine::default(), one, &disk.to_string()),
            RemoteDisk::Fc(one) => fc::attach(&Machine::default(), one, &disk.to_string()),
        };
        self.flights.run(&key, format!("reaching for {disk} by"), move || attach(disk)).await
    }

    async fn detach(&self, disk: &RemoteDisk, last: bool) -> Result<(), VolumeError> {
        let (key, disk) = (PathBuf::from(disk.session()), disk.clone());
        let detach = move |disk: RemoteDisk| match &disk {
            RemoteDisk::Iscsi(one) => {
                iscsi::detach(&Machine::default(), one, last, &disk.to_string())
            }
            RemoteDisk::Fc(one) => fc::detach(&Machine::default(), one, &disk.to_string()),
        };
        self.flights.run(&key, format!("letting go of {disk} by"), move || detach(disk)).await
    }

    async fn sharers(&self, path: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::sharers(&point)?);
        self.flights.run(path, "looking for other mounts of".to_owned(), look).await
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::references(&point)?);
        self.flights.run(path, "looking for other binds of".to_owned(), look).await
    }

    async fn label_of(&self, path: &Path) -> Result<Option<String>, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::option_of(&point, "context")?);
        self.flights.run(path, "looking for the label of".to_owned(), look).await
    }

    async fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Result<(), VolumeError> {
        let what = format!("binding {} to", source.display());
        let (from, to) = (source.to_owned(), target.to_owned());
        self.flights.run(target, what, move || work::bind(&from, &to, read_only)).await
    }

    async fn restrict(
        &self,
        target: &Path,
        options: &[String],
    ) -> Result<Vec<String>, VolumeError> {
        let what = format!("setting mount options {options:?} of");
        let (point, options) = (target.to_owned(), options.to_vec());
        let restrict = move || Ok(mounts::restrict(&point, &options)?);
        self.flights.run(target, what, restrict).await
    }

    async fn bind_file(&self, source: &Path, target: &Path) -> Result<(), VolumeError> {
        let what = format!("binding {} to", source.display());
        let (from, to) = (source.to_owned(), target.to_owned());
        self.flights.run(target, what, move || work::bind_file(&from, &to)).await
    }

    async fn hold_device(&self, path: &Path) -> Result<(), VolumeError> {
        let device = path.to_owned();
        let hold = move || Ok(mounts::held::hold(&device)?);
        self.flights.run(path, "keeping open the device".to_owned(), hold).await
    }

    async fn release_device(&self, path: &Path) -> Result<(), VolumeError> {
        let device = path.to_owned();
        let release = move || Ok(mounts::held::release(&device)?);
        self.flights.run(path, "releasing the device".to_owned(), release).await
    }

    async fn link(&self, target: &Path, link: &Path) -> Result<(), VolumeError> {
        let what = format!("linking {} to", target.display());
        let (to, at) = (target.to_owned(), link.to_owned());
        self.flights.run(link, what, move || work::link(&to, &at)).await
    }

    async fn unlink(&self, path: &Path) -> Result<(), VolumeError> {
        let file = path.to_owned();
        self.flights.run(path, "removing the file".to_owned(), move || work::unlink(&file)).await
    }

    async fn bind_sub_path(&self, sub_path: &SubPathBind) -> Result<PathBuf, VolumeError> {
        // As for the clean-up: one after another for all sub paths of a volume.
        let key = sub_path.root.join(&sub_path.volume);
        let what = format!(
            "binding sub path {} of container {} ({}) in",
            sub_path.path.display(),
            sub_path.container,
            sub_path.index
        );
        let sub_path = sub_path.clone();
        self.flights.run(&key, what, move || work::bind_sub_path(&sub_path)).await
    }

    async fn clean_sub_paths(&self, root: &Path, volume: &str) -> Result<(), VolumeError> {
        let key = root.join(volume);
        let (root, volume) = (root.to_owned(), volume.to_owned());
        let clean = move || Ok(mounts::sub_path::clean(&root, &volume)?);
        self.flights.run(&key, "unbinding sub paths in".to_owned(), clean).await
    }

    async fn check_host_path(&self, path: &Path, kind: HostPathType) -> Result<(), VolumeError> {
        let (what, checked) = (format!("checking for {kind:?} at"), path.to_owned());
        self.flights.run(path, what, move || Ok(mounts::host_path::check(&checked, kind)?)).await
    }

    async fn usage(&self, dir: &Path) -> Result<Usage, VolumeError> {
        let root = dir.to_owned();
        let measure = move |steps: &AtomicU64| {
            let mut progress = |files| steps.store(files, Ordering::Relaxed);
            Ok(mounts::measure(&root, &mut progress)?)
        };
        self.flights.fly(Manner::Measure, dir, "measuring".to_owned(), measure).await
    }

    fn quotas(&self) -> Option<&dyn VolumeQuotas> {
        self.counter.is_some().then_some(self)
    }

    async fn device_size(&self, path: &Path) -> Result<u64, VolumeError> {
        let device = path.to_owned();
        let measure = move || work::device_size(&device);
        self.flights
            .fly(Manner::Look, path, "measuring the device".to_owned(), move |_| measure())
            .await
    }

    async fn space(&self, path: &Path) -> Result<Space, VolumeError> {
        let inside = path.to_owned();
        let measure = move || Ok(mounts::space(&inside)?);
        self.flights
            .fly(Manner::Look, path, "measuring the file system of".to_owned(), move |_| measure())
            .await
    }

    async fn remove_tree(&self, path: &Path) -> Result<(), VolumeError> {
        let root = path.to_owned();
        self.flights.run(path, "removing".to_owned(), move || Ok(mounts::remove_tree(&root)?)).await
    }

    async fn remove_empty_dir(&self, path: &Path) -> Result<(), VolumeError> {
        let dir = path.to_owned();
        let remove = move || work::remove_empty_dir(&dir);
        self.flights.run(path, "removing the empty directory".to_owned(), remove).await
    }

    async fn exists(&self, path: &Path) -> Result<bool, VolumeError> {
        let checked = path.to_owned();
        self.flights.run(path, "looking for".to_owned(), move || work::exists(&checked)).await
    }

    async fn mark(&self, path: &Path) -> Result<(), VolumeError> {
        let marker = path.to_owned();
        // Whoever removes the directory waits until the marker is made.
        let place = path.parent().unwrap_or(path);
        self.flights.run(place, "making a marker in".to_owned(), move || work::mark(&marker)).await
    }

    async fn dirs_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError> {
        let root = dir.to_owned();
        self.flights.run(dir, "listing".to_owned(), move || work::names_in(&root, true)).await
    }

    async fn files_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError> {
        let root = dir.to_owned();
        let list = move || work::names_in(&root, false);
        self.flights.run(dir, "listing the files in".to_owned(), list).await
    }
}
