//! Which volumes there are, and an end to those that a mount keeps.
//!
//! Reads what the pods' tasks tell. Cleans up only after pods whose volumes nobody
//! needs any more, and unmounts without removing what was mounted. Upstream has none.

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_model::{ConfigObject, ObjectKey, PodUid};

use super::desired::{PodVolumes, Wanted};
use super::layout::{PodLayout, VolumeName};
use super::measure::Measure;
use super::plan::Goal;
use super::{Entry, VolumeState, Volumes};
use crate::ports::{VolumeError, VolumeHost};

/// One volume of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Whose.
    pub uid: PodUid,
    /// Its name in the pod.
    pub name: String,
    /// Its kind, as manifests name it; empty if only its name is left.
    pub kind: &'static str,
    /// How it is.
    pub state: Standing,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// Where it lies, once it is there.
    pub path: Option<PathBuf>,
    /// How it is measured.
    pub measure: Measure,
}

/// How a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There.
    Ready,
    /// On its way in.
    Waiting,
    /// On its way out.
    Leaving,
}

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
    /// Every volume of every pod, by uid and name.
    pub fn inventory(&self) -> Vec<VolumeFacts> {
        let get = |key: &ObjectKey| self.0.objects.get(key);
        self.lock().iter().flat_map(|(uid, entry)| facts(uid, entry, &get)).collect()
    }

    /// What is mounted below the directory of a pod that needs its volumes no more,
    /// deepest first. Unless this is a rehearsal, all of it is unmounted, whoever
    /// mounted it, and the pod's files are then removed by its task.
    pub async fn clean(&self, uid: &PodUid, rehearse: bool) -> Result<Vec<PathBuf>, CleanError> {
        match self.lock().get(uid).map(|entry| entry.goal.borrow().clone()) {
            None => return Err(CleanError::Unknown(uid.clone())),
            Some(Goal::Mount(_) | Goal::Keep(_)) => return Err(CleanError::Needed(uid.clone())),
            Some(Goal::Release) => {}
        }
        let Some(layout) = PodLayout::new(&self.0.settings.root_dir, uid) else {
            return Err(CleanError::Unknown(uid.clone()));
        };
        let host = &*self.0.ports.volumes;
        let mounts = host.mounts_below(layout.dir()).await?;
        if !rehearse {
            unmount(host, &mounts).await?;
            self.hurry(uid);
        }
        Ok(mounts)
    }

    /// What failed is tried again at once.
    fn hurry(&self, uid: &PodUid) {
        if let Some(entry) = self.lock().get(uid) {
            entry.hurry.notify_one();
        }
    }
}

async fn unmount(host: &dyn VolumeHost, mounts: &[PathBuf]) -> Result<(), VolumeError> {
    for mount in mounts {
        host.unmount_all(mount).await?;
        tracing::info!(path = %mount.display(), "unmounted on request");
    }
    Ok(())
}

type Get<'a> = &'a dyn Fn(&ObjectKey) -> Option<Arc<ConfigObject>>;

fn facts(uid: &PodUid, entry: &Entry, get: Get<'_>) -> Vec<VolumeFacts> {
    let state = entry.state.borrow();
    match &*entry.goal.borrow() {
        Goal::Mount(pod) | Goal::Keep(pod) => wanted(uid, pod, &state, get),
        Goal::Release => left(uid, &state),
    }
}

fn wanted(uid: &PodUid, pod: &PodVolumes, state: &VolumeState, get: Get<'_>) -> Vec<VolumeFacts> {
    let missing = match state {
        VolumeState::Waiting { volumes, .. } => volumes.as_slice(),
        VolumeState::Ready(_) | VolumeState::Gone => &[],
    };
    let of = |(name, wanted): (&VolumeName, &Wanted)| {
        let path = match state {
            VolumeState::Ready(all) => all.get(name.as_str()).map(|one| one.host_path.clone()),
            VolumeState::Waiting { .. } | VolumeState::Gone => None,
        };
        let there = !missing.iter().any(|missing| missing == name.as_str());
        VolumeFacts {
            uid: uid.clone(),
            name: name.to_string(),
            kind: wanted.kind(),
            state: if there { Standing::Ready } else { Standing::Waiting },
            problem: problem(state, name.as_str()),
            path,
            measure: Measure::of(wanted, get),
        }
    };
    pod.volumes.iter().map(of).collect()
}

/// What is on its way out.
fn left(uid: &PodUid, state: &VolumeState) -> Vec<VolumeFacts> {
    let VolumeState::Waiting { volumes, .. } = state else { return Vec::new() };
    let of = |name: &String| VolumeFacts {
        uid: uid.clone(),
        name: name.clone(),
        kind: "",
        state: Standing::Leaving,
        problem: problem(state, name),
        path: None,
        measure: Measure::Not,
    };
    volumes.iter().map(of).collect()
}

fn problem(state: &VolumeState, name: &str) -> Option<String> {
    let VolumeState::Waiting { problems, .. } = state else { return None };
    let mut about = problems.iter().filter(|one| one.volume == name || one.volume.is_empty());
    about.next().map(|one| one.message.clone())
}
