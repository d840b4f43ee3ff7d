//! What each pod's worker is doing this moment, and what it will do next.
//!
//! Owns one record per pod. Workers write; `klet why` reads. Nothing is decided
//! from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use kubelet_model::{Mono, PodUid};

/// One pod's progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps under way, oldest first.
    pub doing: Vec<Doing>,
    /// What the pod waits for while nothing is under way.
    pub waiting: Option<WaitingFor>,
    /// The last step that failed, until one like it succeeds.
    pub last_error: Option<StepError>,
    /// What will be tried next.
    pub next: Option<NextTry>,
}

/// A step under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    /// In plain words: `create sandbox`, `start app`, `run the preStop hook of app`.
    pub what: String,
    /// Since when.
    pub since: Mono,
}

/// What a pod waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingFor {
    /// What it is.
    pub what: Obstacle,
    /// Since when.
    pub since: Mono,
}

/// Why nothing is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The runtime does not answer, or says that it is not ready.
    Runtime(String),
    /// The runtime's network is not ready.
    Network(String),
    /// The runtime has not told yet how the pod is.
    Observation,
    /// Volumes are not mounted yet, or cannot be unmounted; what is wrong, if anything.
    Volumes {
        /// Which.
        volumes: Vec<String>,
        /// What is wrong with them.
        problems: Vec<String>,
        /// They are on their way out.
        leaving: bool,
    },
    /// Other pods have their turn at the runtime.
    Turn,
    /// Another pod of the same name must end first.
    NameTaken,
    /// A failed step rests before it is tried again.
    Retry,
    /// Nothing: the pod is as it should be.
    Nothing,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepError {
    /// Which step, in plain words.
    pub step: String,
    /// What came of it.
    pub message: String,
    /// When, by the wall clock.
    pub at: Timestamp,
    /// How often in a row.
    pub count: u32,
}

/// The next try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextTry {
    /// Of what, in plain words.
    pub what: String,
    /// When.
    pub at: Mono,
}

/// Everybody's progress. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ProgressBoard(Arc<Mutex<BTreeMap<PodUid, Progress>>>);

impl ProgressBoard {
    /// A pod's progress.
    pub fn get(&self, uid: &PodUid) -> Option<Progress> {
        self.lock().get(uid).cloned()
    }
    /// Changes a pod's progress.
    pub fn update(&self, uid: &PodUid, change: impl FnOnce(&mut Progress)) {
        change(self.lock().entry(uid.clone()).or_default());
    }
    /// Forgets all pods but these.
    pub fn retain(&self, keep: impl Fn(&PodUid) -> bool) {
        self.lock().retain(|uid, _| keep(uid));
    }
    /// Forgets a pod that is no more.
    pub fn remove(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Progress>> {
        self.0.lock().expect("progress lock: no code panics while holding it")
    }
}
