//! The world outside the agent: runtime, files, URL, clocks, mischief.
//!
//! Owns all of it behind one lock that is never held across an await. Agents
//! come and go; the world stays. Everything random is drawn from one generator,
//! so a seed decides everything.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answers::Answers;
use crate::api::ApiServer;
use crate::checkers;
use crate::faults::Faults;
use crate::invariants::History;
use crate::kills::Kills;
use crate::lifecycle::Courses;
use crate::manifest::PodTemplate;
use crate::node::{CsiVolumes, Endpoints, FileTree, MountTable, PodGroups, Shutdowns, WebPage};
use crate::oracle::{Oracle, Place};
use crate::runtime::{Objects, Twist};
use crate::trace::Trace;
use crate::volume_rules::VolumeHistory;

/// Wall-clock time at the start of a run: 2026-01-01T00:00:00Z.
pub(crate) const EPOCH_SECS: i64 = 1_767_225_600;

/// The shared world.
pub struct World {
    state: Mutex<State>,
    started: Instant,
    /// Rung when the driver must look: a crash or a broken rule.
    pub(crate) bell: Arc<Notify>,
}

/// Everything the world remembers.
pub(crate) struct State {
    pub(crate) rng: StdRng,
    pub(crate) faults: Faults,
    pub(crate) trace: Trace,
    pub(crate) objects: Objects,
    pub(crate) files: FileTree,
    pub(crate) groups: PodGroups,
    pub(crate) volumes: MountTable,
    pub(crate) csi: CsiVolumes,
    pub(crate) volume_history: VolumeHistory,
    pub(crate) page: WebPage,
    pub(crate) endpoints: Endpoints,
    pub(crate) oracle: Oracle,
    /// The API server, for a node in a cluster.
    pub(crate) api: Option<ApiServer>,
    /// What the ConfigMap says; `None` if there is none.
    pub(crate) config: Option<u64>,
    pub(crate) history: History,
    pub(crate) courses: Courses,
    pub(crate) kills: Kills,
    pub(crate) shutdowns: Shutdowns,
    pub(crate) answers: Answers,
    /// Twists to apply to the next calls of a name, before any random ones.
    pub(crate) script: VecDeque<(&'static str, Twist)>,
    pub(crate) runtime_down: bool,
    pub(crate) crash_wanted: bool,
    pub(crate) violation: Option<Violation>,
    wall_offset: SignedDuration,
    /// When the wall clock was moved, and by how much in all from then on.
    pub(crate) wall_jumps: Vec<(Duration, SignedDuration)>,
    started: Instant,
    bell: Arc<Notify>,
}

/// A broken rule.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Name of the pod it is about; empty for the node.
    pub pod: String,
    /// What happened.
    pub text: String,
}

/// One life of the agent. A dead agent's ports do nothing and never answer.
#[derive(Clone)]
pub struct Life {
    alive: Arc<AtomicBool>,
    /// Which life it is, from 1.
    pub number: u64,
}

impl Life {
    /// A new life.
    pub fn new(number: u64) -> Self {
        Self { alive: Arc::new(AtomicBool::new(true)), number }
    }
    /// Is it still running?
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
    /// Ends it.
    pub fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }
}

impl World {
    /// A world for one seed. Must be made inside the run's tokio runtime.
    pub fn new(seed: u64, faults: Faults, echo: bool) -> Arc<Self> {
        let started = Instant::now();
        let bell = Arc::new(Notify::new());
        Arc::new(Self {
            state: Mutex::new(State {
                rng: StdRng::seed_from_u64(seed),
                faults,
                trace: Trace::new(echo),
                objects: Objects::default(),
                files: FileTree::default(),
                groups: PodGroups::default(),
                volumes: MountTable::default(),
                csi: CsiVolumes::default(),
                volume_history: VolumeHistory::default(),
                page: WebPage::default(),
                endpoints: Endpoints::default(),
                oracle: Oracle::default(),
                api: None,
                config: None,
                history: History::default(),
                courses: Courses::default(),
                kills: Kills::default(),
                shutdowns: Shutdowns::default(),
                answers: Answers::default(),
                script: VecDeque::new(),
                runtime_down: false,
                crash_wanted: false,
                violation: None,
                wall_offset: SignedDuration::ZERO,
                wall_jumps: Vec::new(),
                started,
                bell: Arc::clone(&bell),
            }),
            started,
            bell,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("world lock: a panic ends the run anyway")
    }

    /// Time since the run began.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records that a manifest is published, without writing it anywhere.
    pub fn publish(&self, place: Place, template: &PodTemplate) -> PodTemplate {
        let mut state = self.lock();
        let now = state.now();
        state.oracle.publish(place, template, now)
    }

    /// Records that a manifest is withdrawn.
    pub fn withdraw(&self, place: &Place) {
        let mut state = self.lock();
        let now = state.now();
        state.oracle.withdraw(place, now);
    }

    /// Records how large the volumes that pods share are to be, without writing it anywhere.
    pub fn want_bytes(&self, bytes: i64) {
        self.lock().csi.wanted = Some(bytes);
    }

    /// Somebody else mounts something below a volume; returns where.
    pub fn mount_foreign(&self, volume: &Path) -> PathBuf {
        self.lock().mount_foreign(volume)
    }

    /// What is wrong with volumes once all is quiet, of pods of these uids and phases.
    pub fn stale_volume(&self, pods: &[(&str, &str)]) -> Option<Violation> {
        checkers::stale_volume(&self.lock(), pods)
    }

    /// The first broken rule, if any.
    pub fn violation(&self) -> Option<Violation> {
        self.lock().violation.clone()
    }

    /// The agent of this life dies at once.
    pub(crate) fn request_crash(&self, life: &Life, why: &str) {
        if !life.is_alive() {
            return;
        }
        life.end();
        let mut state = self.lock();
        state.crash_wanted = true;
        state.note("", format!("agent crashes {why}"));
        self.bell.notify_one();
    }
}

impl State {
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Wall-clock time, jumps included.
    pub(crate) fn wall(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.now()).unwrap_or(SignedDuration::MAX);
        Timestamp::from_second(EPOCH_SECS)
            .and_then(|epoch| epoch.checked_add(elapsed + self.wall_offset))
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Wall-clock time as CRI carries it.
    pub(crate) fn wall_ns(&self) -> i64 {
        i64::try_from(self.wall().as_nanosecond()).unwrap_or(i64::MAX)
    }

    pub(crate) fn jump_wall(&mut self, by: SignedDuration) {
        self.wall_offset += by;
        let now = self.now();
        self.wall_jumps.push((now, self.wall_offset));
        self.note("", format!("wall clock jumps by {}s", by.as_secs()));
    }

    pub(crate) fn note(&mut self, pod: &str, text: String) {
        let now = self.now();
        self.trace.record(now, pod, text);
    }

    /// Records the first broken rule; later ones follow from it.
    pub(crate) fn violate(&mut self, pod: &str, text: String) {
        self.note(pod, format!("RULE BROKEN: {text}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { pod: pod.to_owned(), text });
            self.bell.notify_one();
        }
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability.min(1.0))
    }

    /// An ordinary delay.
    pub(crate) fn delay(&mut self) -> Duration {
        let max = u64::try_from(self.faults.latency_max.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.rng.random_range(0..=max))
    }
}
