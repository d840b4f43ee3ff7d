//! Starts and ends workers as the plan says, and supervises them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet_model::{DesiredPod, FullName, Grace, PodSet, PodUid};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::admission::words;
use super::census::census;
use super::kill::{self, KillStage, Killed, PodKiller};
use super::lifecycle::{self, Command, WorkerFacts};
use super::worker::{Intent, Order, Report, Worker};
use super::{Shared, orphan_files};
use crate::admission::Wait;
use crate::container_manager::PodContainers;
use crate::pleg::Existing;
use crate::pod_plan::Termination;
use crate::pod_sources::PodSetReader;
use crate::progress::{Obstacle, WaitingFor};
use crate::pulse::BEAT;

/// Reports of workers that may wait to be noticed.
const REPORTS_MAX: usize = 256;
/// What a pod gets that only the runtime knows.
const ORPHAN_GRACE: Grace = Grace::FLOOR;
/// Pause after what is left of unknown pods could not be removed.
const SWEEP_RETRY: Duration = Duration::from_secs(60);
/// Pause while volumes of unknown pods are being unmounted.
const SWEEP_SOON: Duration = Duration::from_secs(1);
/// How long changes of what the runtime holds are gathered: they matter for pods that
/// nobody desires, and while many pods start each comes with several.
const KNOWN_REST: Duration = Duration::from_millis(200);
/// Pause before a worker that panicked starts again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Dispatcher {
    pub(super) shared: Shared,
    pub(super) desired: PodSetReader,
    /// What is known of each worker, and how to tell it something.
    pub(super) workers: BTreeMap<PodUid, WorkerFacts>,
    orders: BTreeMap<PodUid, watch::Sender<Order>>,
    reports: (mpsc::Sender<Report>, mpsc::Receiver<Report>),
    /// Pods that the node itself ends, also those that make room for others.
    pub(super) killer: PodKiller,
    kills: mpsc::Receiver<kill::Command>,
    killed: Killed,
    /// Pods that cannot be started yet.
    pub(super) held_back: BTreeMap<PodUid, Option<Wait>>,
    /// The pods that the tiers' shares were last worked out for.
    shared_among: Vec<(PodUid, usize)>,
    /// When to clear what a crash left behind; `None` once that is done.
    sweep_at: Option<Instant>,
    /// What was last said about it.
    sweep_problem: Option<String>,
}

impl Dispatcher {
    pub(super) fn new(
        shared: Shared,
        desired: PodSetReader,
        killer: PodKiller,
        kills: mpsc::Receiver<kill::Command>,
    ) -> Self {
        Self {
            shared,
            desired,
            workers: BTreeMap::new(),
            orders: BTreeMap::new(),
            reports: mpsc::channel(REPORTS_MAX),
            killer,
            kills,
            killed: Killed::default(),
            held_back: BTreeMap::new(),
            shared_among: Vec::new(),
            sweep_at: Some(Instant::now()),
            sweep_problem: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut known = self.shared.observations.known_changes();
        let allocations = self.shared.allocations.clone();
        let (mut inputs, mut runtime) =
            (self.shared.admission.clone(), self.shared.runtime.clone());
        let mut listed = false;
        loop {
            self.reconcile();
            self.sweep();
            let mut gathered: Option<Instant> = None;
            loop {
                let now = Instant::now();
                self.shared.pulse.beat();
                let sweep_at = self.sweep_at.filter(|at| *at > now);
                let room_at = self.room_at(now);
                let next = gathered.into_iter().chain(sweep_at).chain(room_at).min();
                tokio::select! { biased;
                    Some(report) = self.reports.1.recv() => self.note(&report),
                    Some(command) = self.kills.recv() => self.kill(command),
                    () = self.desired.changed() => {}
                    () = allocations.changed() => {}
                    () = inputs.node_changed() => {}
                    () = runtime.changed(), if self.awaits_runtime() => {}
                    changed = known.changed() => match changed {
                        Err(_) => return,
                        // The first listing is what all pods wait for.
                        Ok(()) if !listed => {}
                        Ok(()) => {
                            gathered.get_or_insert(now + KNOWN_REST);
                            continue;
                        }
                    },
                    () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
                    () = sleep_until(now + BEAT) => continue,
                }
                break;
            }
            listed = self.shared.observations.listed().is_some();
        }
    }

    /// Clears what a crash left behind, once it is known which pods there are.
    fn sweep(&mut self) {
        let desired = self.desired.current();
        let known_all = desired.sources_ready && self.shared.observations.listed().is_some();
        if !known_all || self.sweep_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        let existing = self.shared.observations.existing();
        let known = desired.pods.keys().chain(self.workers.keys());
        let known: BTreeSet<PodUid> =
            known.chain(existing.iter().map(|pod| &pod.uid)).cloned().collect();
        self.shared.allocations.retain(|uid| known.contains(uid));
        let groups = self.pod_containers();
        let Shared { ports, volumes, settings, .. } = &self.shared;
        let files = orphan_files::sweep(&*ports.fs, volumes, settings, &known);
        let under_way = matches!(&files, Err(error) if error.kind() == ErrorKind::WouldBlock);
        let swept = files
            .map_err(|error| error.to_string())
            .and(groups.remove_orphans(&known).map_err(|error| error.to_string()));
        self.sweep_at = match swept {
            Ok(()) => None,
            Err(_) if under_way => Some(Instant::now() + SWEEP_SOON),
            Err(error) => {
                if self.sweep_problem.as_ref() != Some(&error) {
                    tracing::warn!(
                        error,
                        "cannot remove what is left of pods that are no more; trying again"
                    );
                    self.sweep_problem = Some(error);
                }
                Some(Instant::now() + SWEEP_RETRY)
            }
        };
    }

    fn note(&mut self, report: &Report) {
        let (Report::Ended(uid) | Report::CleanedUp(uid) | Report::Finished(uid)) = report;
        let Some(worker) = self.workers.get_mut(uid) else { return };
        match report {
            Report::Ended(_) => {
                worker.ended = true;
                self.killed.reach(uid, KillStage::Dead);
            }
            Report::CleanedUp(_) => {
                worker.cleaned = true;
                self.killed.reach(uid, KillStage::CleanedUp);
            }
            Report::Finished(_) => {
                worker.finished = true;
                self.killed.reach(uid, KillStage::CleanedUp);
                self.shared.statuses.finish(uid);
            }
        }
    }

    /// Has a pod ended for the node's sake. One that waits for its turn is told when it
    /// gets it.
    fn kill(&mut self, command: kill::Command) {
        let desired = self.desired.current();
        let uid = command.uid.clone();
        let worker = self.workers.get(&uid);
        let stage = match worker {
            Some(worker) if worker.finished || worker.cleaned => KillStage::CleanedUp,
            Some(worker) if worker.ended => KillStage::Dead,
            Some(_) => KillStage::Asked,
            None if desired.pods.contains_key(&uid) => KillStage::Asked,
            None => {
                command.stage.send_replace(KillStage::CleanedUp);
                return;
            }
        };
        let known = worker.and_then(|worker| worker.pod.as_ref()).or(desired.pods.get(&uid));
        if stage == KillStage::Asked {
            let pod = known.map(|pod| pod.full_name().to_string()).unwrap_or_default();
            let reason = &command.kill.reason;
            tracing::info!(pod, %uid, reason, "the node ends the pod");
        }
        let now = self.shared.ports.clock.mono();
        let order = self.killed.take(command, known, stage, now);
        if let Some(orders) = self.orders.get(&uid) {
            orders.send_if_modified(|told| {
                let changed = told.kill.as_ref() != Some(&order);
                told.kill = Some(order);
                changed
            });
        }
    }

    /// Plans until nothing is left to do: forgetting a worker may free a name.
    fn reconcile(&mut self) {
        let listed = self.shared.observations.listed().is_some();
        let existing = listed.then(|| self.shared.observations.existing());
        let desired = loop {
            let desired = self.allocate(existing.as_deref());
            self.held_back = self.shared.allocations.held_back();
            let held = |uid: &PodUid| self.held_back.contains_key(uid);
            let commands = lifecycle::plan(&desired, &self.workers, existing.as_deref(), &held);
            if commands.is_empty() {
                break desired;
            }
            for command in commands {
                self.perform(command, &desired, existing.as_deref().unwrap_or_default());
            }
        };
        let workers = &self.workers;
        self.killed.retain(|uid| workers.contains_key(uid) || desired.pods.contains_key(uid));
        self.tell_of_resizes();
        self.report_queued(&desired);
        self.share_processors(&desired);
        self.shared.metrics.pods.count(&census(&desired, &self.workers));
    }

    /// Workers report what becomes of their pods' resizes.
    fn tell_of_resizes(&self) {
        for (uid, orders) in &self.orders {
            let resize = self.shared.allocations.resize_of(uid);
            orders.send_if_modified(|order| {
                let changed = order.resize != resize;
                order.resize = resize;
                changed
            });
        }
    }

    fn pod_containers(&self) -> PodContainers {
        let rules = self.shared.settings.resources.clone();
        PodContainers::new(Arc::clone(&self.shared.ports.cgroups), rules)
    }

    /// Gives the tiers of pods their share when pods have come or gone.
    fn share_processors(&mut self, desired: &PodSet) {
        let ended = |uid: &PodUid| self.workers.get(uid).is_some_and(|worker| worker.ended);
        let active: Vec<&DesiredPod> =
            desired.pods.values().filter(|pod| !ended(pod.uid())).collect();
        // A pod that is resized is another object.
        let pods = active.iter().map(|pod| (pod.uid().clone(), Arc::as_ptr(pod.pod()) as usize));
        let pods: Vec<(PodUid, usize)> = pods.collect();
        if self.shared_among == pods {
            return;
        }
        match self.pod_containers().refresh_qos(active.into_iter()) {
            Ok(()) => self.shared_among = pods,
            Err(error) => tracing::debug!(%error, "tiers of pods keep their old share"),
        }
    }

    /// Pods that wait for their turn have a status too.
    fn report_queued(&self, desired: &PodSet) {
        let (workers, statuses) = (&self.workers, &self.shared.statuses);
        let is_known = |uid: &PodUid| workers.contains_key(uid) || desired.pods.contains_key(uid);
        statuses.retain(is_known);
        self.shared.progress.retain(is_known);
        for pod in desired.pods.values() {
            if self.workers.contains_key(pod.uid()) {
                continue;
            }
            let mut others = self.workers.iter().filter(|(_, w)| w.full_name == *pod.full_name());
            let held = self.held_back.get(pod.uid()).cloned().flatten();
            let (obstacle, message) = match others.next() {
                None if let Some(wait) = held => (Obstacle::Admission(wait.clone()), words(&wait)),
                Some((uid, _)) => (
                    Obstacle::NameTaken,
                    format!("waiting until the pod of the same name with uid {uid} has ended"),
                ),
                None => (
                    Obstacle::Observation,
                    "waiting for the first complete listing of the runtime".to_owned(),
                ),
            };
            // What an API server knows of the pod is more than that it waits here.
            self.shared.statuses.begin(pod);
            if self.shared.statuses.get(pod.uid()).is_none_or(|status| status.start_time.is_none())
            {
                let status = PodStatus {
                    phase: Some("Pending".to_owned()),
                    message: Some(message),
                    ..pod.asked().status.clone().unwrap_or_default()
                };
                self.shared.statuses.set(pod, status);
            }
            let queue = WaitingFor { what: obstacle, since: self.shared.ports.clock.mono() };
            self.shared.progress.update(pod.uid(), |progress| {
                if progress.waiting.as_ref().is_none_or(|old| old.what != queue.what) {
                    progress.waiting = Some(queue);
                }
            });
        }
    }

    fn perform(&mut self, command: Command, desired: &PodSet, existing: &[Existing]) {
        match command {
            Command::Start(uid) => {
                if let Some(pod) = desired.pods.get(&uid) {
                    self.shared.statuses.begin(pod);
                    let now = self.shared.ports.clock.wall();
                    self.shared.metrics.pods.begin_worker(pod, now);
                    let grace = pod.deletion();
                    let intent = match grace {
                        Some(seconds) => self.ending(Grace::from_secs(seconds.max(1))),
                        None => Intent::Run,
                    };
                    self.start(uid.clone(), pod.full_name().clone(), Some(pod.clone()), intent);
                    if let Some(worker) = self.workers.get_mut(&uid) {
                        worker.grace = grace;
                    }
                }
            }
            Command::Update(uid) => {
                if let (Some(pod), Some(worker)) =
                    (desired.pods.get(&uid), self.workers.get_mut(&uid))
                {
                    worker.pod = Some(pod.clone());
                    self.order(&uid, |order| order.pod = Some(pod.clone()));
                }
            }
            Command::End(uid) => self.end(&uid, desired.pods.get(&uid)),
            Command::EndOrphan(uid) => {
                if let Some(pod) = existing.iter().find(|pod| pod.uid == uid) {
                    tracing::info!(pod = %pod.full_name, %uid, "removing a pod that only the runtime knows");
                    let intent = self.ending(ORPHAN_GRACE);
                    self.start(uid, pod.full_name.clone(), None, intent);
                }
            }
            Command::Forget(uid) => {
                self.workers.remove(&uid);
                self.orders.remove(&uid);
                self.killed.retain(|killed| *killed != uid);
                self.shared.statuses.remove(&uid);
                self.shared.progress.remove(&uid);
                self.shared.allocations.remove(&uid);
            }
        }
    }

    /// Ends a pod that nobody wants, or that is being deleted.
    fn end(&mut self, uid: &PodUid, wanted: Option<&DesiredPod>) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let spec = worker.pod.as_ref().map(DesiredPod::spec);
        let own = spec.and_then(|spec| spec.termination_grace_period_seconds);
        worker.grace = wanted.and_then(DesiredPod::deletion);
        let grace = worker.grace.or(own);
        let grace = grace.map_or(ORPHAN_GRACE, |seconds| Grace::from_secs(seconds.max(1)));
        tracing::info!(pod = %worker.full_name, %uid, grace = ?grace.duration(), "ending pod");
        worker.ending = true;
        let pod = wanted.cloned();
        worker.pod = pod.clone().or(worker.pod.take());
        let intent = self.ending(grace);
        self.order(uid, |order| {
            order.intent = intent;
            order.pod = pod.or(order.pod.take());
        });
    }

    fn order(&self, uid: &PodUid, change: impl FnOnce(&mut Order)) {
        if let Some(orders) = self.orders.get(uid) {
            orders.send_modify(change);
        }
    }

    fn ending(&self, grace: Grace) -> Intent {
        Intent::End(Termination { since: self.shared.ports.clock.mono(), grace })
    }

    fn start(&mut self, uid: PodUid, full_name: FullName, pod: Option<DesiredPod>, intent: Intent) {
        let ending = matches!(intent, Intent::End(_));
        let resize = self.shared.allocations.resize_of(&uid);
        let kill = self.killed.order_of(&uid);
        let rejected = self.shared.allocations.rejection_of(&uid);
        let order = Order { pod: pod.clone(), intent, resize, kill, rejected };
        let (orders, receiver) = watch::channel(order);
        let name = full_name.clone();
        let facts = WorkerFacts {
            full_name,
            pod,
            ending,
            grace: None,
            ended: false,
            cleaned: false,
            finished: false,
        };
        self.workers.insert(uid.clone(), facts);
        self.orders.insert(uid.clone(), orders);
        let (shared, reports) = (self.shared.clone(), self.reports.0.clone());
        self.shared.ports.tasks.spawn(supervise(shared, (uid, name), receiver, reports));
    }
}

/// Runs a worker to its end, starting it again after a panic.
async fn supervise(
    shared: Shared,
    (uid, full_name): (PodUid, FullName),
    orders: watch::Receiver<Order>,
    reports: mpsc::Sender<Report>,
) {
    let metrics = Arc::clone(&shared.metrics);
    loop {
        let (orders, reports) = (orders.clone(), reports.clone());
        let worker = Worker::new(shared.clone(), uid.clone(), full_name.clone(), orders, reports);
        match AssertUnwindSafe(worker.run()).catch_unwind().await {
            Ok(()) => break,
            Err(_) => {
                metrics.worker_panics.inc();
                tracing::error!(pod = %uid, "pod worker panicked; starting it again");
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
    }
    // A closed channel means the agent is shutting down.
    let _ = reports.send(Report::Finished(uid)).await;
}
