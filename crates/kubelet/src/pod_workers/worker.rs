//! One pod's worker: look, plan, report, act, look again.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodStatus;
use kubelet_model::{
    Action, BackoffPolicy, ContainerId, ContainerName, DesiredPod, FullName, Grace, Mono,
    ObservedPod, PodResources, PodUid, ProbeResults, Steps, Waiting,
};
use tokio::sync::{mpsc, watch};

use super::Shared;
use super::kill::KillOrder;
use super::volumes::FollowedObjects;
use crate::admission::Rejection;
use crate::allocation::{Refusal, Resize};
use crate::pleg::{PodWatch, RuntimeState};
use crate::pod_plan::{self, Ending, Memory, PlanContext, Termination};
use crate::probe_manager::ProbeWatch;
use crate::status_manager::{Ended, Facts, Stage, generate, is_terminal};
use crate::volume_manager::VolumeWatch;

/// What a worker is told.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// The pod; `None` if only the runtime knows it.
    pub pod: Option<DesiredPod>,
    /// What to do with it.
    pub intent: Intent,
    /// Its resizes.
    pub resize: Resize,
    /// The node itself ends it.
    pub kill: Option<KillOrder>,
    /// Why it may not run here, if it may not.
    pub rejected: Option<Rejection>,
}

impl Order {
    /// When and how soon the pod has to end, if it has to: of two reasons, the sooner one.
    pub(super) fn termination(&self) -> Option<Termination> {
        let told = match self.intent {
            Intent::Run => None,
            Intent::End(termination) => Some(termination),
        };
        let killed = self.kill.as_ref().map(|kill| kill.termination);
        told.into_iter().chain(killed).min_by_key(Termination::ends_at)
    }
}

/// What a worker tells the dispatcher.
#[derive(Debug)]
pub(super) enum Report {
    /// The pod ended by itself, or the node ended it, and nothing of it runs any more.
    Ended(PodUid),
    /// Nor does anything of it use the node: its volumes and its control group are gone.
    CleanedUp(PodUid),
    /// Nothing of the pod is left, and nobody wants it.
    Finished(PodUid),
}

/// What to do with a pod. Only ever moves from running to ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// Run it.
    Run,
    /// Stop and remove it.
    End(Termination),
}

pub(super) struct Worker {
    pub(super) shared: Shared,
    pub(super) uid: PodUid,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) seen: PodWatch,
    pub(super) memory: Memory,
    /// What the probes of the pod's containers say, and when that changes.
    probes: ProbeResults,
    pub(super) probe_watch: ProbeWatch,
    /// When the pod's volumes change.
    pub(super) volume_watch: VolumeWatch,
    /// The objects that its containers' variables and its images need are kept known.
    pub(super) objects: Option<FollowedObjects>,
    /// Observations that began before this say nothing about what was done since.
    pub(super) fence: Mono,
    /// The fence for which a fresh look was asked for.
    pub(super) requested: Option<Mono>,
    pub(super) runtime: RuntimeState,
    pub(super) files_removed: bool,
    /// The name under which the pod was first known.
    pub(super) full_name: FullName,
    /// The pod ended by itself; whatever is left of it is stopped.
    pub(super) ended_itself: bool,
    /// The dispatcher knows that the pod ended by itself.
    pub(super) end_told: bool,
    /// It also knows that nothing of it uses the node.
    pub(super) clean_up_told: bool,
    recoveries: u64,
    was_ending: bool,
    /// Containers that rest after a crash, until they are started again.
    pub(super) resting: BTreeMap<ContainerName, Waiting>,
    /// Why the agent ended the pod, if it did.
    pub(super) ended: Option<Ended>,
    /// Why the pod cannot be looked at.
    blindness: Option<String>,
    /// What the pod is given to end, once it has to.
    pub(super) ending: Ending,
    /// The pod's own control group is gone.
    pub(super) cgroup_removed: bool,
    /// The last failure logged per kind of action, so that each is said once.
    pub(super) told: BTreeMap<String, String>,
    /// How many of its resizes were allocated when it last looked.
    pub(super) resizes: u64,
    /// A resize is being put in force.
    pub(super) resizing: bool,
    /// What its containers were last given.
    pub(super) actuated: Option<PodResources>,
    /// Instances that were asked whether they are ready when they had started.
    asked: BTreeSet<ContainerId>,
}

/// What one look at the facts leads to.
pub(super) struct Decision {
    pub(super) steps: Steps,
    pub(super) waiting: BTreeMap<ContainerName, Waiting>,
    pub(super) wake_at: Option<Mono>,
    pub(super) stage: Stage,
    pub(super) finished: bool,
}

impl Worker {
    pub(super) fn new(
        mut shared: Shared,
        uid: PodUid,
        full_name: FullName,
        orders: watch::Receiver<Order>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        let seen = shared.observations.follow(&uid);
        let runtime = shared.runtime.current_and_update();
        let recoveries = runtime.recoveries;
        let probe_watch = shared.probes.follow(&uid);
        let resizes = orders.borrow().resize.allocated;
        Self {
            shared,
            uid,
            orders,
            reports,
            seen,
            memory: Memory::default(),
            probe_watch,
            volume_watch: VolumeWatch::default(),
            objects: None,
            probes: ProbeResults::default(),
            fence: Mono::default(),
            requested: None,
            runtime,
            files_removed: false,
            full_name,
            ended_itself: false,
            end_told: false,
            clean_up_told: false,
            recoveries,
            was_ending: false,
            resting: BTreeMap::new(),
            ended: None,
            blindness: None,
            ending: Ending::default(),
            cgroup_removed: false,
            told: BTreeMap::new(),
            resizes,
            resizing: false,
            actuated: None,
            asked: BTreeSet::new(),
        }
    }

    /// Works until nothing of the pod is left and nobody wants it.
    pub(super) async fn run(mut self) {
        loop {
            let order = self.orders.borrow_and_update().clone();
            let seen = self.seen.current();
            if self.seen.began().is_none_or(|began| began < self.fence) {
                self.runtime = self.shared.runtime.current_and_update();
                self.report_blindness(&order, &seen);
                self.show_blindness();
                // What cannot be looked at cannot be stopped.
                self.ending.hold();
                self.await_observation().await;
                continue;
            }
            self.blindness = None;
            self.runtime = self.shared.runtime.current_and_update();
            self.note_turns(&order);
            if let Some(pod) = &order.pod {
                self.memory.note_definition(pod);
                self.follow_objects(pod);
            }
            self.memory.note_observation(&seen, self.now());
            self.tend_probes(&order, &seen);
            self.tend_resize(&order, &seen);
            self.ending.go_on(self.now());
            let decision = self.decide(&order, &seen);
            self.report(&order, &seen, &decision);
            self.ask_whether_ready(&seen);
            self.tell_of_back_off(&order, &decision);
            if decision.finished {
                self.shared.probes.remove(&self.uid);
                self.shared.progress.remove(&self.uid);
                self.shared.volumes.forget(&self.uid);
                return;
            }
            let rest = match self.blocked_until(&order, &decision) {
                None if decision.steps.is_empty() => Some(decision.wake_at),
                blocked => blocked,
            };
            match rest {
                Some(wake_at) => {
                    if self.runtime.problem.is_some() {
                        self.ending.hold();
                    }
                    self.tell_of_wait(&order, &decision);
                    self.show_idle(&order, &decision, wake_at);
                    self.idle(wake_at).await;
                }
                None => {
                    let ends = self.ended_itself || matches!(order.intent, Intent::End(_));
                    let mut actions = decision.steps.iter().flatten();
                    if ends && actions.any(|action| matches!(action, Action::StopContainer { .. }))
                    {
                        self.ending.begin();
                    }
                    self.act(&order, &seen, decision).await;
                }
            }
        }
    }

    pub(super) fn now(&self) -> Mono {
        self.shared.ports.clock.mono()
    }

    /// Failures of the past say nothing once the runtime has recovered or the goal has changed.
    fn note_turns(&mut self, order: &Order) {
        let recoveries = self.runtime.recoveries;
        let ending = order.termination().is_some();
        if recoveries != self.recoveries || ending != self.was_ending {
            self.memory.retry_at_once(self.now());
        }
        (self.recoveries, self.was_ending) = (recoveries, ending);
    }

    /// `Some` if the plan must wait: for the runtime, its network, the pod's volumes,
    /// or a retry time.
    fn blocked_until(&self, order: &Order, decision: &Decision) -> Option<Option<Mono>> {
        let unusable = self.runtime.problem.is_some()
            || self.missing_network(order.pod.as_ref(), decision).is_some();
        if (unusable && !decision.steps.is_empty())
            || self.awaits_volumes(&decision.steps)
            || self.awaits_objects(&decision.steps)
        {
            return Some(decision.wake_at);
        }
        let failure = self.memory.sandbox_failure.as_ref()?;
        (failure.retry_at > self.now()).then_some(Some(failure.retry_at))
    }

    fn decide(&mut self, order: &Order, seen: &ObservedPod) -> Decision {
        self.note_rejection(order, seen);
        self.note_kill(order, seen);
        match (order.intent, &order.pod) {
            (Intent::Run, Some(pod)) => {
                let evicted = order.kill.as_ref().is_some_and(|kill| kill.evict);
                self.decide_live(pod, seen, evicted)
            }
            (Intent::End(termination), pod) => self.decide_end(pod.as_ref(), seen, termination),
            // Orders to run always carry a pod; without one there is nothing to keep.
            (Intent::Run, None) => {
                self.decide_end(None, seen, Termination { since: self.now(), grace: Grace::FLOOR })
            }
        }
    }

    /// Starts the probes of a pod that runs, ends those of one that does not.
    fn tend_probes(&mut self, order: &Order, seen: &ObservedPod) {
        let probes = &self.shared.probes;
        match (&order.pod, order.intent) {
            (Some(pod), Intent::Run) if !self.ended_itself => probes.ensure(pod),
            _ if seen.may_run() => probes.stop_liveness_and_startup(&self.uid),
            _ => probes.remove(&self.uid),
        }
        self.probes = probes.results(&self.uid);
    }

    /// What has just started is asked at once whether it is ready, and not only
    /// when its probe's period ends.
    fn ask_whether_ready(&mut self, seen: &ObservedPod) {
        self.asked.retain(|id| seen.containers.iter().any(|container| container.id == *id));
        let Some(status) = self.shared.statuses.get(&self.uid) else { return };
        let all = [&status.init_container_statuses, &status.container_statuses];
        for container in &seen.containers {
            let shown = all.iter().flat_map(|list| list.iter().flatten());
            let mut shown = shown.filter(|shown| shown.started == Some(true) && !shown.ready);
            let has_started = shown.any(|shown| {
                let id = shown.container_id.as_deref().and_then(|id| id.split_once("://"));
                id.is_some_and(|(_, id)| id == container.id.as_str())
            });
            if has_started && self.asked.insert(container.id.clone()) {
                self.shared.probes.retrigger_readiness(&self.uid, &container.name);
            }
        }
    }

    fn decide_live(&mut self, pod: &DesiredPod, seen: &ObservedPod, evicted: bool) -> Decision {
        let now = self.now();
        let grace = Grace::from_secs(Grace::seconds_of(pod.spec()));
        if !self.ended_itself {
            if self.ended.is_none() {
                self.note_attach_limit(pod, seen);
            }
            let time_is_up_at =
                if self.ended.is_none() { self.watch_deadline(pod, seen) } else { None };
            let plan = pod_plan::plan_live(pod, seen, &self.context());
            let mut waiting = self.memory.waiting_of(&plan.steps, seen);
            waiting.extend(plan.waiting);
            self.keep_back_offs(&mut waiting, &plan.steps, seen);
            let live = Decision {
                steps: plan.steps,
                waiting,
                wake_at: [plan.wake_at, time_is_up_at].into_iter().flatten().min(),
                stage: Stage::Live,
                finished: false,
            };
            let told = pod.asked().status.as_ref().is_some_and(is_terminal);
            let over = told || is_terminal(&self.status(pod, seen, &live, None));
            if !over && plan.cut_off {
                self.fail_cut_off(pod);
            } else if !over {
                self.want_volumes(pod);
                return live;
            }
        }
        let gone = if seen.may_run() {
            self.shared.volumes.keep(&self.uid);
            false
        } else {
            self.tell_of_end();
            self.release_volumes(Some(pod))
        };
        self.ended_itself = true;
        let termination = self.ending.order(Termination { since: now, grace });
        let mut steps = pod_plan::plan_termination(Some(pod), seen, termination, now);
        if steps.is_empty() && !self.cgroup_removed {
            steps.push(vec![Action::RemovePodCgroup]);
        }
        if steps.is_empty() && evicted {
            steps = pod_plan::plan_end(Some(pod), seen, termination, &self.memory, true, now);
        } else if steps.is_empty() {
            steps = pod_plan::plan_remains(pod, seen, &self.context());
        }
        if steps.is_empty() && gone {
            self.tell_of_clean_up();
        }
        Decision {
            steps,
            waiting: BTreeMap::new(),
            wake_at: None,
            stage: if seen.may_run() { Stage::Terminating } else { Stage::Terminated },
            finished: false,
        }
    }

    fn decide_end(
        &mut self,
        pod: Option<&DesiredPod>,
        seen: &ObservedPod,
        termination: Termination,
    ) -> Decision {
        let now = self.now();
        // It may have been ending before: what is left of that is all it gets.
        let termination = match pod {
            Some(_) => self.ending.order(termination),
            None => self.ending.order_unknown(seen, termination),
        };
        self.show_ending(termination, seen);
        if !seen.may_run() {
            // What it held of the node is free, whatever is left to remove.
            self.tell_of_end();
        }
        let keep_files = self.files_removed || !self.volumes_gone(pod, seen);
        // An API server is told how containers ended before they are removed.
        let told = pod.is_some_and(|pod| !pod.is_static()) && seen.may_run();
        let steps = if told {
            pod_plan::plan_termination(pod, seen, termination, now)
        } else {
            pod_plan::plan_end(pod, seen, termination, &self.memory, keep_files, now)
        };
        let stage = if seen.may_run() { Stage::Terminating } else { Stage::Terminated };
        let finished = steps.is_empty() && self.files_removed;
        Decision { steps, waiting: BTreeMap::new(), wake_at: None, stage, finished }
    }

    fn context(&self) -> PlanContext<'_> {
        PlanContext {
            now: self.now(),
            wall: self.shared.ports.clock.wall(),
            memory: &self.memory,
            backoff: self.backoff(),
            max_dead: self.shared.settings.max_dead_per_container,
            probes: &self.probes,
            actuated: self.actuated.as_ref(),
        }
    }

    pub(super) fn backoff(&self) -> BackoffPolicy {
        BackoffPolicy::up_to(self.shared.settings.max_restart_period)
    }

    /// A pod that cannot be looked at has a status that says why.
    fn report_blindness(&mut self, order: &Order, seen: &ObservedPod) {
        let Some(problem) = self.seen.problem() else { return };
        if self.blindness.as_ref() != Some(&problem) {
            self.tell_of_blindness(order, &problem);
        }
        let stage = match order.termination() {
            None => Stage::Live,
            Some(_) => Stage::Terminating,
        };
        self.blindness = Some(problem);
        // What was known before the agent started is more than nothing.
        if self.seen.began().is_none() && self.shared.statuses.get(&self.uid).is_some() {
            return;
        }
        let blind = Decision {
            steps: Steps::new(),
            waiting: BTreeMap::new(),
            wake_at: None,
            stage,
            finished: false,
        };
        self.report(order, seen, &blind);
    }

    pub(super) fn report(&self, order: &Order, seen: &ObservedPod, decision: &Decision) {
        if let Some(pod) = &order.pod {
            let status = self.status(pod, seen, decision, order.resize.pending.as_ref());
            let (before, now) =
                (self.shared.statuses.get(&self.uid), self.shared.ports.clock.wall());
            self.shared.metrics.pods.note_status(pod, before.as_deref(), &status, now);
            self.shared.statuses.set(pod, status);
        }
    }

    fn status(
        &self,
        pod: &DesiredPod,
        seen: &ObservedPod,
        decision: &Decision,
        pending: Option<&Refusal>,
    ) -> PodStatus {
        let runtime = &self.runtime;
        let failure = self.memory.sandbox_failure.as_ref().map(|failure| failure.message.as_str());
        let pod_problem = runtime.problem.as_deref().or(self.blindness.as_deref()).or(failure);
        let volume_problem = self.volume_problem(decision);
        let network_problem = self.missing_network(Some(pod), decision);
        let pod_problem = pod_problem.or(network_problem.map(String::as_str));
        let pod_problem = pod_problem.or(volume_problem.as_deref());
        generate(&Facts {
            pod,
            seen,
            waiting: &decision.waiting,
            pod_problem,
            ended: self.ended.as_ref(),
            probes: &self.shared.probes.results(&self.uid),
            pending_resize: pending,
            resizing: self.resizing(),
            actuated: self.actuated.as_ref(),
            stop_signals: self.shared.settings.stop_signals,
            recursive_read_only: self.can_read_only(pod),
            before: self.shared.statuses.get(&self.uid).as_deref(),
            stage: decision.stage,
            runtime_name: &runtime.name,
            node_ips: &self.shared.settings.node_ips,
            agent_started: self.shared.probes.agent_started(),
            wall: self.shared.ports.clock.wall(),
        })
    }
}
