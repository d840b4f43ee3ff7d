//! What each pod's worker is doing this moment, and what it will do next.
//!
//! Owns one record per pod. Workers, and whoever makes calls for them, write;
//! `klet why` reads. Nothing is decided from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use kubelet_model::{ContainerName, Mono, PodUid};
use serde::{Deserialize, Serialize};

use crate::admission::Wait;
use crate::image_manager::PullState;
use crate::ports::Clock;

/// One pod's progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps under way, oldest first.
    pub doing: Vec<Doing>,
    /// Calls under way by the order in which they began; what the steps consist of.
    pub calls: BTreeMap<u64, Doing>,
    /// Since when each container fails to start.
    pub failing: BTreeMap<ContainerName, Mono>,
    /// What the pod waits for while nothing is under way.
    pub waiting: Option<WaitingFor>,
    /// The last step that failed, until one like it succeeds.
    pub last_error: Option<StepError>,
    /// What will be tried next.
    pub next: Option<NextTry>,
    /// The pod is being removed.
    pub ending: Option<PodEnd>,
}

/// The end of a pod that is being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodEnd {
    /// Since when its grace counts.
    pub since: Mono,
    /// When what still runs is killed.
    pub kill_at: Mono,
    /// Containers of it still run.
    pub runs: bool,
}

/// A step under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    /// In plain words: a step is `create sandbox` or `start app`, a call is
    /// `RunPodSandbox` or `preStop hook of app`.
    pub what: String,
    /// Since when.
    pub since: Mono,
    /// The pull it is, if it is one.
    pub pull: Option<Pull>,
}

/// A pull made for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// The image, as the pod names it.
    pub image: String,
    /// How far it is.
    pub state: PullState,
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
    /// Whether it may run here is not decided, or others must make room first.
    Admission(Wait),
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

impl Doing {
    /// Something that is not a pull.
    pub fn new(what: impl Into<String>, since: Mono) -> Self {
        Self { what: what.into(), since, pull: None }
    }
}

impl Progress {
    /// The pull under way. A pod has one at a time.
    pub fn pull(&self) -> Option<&Pull> {
        self.calls.values().find_map(|call| call.pull.as_ref())
    }

    /// The step by which a container is being stopped.
    pub fn stop_of(&self, container: &str) -> Option<&Doing> {
        self.doing.iter().find(|step| step.what.strip_prefix("stop ") == Some(container))
    }

    /// What is under way, as exactly as it is known, oldest first.
    pub fn under_way(&self) -> impl Iterator<Item = &Doing> {
        let steps = self.doing.iter().filter(|_| self.calls.is_empty());
        self.calls.values().chain(steps)
    }

    /// The same, with how long each has lasted.
    pub fn in_flight(&self, now: Mono) -> Vec<InFlight> {
        let seconds = |one: &Doing| now.since(one.since).as_secs();
        let told = |one: &Doing| InFlight { what: one.what.clone(), seconds: seconds(one) };
        self.under_way().map(told).collect()
    }
}

/// A call under way, as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// What it does.
    pub what: String,
    /// For how long already.
    pub seconds: u64,
}

/// Everybody's progress. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ProgressBoard(Arc<Mutex<BTreeMap<PodUid, Progress>>>);

/// Tells of the calls made for one pod. Cheap to clone.
#[derive(Clone)]
pub struct Calls {
    board: ProgressBoard,
    clock: Arc<dyn Clock>,
    uid: PodUid,
}

/// A call under way, until dropped.
#[must_use = "the call counts as ended once this is dropped"]
pub struct CallUnderWay {
    board: ProgressBoard,
    uid: PodUid,
    number: u64,
}

impl Calls {
    /// Calls for this pod are told of on that board.
    pub fn new(board: ProgressBoard, clock: Arc<dyn Clock>, uid: PodUid) -> Self {
        Self { board, clock, uid }
    }

    /// A call begins.
    pub fn begin(&self, what: impl Into<String>) -> CallUnderWay {
        let doing = Doing::new(what, self.clock.mono());
        let mut number = 0;
        self.board.update(&self.uid, |progress| {
            number = progress.calls.last_key_value().map_or(0, |(last, _)| last + 1);
            progress.calls.insert(number, doing);
        });
        CallUnderWay { board: self.board.clone(), uid: self.uid.clone(), number }
    }
}

impl CallUnderWay {
    /// The call has come so far.
    pub fn does(&self, what: String) {
        let mut all = self.board.lock();
        let calls = all.get_mut(&self.uid).map(|progress| &mut progress.calls);
        if let Some(call) = calls.and_then(|calls| calls.get_mut(&self.number)) {
            call.what = what;
        }
    }

    /// The call is a pull and has come so far.
    pub fn pulls(&self, what: String, pull: Pull) {
        let mut all = self.board.lock();
        let calls = all.get_mut(&self.uid).map(|progress| &mut progress.calls);
        if let Some(call) = calls.and_then(|calls| calls.get_mut(&self.number)) {
            (call.what, call.pull) = (what, Some(pull));
        }
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        // A pod that is forgotten already stays so.
        if let Some(progress) = self.board.lock().get_mut(&self.uid) {
            progress.calls.remove(&self.number);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemClock;

    fn pull() -> Pull {
        Pull { image: "i".to_owned(), state: PullState::Running(None) }
    }

    fn under_way(board: &ProgressBoard, uid: &PodUid) -> Vec<String> {
        let progress = board.get(uid).unwrap_or_default();
        progress.under_way().map(|one| one.what.clone()).collect()
    }

    #[test]
    fn calls_are_told_while_they_last_and_instead_of_their_step() {
        let (board, uid) = (ProgressBoard::default(), PodUid::new("u"));
        let calls = Calls::new(board.clone(), Arc::new(SystemClock::new()), uid.clone());
        let step = Doing::new("start app", Mono::default());
        board.update(&uid, |progress| progress.doing.push(step));
        assert_eq!(under_way(&board, &uid), ["start app"]);
        let first = calls.begin("ImageStatus");
        let second = calls.begin("PullImage");
        assert_eq!(board.get(&uid).unwrap().pull(), None);
        second.pulls("PullImage: 1 of 2 MB".to_owned(), pull());
        assert_eq!(board.get(&uid).unwrap().pull(), Some(&pull()));
        assert_eq!(under_way(&board, &uid), ["ImageStatus", "PullImage: 1 of 2 MB"]);
        drop(first);
        let third = calls.begin("CreateContainer");
        assert_eq!(under_way(&board, &uid), ["PullImage: 1 of 2 MB", "CreateContainer"]);
        drop((second, third));
        assert_eq!(under_way(&board, &uid), ["start app"]);
    }

    #[test]
    fn a_call_that_outlives_its_pod_does_not_bring_it_back() {
        let (board, uid) = (ProgressBoard::default(), PodUid::new("u"));
        let calls = Calls::new(board.clone(), Arc::new(SystemClock::new()), uid.clone());
        let call = calls.begin("PullImage");
        board.remove(&uid);
        call.pulls("PullImage, still".to_owned(), pull());
        drop(call);
        assert_eq!(board.get(&uid), None);
    }
}
