//! Volumes on the kernel's files and mounts.
//!
//! Owns the work under way. Each piece runs on a thread of its own, because the
//! kernel may keep a mount waiting for ever. A caller waits a while; after that
//! the work goes on, and whoever asks for the same meanwhile gets its answer, so
//! that nothing is begun twice. An answer that was there before it was asked for is
//! never given: much may have changed since, and all work can be done again. Work
//! on one path is done one after another.

mod disk;
mod fc;
mod iscsi;
mod iscsi_steps;
mod machine;
mod quotas;
mod share;
mod tool;
mod work;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use mounts::host_path::HostPathType;
use mounts::mount::{HugePages, Tmpfs};
use mounts::ownership::{ChangePolicy, FsGroup, Owned};
use mounts::publish::Published;
use mounts::{Beginning, Space, Usage};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::disk::Disk;
use self::machine::Machine;
use self::quotas::Counter;
use super::remote_disk::{RemoteDisk, Share};
use super::volumes::{Publication, SubPathBind, VolumeError, VolumeHost, VolumeQuotas};

/// How long a caller waits. Local work takes milliseconds, giving a large volume
/// to a group seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel's mounts and files.
#[derive(Clone)]
pub struct RealVolumeHost {
    flights: Arc<Mutex<Flights>>,
    patience: Duration,
    counter: Option<Arc<Counter>>,
}

impl Default for RealVolumeHost {
    fn default() -> Self {
        Self { flights: Arc::default(), patience: PATIENCE, counter: None }
    }
}

#[derive(Default)]
struct Flights {
    begun: u64,
    by_path: BTreeMap<PathBuf, Flight>,
}

/// A piece of work under way, or done with nobody waiting.
#[derive(Clone)]
struct Flight {
    number: u64,
    what: String,
    answer: watch::Receiver<Option<Answer>>,
}

/// What came of a piece of work.
#[derive(Clone)]
struct Answer {
    /// A `Result<T, VolumeError>`, whose `T` follows from what was asked.
    result: Arc<dyn Any + Send + Sync>,
    landed_at: Instant,
}

impl Flight {
    /// It ended before that time, or without an answer.
    fn is_over(&self, asked_at: Instant) -> bool {
        match &*self.answer.borrow() {
            Some(answer) => answer.landed_at < asked_at,
            // Its work panicked.
            None => self.answer.has_changed().is_err(),
        }
    }
}

impl RealVolumeHost {
    /// Has the work done, or takes the answer of the same work.
    async fn run<T, W>(&self, path: &Path, what: String, work: W) -> Result<T, VolumeError>
    where
        T: Clone + Send + Sync + 'static,
        W: FnOnce() -> Result<T, VolumeError> + Send + 'static,
    {
        let asked_at = Instant::now();
        let give_up_at = asked_at + self.patience;
        let mut work = Some(work);
        loop {
            let mut flight = self.board(path, &what, asked_at, &mut work);
            let died = || VolumeError::Died { what: flight.what.clone(), path: path.to_owned() };
            let landed = timeout_at(give_up_at, flight.answer.wait_for(Option::is_some)).await;
            let answer = match landed {
                Err(_) => {
                    let (what, waited) = (flight.what.clone(), self.patience);
                    return Err(VolumeError::UnderWay { what, path: path.into(), waited });
                }
                Ok(answer) => answer.ok().and_then(|answer| answer.clone()),
            };
            self.leave(path, flight.number);
            if flight.what == what {
                let result = answer.as_ref().and_then(|answer| answer.result.downcast_ref());
                return result.cloned().unwrap_or_else(|| Err(died()));
            }
        }
    }

    /// The work on this path that is under way, or ended since `asked_at`; else this
    /// work, begun.
    fn board<T, W>(
        &self,
        path: &Path,
        what: &str,
        asked_at: Instant,
        work: &mut Option<W>,
    ) -> Flight
    where
        T: Send + Sync + 'static,
        W: FnOnce() -> Result<T, VolumeError> + Send + 'static,
    {
        let mut flights = self.lock();
        // Whoever waits for one has it in hand, so nobody misses what goes here.
        flights.by_path.retain(|_, flight| !flight.is_over(asked_at));
        if let Some(flight) = flights.by_path.get(path) {
            return flight.clone();
        }
        let (sender, answer) = watch::channel(None);
        if let Some(work) = work.take() {
            // Not a task: nothing can end it, and a crash is simulated elsewhere.
            tokio::task::spawn_blocking(move || {
                let result = Arc::new(work());
                sender.send_replace(Some(Answer { result, landed_at: Instant::now() }));
            });
        }
        flights.begun += 1;
        let flight = Flight { number: flights.begun, what: what.to_owned(), answer };
        flights.by_path.insert(path.to_owned(), flight.clone());
        flight
    }

    fn leave(&self, path: &Path, number: u64) {
        let mut flights = self.lock();
        if flights.by_path.get(path).is_some_and(|flight| flight.number == number) {
            flights.by_path.remove(path);
        }
    }

    /// Work on a path that lasts until the sender is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self, path: &Path) -> std::sync::mpsc::Sender<()> {
        let (release, held) = std::sync::mpsc::channel();
        let wait = move || -> Result<(), VolumeError> {
            held.recv().ok();
            Ok(())
        };
        self.board(path, "holding", Instant::now(), &mut Some(wait));
        release
    }

    fn lock(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().expect("flights lock: no code panics while holding it")
    }
}

#[async_trait]
impl VolumeHost for RealVolumeHost {
    async fn make_dir(&self, path: &Path, mode: u32) -> Result<(), VolumeError> {
        let (what, dir) = (format!("making a directory of mode {mode:o} at"), path.to_owned());
        self.run(path, what, move || Ok(mounts::make_dir(&dir, mode)?)).await
    }

    async fn tmpfs(&self, target: &Path, tmpfs: Tmpfs) -> Result<(), VolumeError> {
        let (what, dir) = (format!("mounting {tmpfs:?} on"), target.to_owned());
        self.run(target, what, move || work::tmpfs(&dir, tmpfs)).await
    }

    async fn can_refuse_swap(&self) -> Result<bool, VolumeError> {
        // Neither a disk nor a server is asked: this cannot hang.
        Ok(mounts::mount::can_refuse_swap()?)
    }

    async fn hugetlbfs(&self, target: &Path, pages: HugePages) -> Result<(), VolumeError> {
        let (what, dir) = (format!("mounting {pages:?} on"), target.to_owned());
        self.run(target, what, move || work::hugetlbfs(&dir, pages)).await
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::is_mount_point(&point)?);
        self.run(path, "looking for a mount on".to_owned(), look).await
    }

    async fn unmount_all(&self, path: &Path) -> Result<(), VolumeError> {
        let point = path.to_owned();
        self.run(path, "unmounting".to_owned(), move || work::unmount_all(&point)).await
    }

    async fn mounts_below(&self, dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let root = dir.to_owned();
        let look = move || Ok(mounts::table::below(&root)?);
        self.run(dir, "looking for mounts below".to_owned(), look).await
    }

    async fn share(&self, dir: &Path) -> Result<(), VolumeError> {
        let root = dir.to_owned();
        let share = move || Ok(mounts::make_shared(&root).map(drop)?);
        self.run(dir, "sharing mounts below".to_owned(), share).await
    }

    async fn own(
        &self,
        dir: &Path,
        group: FsGroup,
        policy: ChangePolicy,
    ) -> Result<Owned, VolumeError> {
        let (what, root) = (format!("giving group {} all of", group.gid), dir.to_owned());
        let own = move || Ok(mounts::ownership::own(&root, group, policy, &mut |_| ())?);
        self.run(dir, what, own).await
    }

    async fn make_inside(&self, volume: &Path, path: &Path, mode: u32) -> Result<(), VolumeError> {
        let what = format!("making directory {} in", path.display());
        let (root, path) = (volume.to_owned(), path.to_owned());
        let make = move || Ok(mounts::sub_path::make_inside(&root, &path, mode)?);
        self.run(volume, what, make).await
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
        self.run(volume, what, read).await
    }

    async fn publish(&self, dir: &Path, files: &Publication) -> Result<Published, VolumeError> {
        let what = format!("publishing {} in", files.digest);
        let (root, files) = (dir.to_owned(), files.clone());
        let publish = move || {
            let Publication { payload, group, at, .. } = files;
            Ok(mounts::publish::publish(&root, &payload, group, at)?)
        };
        self.run(dir, what, publish).await
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
        self.run(target, what, move || disk::mount(&place, &disk)).await
    }

    async fn mount_share(&self, target: &Path, share: &Share) -> Result<(), VolumeError> {
        let what = format!("mounting {} on", share.source);
        let (place, share) = (target.to_owned(), share.clone());
        self.run(target, what, move || share::mount(&Machine::default(), &place, &share)).await
    }

    async fn attach(&self, disk: &RemoteDisk) -> Result<PathBuf, VolumeError> {
        // One after another for all that share a session.
        let (key, disk) = (PathBuf::from(disk.session()), disk.clone());
        let attach = move |disk: RemoteDisk| match &disk {
            RemoteDisk::Iscsi(one) => iscsi::attach(&Machine::default(), one, &disk.to_string()),
            RemoteDisk::Fc(one) => fc::attach(&Machine::default(), one, &disk.to_string()),
        };
        self.run(&key, format!("reaching for {disk} by"), move || attach(disk)).await
    }

    async fn detach(&self, disk: &RemoteDisk, last: bool) -> Result<(), VolumeError> {
        let (key, disk) = (PathBuf::from(disk.session()), disk.clone());
        let detach = move |disk: RemoteDisk| match &disk {
            RemoteDisk::Iscsi(one) => {
                iscsi::detach(&Machine::default(), one, last, &disk.to_string())
            }
            RemoteDisk::Fc(one) => fc::detach(&Machine::default(), one, &disk.to_string()),
        };
        self.run(&key, format!("letting go of {disk} by"), move || detach(disk)).await
    }

    async fn sharers(&self, path: &Path) -> Result<Vec<PathBuf>, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::sharers(&point)?);
        self.run(path, "looking for other mounts of".to_owned(), look).await
    }

    async fn label_of(&self, path: &Path) -> Result<Option<String>, VolumeError> {
        let point = path.to_owned();
        let look = move || Ok(mounts::table::option_of(&point, "context")?);
        self.run(path, "looking for the label of".to_owned(), look).await
    }

    async fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Result<(), VolumeError> {
        let what = format!("binding {} to", source.display());
        let (from, to) = (source.to_owned(), target.to_owned());
        self.run(target, what, move || work::bind(&from, &to, read_only)).await
    }

    async fn bind_file(&self, source: &Path, target: &Path) -> Result<(), VolumeError> {
        let what = format!("binding {} to", source.display());
        let (from, to) = (source.to_owned(), target.to_owned());
        self.run(target, what, move || work::bind_file(&from, &to)).await
    }

    async fn link(&self, target: &Path, link: &Path) -> Result<(), VolumeError> {
        let what = format!("linking {} to", target.display());
        let (to, at) = (target.to_owned(), link.to_owned());
        self.run(link, what, move || work::link(&to, &at)).await
    }

    async fn unlink(&self, path: &Path) -> Result<(), VolumeError> {
        let file = path.to_owned();
        self.run(path, "removing the file".to_owned(), move || work::unlink(&file)).await
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
        self.run(&key, what, move || work::bind_sub_path(&sub_path)).await
    }

    async fn clean_sub_paths(&self, root: &Path, volume: &str) -> Result<(), VolumeError> {
        let key = root.join(volume);
        let (root, volume) = (root.to_owned(), volume.to_owned());
        let clean = move || Ok(mounts::sub_path::clean(&root, &volume)?);
        self.run(&key, "unbinding sub paths in".to_owned(), clean).await
    }

    async fn check_host_path(&self, path: &Path, kind: HostPathType) -> Result<(), VolumeError> {
        let (what, checked) = (format!("checking for {kind:?} at"), path.to_owned());
        self.run(path, what, move || Ok(mounts::host_path::check(&checked, kind)?)).await
    }

    async fn usage(&self, dir: &Path) -> Result<Usage, VolumeError> {
        let root = dir.to_owned();
        let measure = move || Ok(mounts::usage(&root)?);
        self.run(dir, "measuring".to_owned(), measure).await
    }

    fn quotas(&self) -> Option<&dyn VolumeQuotas> {
        self.counter.is_some().then_some(self)
    }

    async fn space(&self, path: &Path) -> Result<Space, VolumeError> {
        let inside = path.to_owned();
        let measure = move || Ok(mounts::space(&inside)?);
        self.run(path, "measuring the file system of".to_owned(), measure).await
    }

    async fn remove_tree(&self, path: &Path) -> Result<(), VolumeError> {
        let root = path.to_owned();
        self.run(path, "removing".to_owned(), move || Ok(mounts::remove_tree(&root)?)).await
    }

    async fn remove_empty_dir(&self, path: &Path) -> Result<(), VolumeError> {
        let dir = path.to_owned();
        let remove = move || work::remove_empty_dir(&dir);
        self.run(path, "removing the empty directory".to_owned(), remove).await
    }

    async fn exists(&self, path: &Path) -> Result<bool, VolumeError> {
        let checked = path.to_owned();
        self.run(path, "looking for".to_owned(), move || work::exists(&checked)).await
    }

    async fn mark(&self, path: &Path) -> Result<(), VolumeError> {
        let marker = path.to_owned();
        // Whoever removes the directory waits until the marker is made.
        let place = path.parent().unwrap_or(path);
        self.run(place, "making a marker in".to_owned(), move || work::mark(&marker)).await
    }

    async fn dirs_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError> {
        let root = dir.to_owned();
        self.run(dir, "listing".to_owned(), move || work::names_in(&root, true)).await
    }

    async fn files_in(&self, dir: &Path) -> Result<Vec<String>, VolumeError> {
        let root = dir.to_owned();
        let list = move || work::names_in(&root, false);
        self.run(dir, "listing the files in".to_owned(), list).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_is_not_begun_twice() {
        let patience = Duration::from_millis(50);
        let host = RealVolumeHost { patience, ..RealVolumeHost::default() };
        let path = Path::new("/somewhere");
        let (release, held) = mpsc::channel::<()>();
        let slow = move || {
            held.recv().ok();
            Ok(7_u32)
        };
        let twice = || -> Result<u32, VolumeError> { panic!("begun twice") };
        let error = host.run(path, "slow".to_owned(), slow).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "slow /somewhere is still under way after 0 s; if it lasts, look at the disk or \
             server behind it"
        );
        assert_eq!(host.run(path, "slow".to_owned(), twice).await, Err(error.clone()));
        let other = host.run(path, "other".to_owned(), || Ok(1_u8)).await;
        assert_eq!(other, Err(error), "one after another");
        let patient = RealVolumeHost { patience: PATIENCE, ..host.clone() };
        let ask = patient.run(path, "slow".to_owned(), twice);
        let land = async { release.send(()).unwrap() };
        assert_eq!(tokio::join!(ask, land).0, Ok(7));
        assert_eq!(host.run(path, "other".to_owned(), || Ok(1_u8)).await, Ok(1));
    }

    #[tokio::test]
    async fn an_answer_from_before_the_question_is_not_given() {
        let host =
            RealVolumeHost { patience: Duration::from_millis(50), ..RealVolumeHost::default() };
        let path = Path::new("/somewhere");
        let (release, held) = mpsc::channel::<()>();
        let slow = move || {
            held.recv().ok();
            Ok("of yesterday")
        };
        let hung = host.run(path, "looking".to_owned(), slow).await;
        assert!(matches!(hung, Err(VolumeError::UnderWay { .. })), "{hung:?}");
        let mut landed = host.lock().by_path[path].answer.clone();
        release.send(()).unwrap();
        landed.wait_for(Option::is_some).await.unwrap();
        let fresh = host.run(path, "looking".to_owned(), || Ok("of today")).await;
        assert_eq!(fresh, Ok("of today"));
        assert!(host.lock().by_path.is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn what_panicked_unheard_is_done_again() {
        let host =
            RealVolumeHost { patience: Duration::from_millis(50), ..RealVolumeHost::default() };
        let path = Path::new("/somewhere");
        let (release, held) = mpsc::channel::<()>();
        let breaks = move || -> Result<u8, VolumeError> {
            held.recv().ok();
            panic!("as the test wants")
        };
        assert!(host.run(path, "breaking".to_owned(), breaks).await.is_err());
        let mut landed = host.lock().by_path[path].answer.clone();
        drop(release);
        assert!(landed.wait_for(Option::is_some).await.is_err());
        assert_eq!(host.run(path, "breaking".to_owned(), || Ok(3_u8)).await, Ok(3));
    }

    #[tokio::test]
    async fn work_that_panics_is_told() {
        let host = RealVolumeHost::default();
        let work = || -> Result<(), VolumeError> { panic!("as the test wants") };
        let error = host.run(Path::new("/x"), "breaking".to_owned(), work).await.unwrap_err();
        assert_eq!(error.to_string(), "breaking /x ended without an answer; the log says more");
    }
}
