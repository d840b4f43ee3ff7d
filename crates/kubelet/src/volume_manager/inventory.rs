//! Which volumes there are.
//!
//! Reads what the pods' tasks tell; changes nothing. Upstream has none.

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_model::{ConfigObject, ObjectKey, PodUid};

pub use super::clean::CleanError;
use super::desired::{PodVolumes, Wanted};
use super::layout::VolumeName;
use super::measure::Measure;
use super::plan::Goal;
use super::{Entry, VolumeState, Volumes};

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
    /// Of a block volume: where the pod's device is, once it is there.
    pub device: Option<PathBuf>,
    /// How it is measured.
    pub measure: Measure,
    /// The claim it is named by.
    pub claim: Option<ObjectKey>,
    /// It lies on the node's own disk and goes with the pod.
    pub ephemeral: bool,
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

impl Volumes {
    /// Every volume of every pod, by uid and name.
    pub fn inventory(&self) -> Vec<VolumeFacts> {
        let get = |key: &ObjectKey| self.0.objects.get(key);
        self.lock().iter().flat_map(|(uid, entry)| facts(uid, entry, &get)).collect()
    }
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
        let made = match state {
            VolumeState::Ready(all) => all.get(name.as_str()),
            VolumeState::Waiting { .. } | VolumeState::Gone => None,
        };
        let there = !missing.iter().any(|missing| missing == name.as_str());
        VolumeFacts {
            uid: uid.clone(),
            name: name.to_string(),
            kind: wanted.kind(),
            state: if there { Standing::Ready } else { Standing::Waiting },
            problem: problem(state, name.as_str()),
            path: made.map(|one| one.host_path.clone()),
            device: made.and_then(|one| Some(one.device.as_ref()?.join(uid.as_str()))),
            measure: Measure::of(wanted, get),
            claim: match wanted {
                Wanted::Claim(spec) => Some(spec.claim.clone()),
                _ => None,
            },
            ephemeral: wanted.is_ephemeral(),
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
        device: None,
        measure: Measure::Not,
        claim: None,
        ephemeral: false,
    };
    volumes.iter().map(of).collect()
}

fn problem(state: &VolumeState, name: &str) -> Option<String> {
    let VolumeState::Waiting { problems, .. } = state else { return None };
    let mut about = problems.iter().filter(|one| one.volume == name || one.volume.is_empty());
    about.next().map(|one| one.message.clone())
}
