//! One container of the spec and what is to become of it.
//!
//! The vocabulary that all kinds of containers share: keep, start, hold back,
//! stop. Decides pacing and what must be cleared away first; which containers
//! are due is decided by `containers`, `init` and `sandbox`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kubelet_model::{
    Action, ContainerKind, ContainerName, ContainerState, Exit, Mono, ObservedContainer,
    StopReason, WaitReason, Waiting, restart,
};

use super::memory::last_exit;
use super::terminate::stop;
use super::{Facts, PodPlan, grace};

/// One container of the spec with the decision about it.
#[derive(Debug)]
pub(super) struct Wanted {
    name: ContainerName,
    /// One more than the newest instance's, if there is one.
    restart_count: Option<u32>,
    /// Older instances that may run although they must not.
    strays: Vec<Action>,
    decision: Decision,
}

/// What to do about a container.
#[derive(Debug)]
pub(super) enum Decision {
    /// Runs as defined.
    Keep,
    /// Ended and stays so.
    Done,
    /// Start it, after clearing away the instance before it.
    Start { clear: Option<Action> },
    /// Stop it; start it later if it comes `again`.
    Stop { stop: Action, again: bool },
    /// Start it, but later.
    Hold { until: Mono, waiting: Waiting },
}

/// One container of the spec with the instance that stands for it.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) facts: Facts<'a>,
    pub(super) container: &'a Container,
    pub(super) kind: ContainerKind,
    pub(super) name: ContainerName,
    pub(super) current: Option<&'a ObservedContainer>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(facts: Facts<'a>, container: &'a Container, kind: ContainerKind) -> Self {
        let name = ContainerName::new(&container.name);
        let current = facts.seen.current(&name);
        Self { facts, container, kind, name, current }
    }

    pub(super) fn wanted(self, decision: Decision) -> Wanted {
        Wanted::new(self.facts, self.name, decision)
    }

    /// Start it, unless it has to wait first.
    pub(super) fn start(&self) -> Decision {
        let clear = self.current.and_then(|instance| clear_away(self.facts, instance));
        self.hold_back().unwrap_or(Decision::Start { clear })
    }

    /// Stop a running instance and start the next, if policy and back-off allow.
    pub(super) fn replace(&self, instance: &ObservedContainer, why: StopReason) -> Decision {
        let grace = grace::of_stop(self.facts.pod, self.container, why);
        let stop = stop(instance, grace, why);
        // A new definition or size starts under any policy, with a clean slate.
        if matches!(why, StopReason::DefinitionChanged | StopReason::Resized) {
            return Decision::Start { clear: Some(stop) };
        }
        if !restart::after_kill(self.facts.pod.spec(), self.container, self.kind) {
            return Decision::Stop { stop, again: false };
        }
        match self.hold_back() {
            Some(_) => Decision::Stop { stop, again: true },
            None => Decision::Start { clear: Some(stop) },
        }
    }

    /// A failed start waits out its retry time, a crashed container its back-off.
    fn hold_back(&self) -> Option<Decision> {
        let ctx = self.facts.ctx;
        if let Some(held) = hold_failed_start(self.facts, &self.name) {
            return Some(held);
        }
        let (ago, failed_at) = match self.current.map(|c| (c, &c.state))? {
            (instance, ContainerState::Exited(exit)) => {
                let ago = self.exited_ago(instance, exit);
                (ago, ctx.now - ago)
            }
            // About to be stopped: paced by the exit before it.
            (_, ContainerState::Running { .. }) => {
                let (instance, exit) = last_exit(self.facts.seen, &self.name)?;
                (self.exited_ago(instance, exit), ctx.now)
            }
            _ => return None,
        };
        let delay = ctx.memory.crash_delay(&self.name, ctx.backoff, failed_at);
        if ago >= delay {
            return None;
        }
        let pod = self.facts.pod;
        let message = format!(
            "back-off {} restarting failed container={} pod={}_{}({})",
            go_duration(delay),
            self.name,
            pod.name(),
            pod.namespace(),
            pod.uid(),
        );
        let waiting = Waiting { reason: WaitReason::CrashLoopBackOff, message };
        Some(Decision::Hold { until: ctx.now + (delay - ago), waiting })
    }

    /// How long ago a container ended. The wall clock knows exits from before the
    /// agent started; the agent's own sighting is immune to jumps of that clock.
    fn exited_ago(&self, instance: &ObservedContainer, exit: &Exit) -> Duration {
        let ctx = self.facts.ctx;
        let by_wall = ctx.wall.duration_since(exit.finished_at);
        let by_wall = Duration::try_from(by_wall).unwrap_or(Duration::ZERO);
        by_wall.max(ctx.memory.since_exit(&instance.name, &instance.id, ctx.now))
    }
}

/// A container of which the sandbox holds nothing: start it, unless its last
/// start failed a moment ago.
pub(super) fn start_fresh(facts: Facts<'_>, name: &ContainerName) -> Decision {
    hold_failed_start(facts, name).unwrap_or(Decision::Start { clear: None })
}

fn hold_failed_start(facts: Facts<'_>, name: &ContainerName) -> Option<Decision> {
    let failure = facts.ctx.memory.failed_starts.get(name)?;
    let waits = failure.retry_at > facts.ctx.now;
    waits.then(|| Decision::Hold { until: failure.retry_at, waiting: failure.waiting.clone() })
}

/// What must be gone before the next instance starts: two must never run, not
/// even when an earlier call to start this one takes effect late.
fn clear_away(facts: Facts<'_>, instance: &ObservedContainer) -> Option<Action> {
    match instance.state {
        ContainerState::Unknown => {
            Some(stop(instance, grace::of_pod(facts.pod), StopReason::StateUnknown))
        }
        ContainerState::Created => Some(instance.removal()),
        ContainerState::Running { .. } | ContainerState::Exited(_) => None,
    }
}

/// Whole seconds as Go prints them: `10s`, `1m20s`, `5m0s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

impl Wanted {
    pub(super) fn new(facts: Facts<'_>, name: ContainerName, decision: Decision) -> Self {
        let seen = facts.seen;
        let current = seen.current(&name).map(|c| &c.id);
        let others = seen.instances(&name).filter(|c| Some(&c.id) != current);
        let strays = others.filter(|c| c.state.may_run());
        let grace = grace::of_pod(facts.pod);
        Self {
            strays: strays.map(|c| stop(c, grace, StopReason::Superseded)).collect(),
            restart_count: seen.newest(&name).map(|c| c.restart_count.saturating_add(1)),
            decision,
            name,
        }
    }

    fn start(&self) -> Action {
        Action::StartContainer { name: self.name.clone(), restart_count: self.restart_count }
    }

    /// Runs, or will run again, now or after its back-off. One that is being
    /// stopped for good goes on until it has ended.
    pub(super) fn goes_on(&self) -> bool {
        !matches!(self.decision, Decision::Done)
    }

    pub(super) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// Runs as defined, and goes on doing so.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.decision, Decision::Keep)
    }

    /// Is about to be started.
    pub(super) fn starts(&self) -> bool {
        matches!(self.decision, Decision::Start { .. })
    }

    /// Plans it in a sandbox that stays.
    pub(super) fn plan(&self, plan: &mut PodPlan) {
        self.plan_stop(plan);
        self.plan_start(plan);
    }

    /// Plans what of it must go.
    pub(super) fn plan_stop(&self, plan: &mut PodPlan) {
        plan.step(self.strays.clone());
        match &self.decision {
            Decision::Start { clear } => plan.step(clear.iter().cloned().collect()),
            Decision::Stop { stop, .. } => plan.step(vec![stop.clone()]),
            Decision::Keep | Decision::Done | Decision::Hold { .. } => {}
        }
    }

    /// Plans its start, if it is due.
    pub(super) fn plan_start(&self, plan: &mut PodPlan) {
        if self.starts() {
            plan.step(vec![self.start()]);
        }
    }

    /// Would it run in a new sandbox, now or after its back-off?
    pub(super) fn belongs_in_new_sandbox(&self) -> bool {
        !matches!(self.decision, Decision::Done | Decision::Stop { again: false, .. })
    }

    /// Plans it in a new sandbox. What ran in the old one has been stopped with it.
    pub(super) fn start_in_new_sandbox(&self, plan: &mut PodPlan) {
        match &self.decision {
            Decision::Keep | Decision::Stop { again: true, .. } => plan.step(vec![self.start()]),
            Decision::Start { clear } => {
                let created = clear.iter().filter(|a| matches!(a, Action::RemoveContainer { .. }));
                plan.step(created.cloned().collect());
                plan.step(vec![self.start()]);
            }
            Decision::Done | Decision::Hold { .. } | Decision::Stop { again: false, .. } => {}
        }
    }

    /// Tells users and the timer if it is held back.
    pub(super) fn explain(&self, plan: &mut PodPlan) {
        if let Decision::Hold { until, waiting } = &self.decision {
            plan.wake(*until);
            plan.waiting.insert(self.name.clone(), waiting.clone());
        }
    }
}
