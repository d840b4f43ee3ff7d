//! An end to what a mount keeps of a pod's volumes, on request.
//!
//! Only after pods whose volumes nobody needs any more, and without removing what
//! was mounted. Holds the place of the pod's task meanwhile: until it is given back
//! the task cannot end, so no pod that comes back under the uid can have mounts here
//! to lose. Waits for nobody without end. Upstream has none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_model::PodUid;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio::time::{Instant, timeout_at};

use super::csi::{VOL_DATA_BYTES_MAX, VolData};
use super::layout::{PluginName, PodLayout, VolumeName};
use super::plan::Goal;
use super::{VolumeState, Volumes};
use crate::ports::{Fs, VolumeError, VolumeHost};

/// How long a caller waits for all of it. A mount of a driver that is alive goes in
/// moments.
const LIMIT: Duration = Duration::from_secs(30);

/// The right to make, or to end, what a pod has of volumes.
pub(super) type Place = Arc<Mutex<()>>;

/// Why nothing is cleaned up after a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CleanError {
    /// Its volumes are in use, or will be.
    #[error("pod {0} needs its volumes; remove the pod first: `klet rm`")]
    Needed(PodUid),
    /// Nothing is known of it.
    #[error("no volumes of a pod {0} are left; `klet volumes` lists what there is")]
    Unknown(PodUid),
    /// A mount stays.
    #[error(transparent)]
    Mount(#[from] VolumeError),
}

impl Volumes {
    /// What is mounted below the directory of a pod that needs its volumes no more,
    /// deepest first. Unless this is a rehearsal, all of it is unmounted, whoever
    /// mounted it, and the pod's files are then removed by its task.
    pub async fn clean(&self, uid: &PodUid, rehearse: bool) -> Result<Vec<PathBuf>, CleanError> {
        let unknown = || CleanError::Unknown(uid.clone());
        let Some(place) = self.lock().get(uid).map(|entry| Arc::clone(&entry.place)) else {
            return Err(unknown());
        };
        self.check(uid, &place)?;
        let layout = PodLayout::new(&self.0.settings.root_dir, uid).ok_or_else(unknown)?;
        let (sender, answer) = oneshot::channel();
        let (volumes, uid) = (self.clone(), uid.clone());
        // A caller that goes away must not give the place back halfway.
        self.0.ports.tasks.spawn(async move {
            // Nobody need be there to hear it.
            let _ = sender.send(volumes.clean_in(&uid, place, &layout, rehearse).await);
        });
        answer.await.unwrap_or_else(|_| Err(unknown()))
    }

    async fn clean_in(
        &self,
        uid: &PodUid,
        place: Place,
        layout: &PodLayout,
        rehearse: bool,
    ) -> Result<Vec<PathBuf>, CleanError> {
        let give_up_at = Instant::now() + LIMIT;
        let (host, fs) = (&*self.0.ports.volumes, &*self.0.ports.fs);
        let held: OwnedMutexGuard<()> =
            match timeout_at(give_up_at, Arc::clone(&place).lock_owned()).await {
                Ok(held) => held,
                Err(_) => {
                    let drivers = drivers(host, fs, layout).await.unwrap_or_default();
                    return Err(VolumeError::StillMounting { drivers, waited: LIMIT }.into());
                }
            };
        self.check(uid, &place)?;
        let mounts = host.mounts_below(layout.dir()).await?;
        if !rehearse {
            for mount in &mounts {
                unmount(host, fs, layout, mount, give_up_at).await?;
                tracing::info!(path = %mount.display(), "unmounted on request");
            }
            drop(held);
            self.hurry(uid);
        }
        Ok(mounts)
    }

    /// Does the place still stand for volumes that nobody needs? Who holds it may rely
    /// on the answer: they cannot be gone, nor the pod be back, before it is given back.
    fn check(&self, uid: &PodUid, place: &Place) -> Result<(), CleanError> {
        let pods = self.lock();
        let entry = pods.get(uid).filter(|entry| Arc::ptr_eq(&entry.place, place));
        let Some(entry) = entry else { return Err(CleanError::Unknown(uid.clone())) };
        match &*entry.goal.borrow() {
            Goal::Mount(_) | Goal::Keep(_) => Err(CleanError::Needed(uid.clone())),
            Goal::Release if *entry.state.borrow() == VolumeState::Gone => {
                Err(CleanError::Unknown(uid.clone()))
            }
            Goal::Release => Ok(()),
        }
    }

    /// What failed is tried again at once.
    fn hurry(&self, uid: &PodUid) {
        if let Some(entry) = self.lock().get(uid) {
            entry.hurry.notify_one();
        }
    }
}

async fn unmount(
    host: &dyn VolumeHost,
    fs: &dyn Fs,
    layout: &PodLayout,
    mount: &Path,
    give_up_at: Instant,
) -> Result<(), CleanError> {
    let done = timeout_at(give_up_at, host.unmount_all(mount)).await.unwrap_or_else(|_| {
        let (what, path) = ("unmounting".to_owned(), mount.to_owned());
        Err(VolumeError::UnderWay { what, path, waited: LIMIT })
    });
    done.map_err(|error| match driver_of(fs, layout, mount) {
        Some(driver) => {
            let (path, error) = (mount.to_owned(), Box::new(error));
            CleanError::Mount(VolumeError::OfDriver { driver, path, error })
        }
        None => CleanError::Mount(error),
    })
}

/// The driver that mounted something, if its note says so.
fn driver_of(fs: &dyn Fs, layout: &PodLayout, mount: &Path) -> Option<String> {
    let place = mount.strip_prefix(layout.plugin_dir(&PluginName::csi())).ok()?;
    let name = VolumeName::new(place.iter().next()?.to_str()?)?;
    let note = layout.volume_dir(&PluginName::csi(), &name).join("vol_data.json");
    let content = fs.read(&note, VOL_DATA_BYTES_MAX).ok()?;
    VolData::parse(&content).ok().map(|data| data.driver_name)
}

/// The drivers of a pod, each with the path it was asked for.
async fn drivers(
    host: &dyn VolumeHost,
    fs: &dyn Fs,
    layout: &PodLayout,
) -> Result<Vec<(String, PathBuf)>, VolumeError> {
    let dir = layout.plugin_dir(&PluginName::csi());
    let names = host.dirs_in(&dir).await?;
    let targets = names.iter().map(|name| dir.join(name).join("mount"));
    Ok(targets.filter_map(|path| Some((driver_of(fs, layout, &path)?, path))).collect())
}
