//! Ending pods because the node decides so: eviction, preemption, shutdown.
//!
//! Owns the way to the dispatcher and what callers can wait for. A pod that is killed
//! fails, unless it has succeeded, with the words of whoever killed it first; who comes
//! later can only make it quicker. Writes nothing itself: the pod's worker stops the
//! containers and reports. Upstream: killPodNow in pkg/kubelet/pod_workers.go.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_model::{DesiredPod, EventObject, EventType, FullName, Grace, Mono, PodUid};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::events::Recorder;
use crate::pod_plan::Termination;
use crate::status_manager::Ended;

/// Commands that may wait for the dispatcher: a node's worth of pods.
const COMMANDS_MAX: usize = 128;
/// What the runtime is given at the least to kill a pod, whatever the pod's grace.
const WAIT_MIN: Duration = Duration::from_secs(10);

/// Why and how the node ends a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// The most that its containers get to end; `None` leaves them what the pod says.
    pub grace: Option<Grace>,
    /// Message of the condition `DisruptionTarget`, if the pod is to have it.
    pub disruption: Option<String>,
    /// What its containers wrote is wanted back at once: they are removed as soon as
    /// they have ended, and not only when somebody deletes the pod.
    pub evict: bool,
}

impl Kill {
    fn ended(&self) -> Ended {
        Ended {
            reason: self.reason.clone(),
            message: self.message.clone(),
            before_anything: false,
            disruption: self.disruption.clone(),
        }
    }
}

/// How far a pod is that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillStage {
    /// Containers may run.
    Asked,
    /// Nothing of it runs.
    Dead,
    /// Its volumes are unmounted and its control group is gone, or the whole pod is.
    CleanedUp,
}

/// A pod was not seen to end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KillError {
    /// It takes longer than it was given.
    #[error(
        "pod {0} still runs {1:?} after it was told to end; its worker goes on, see `klet why`"
    )]
    TooLong(FullName, Duration),
    /// Nobody is there to end it.
    #[error("the agent is being stopped, and pods are left as they are")]
    AgentStops,
}

/// Waits for the end of a pod.
#[derive(Debug, Clone)]
pub struct KillWatch(watch::Receiver<KillStage>);

impl KillWatch {
    /// Returns once nothing of the pod runs.
    pub async fn dead(&mut self) -> Result<(), KillError> {
        self.reach(KillStage::Dead).await
    }

    /// Returns once nothing of it uses the node, but for its status and its logs.
    pub async fn cleaned_up(&mut self) -> Result<(), KillError> {
        self.reach(KillStage::CleanedUp).await
    }

    /// How far it is.
    pub fn stage(&self) -> KillStage {
        *self.0.borrow()
    }

    async fn reach(&mut self, stage: KillStage) -> Result<(), KillError> {
        let reached = self.0.wait_for(|now| *now >= stage).await;
        reached.map(|_| ()).map_err(|_| KillError::AgentStops)
    }
}

/// Ends pods. Cheap to clone.
#[derive(Clone)]
pub struct PodKiller {
    commands: mpsc::Sender<Command>,
    recorder: Recorder,
}

/// What the dispatcher is told.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) uid: PodUid,
    pub(crate) kill: Kill,
    pub(crate) stage: watch::Sender<KillStage>,
}

impl PodKiller {
    pub(crate) fn new(recorder: Recorder) -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self { commands, recorder }, receiver)
    }

    /// Has a pod ended. One that is not here has ended already.
    pub async fn kill(&self, uid: &PodUid, kill: Kill) -> KillWatch {
        let (stage, watch) = watch::channel(KillStage::Asked);
        // Nobody to take it: the watch tells.
        let _ = self.commands.send(Command { uid: uid.clone(), kill, stage }).await;
        KillWatch(watch)
    }

    /// Has a pod ended and waits until nothing of it runs, as long as its grace makes
    /// sense of, but no less than ten seconds.
    pub async fn kill_and_wait(
        &self,
        pod: &DesiredPod,
        kill: Kill,
    ) -> (KillWatch, Result<(), KillError>) {
        let own = Grace::from_secs(Grace::seconds_of(pod.spec()));
        let grace = kill.grace.unwrap_or(own).duration();
        let limit = (grace + grace / 2).max(WAIT_MIN);
        let mut watch = self.kill(pod.uid(), kill).await;
        let dead = timeout(limit, watch.dead()).await.unwrap_or_else(|_| {
            let text = "Container runtime did not kill the pod within specified grace period.";
            let object = EventObject::pod(pod);
            self.recorder.record(&object, EventType::Warning, "ExceededGracePeriod", text);
            Err(KillError::TooLong(pod.full_name().clone(), limit))
        });
        (watch, dead)
    }
}

/// What a worker is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KillOrder {
    pub(super) ended: Ended,
    pub(super) evict: bool,
    pub(super) termination: Termination,
}

/// The pods that were killed and are still known. The dispatcher's own.
#[derive(Debug, Default)]
pub(super) struct Killed(BTreeMap<PodUid, Entry>);

#[derive(Debug)]
struct Entry {
    order: KillOrder,
    /// Whoever waits for it.
    waiting: Vec<watch::Sender<KillStage>>,
    stage: KillStage,
}

impl Killed {
    /// Takes up a command for a pod that is known and this far; what its worker is told.
    pub(super) fn take(
        &mut self,
        command: Command,
        pod: Option<&DesiredPod>,
        stage: KillStage,
        now: Mono,
    ) -> KillOrder {
        let Command { uid, kill, stage: waiting } = command;
        let own = pod.map(|pod| Grace::from_secs(Grace::seconds_of(pod.spec())));
        let grace = [own, kill.grace].into_iter().flatten().min().unwrap_or(Grace::FLOOR);
        let termination = Termination { since: now, grace };
        let new = || Entry {
            order: KillOrder { ended: kill.ended(), evict: kill.evict, termination },
            waiting: Vec::new(),
            stage,
        };
        let entry = self.0.entry(uid).or_insert_with(new);
        if termination.ends_at() < entry.order.termination.ends_at() {
            entry.order.termination = termination;
        }
        entry.order.evict |= kill.evict;
        entry.stage = entry.stage.max(stage);
        waiting.send_replace(entry.stage);
        if entry.stage < KillStage::CleanedUp {
            entry.waiting.push(waiting);
        }
        entry.order.clone()
    }

    /// What the worker of a pod is told.
    pub(super) fn order_of(&self, uid: &PodUid) -> Option<KillOrder> {
        self.0.get(uid).map(|entry| entry.order.clone())
    }

    /// A pod has come this far.
    pub(super) fn reach(&mut self, uid: &PodUid, stage: KillStage) {
        if let Some(entry) = self.0.get_mut(uid) {
            entry.reach(stage);
        }
    }

    /// Nothing of the others is left here, nor will be.
    pub(super) fn retain(&mut self, known: impl Fn(&PodUid) -> bool) {
        self.0.retain(|uid, entry| {
            let keep = known(uid);
            if !keep {
                entry.reach(KillStage::CleanedUp);
            }
            keep
        });
    }
}

impl Entry {
    fn reach(&mut self, stage: KillStage) {
        self.stage = self.stage.max(stage);
        for waiting in &self.waiting {
            waiting.send_replace(self.stage);
        }
        if self.stage == KillStage::CleanedUp {
            self.waiting.clear();
        }
    }
}
