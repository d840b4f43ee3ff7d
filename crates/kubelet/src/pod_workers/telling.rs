//! What a worker lets others know of its progress, for `klet why`.

use std::collections::BTreeMap;

use kubelet_model::{Action, ContainerName, Mono, ObservedPod};

use super::perform::kind_of;
use super::worker::{Decision, Order, Worker};
use crate::pod_plan::Termination;
use crate::progress::{Doing, NextTry, Obstacle, PodEnd, StepError, WaitingFor};
use crate::runtime_manager::ActionError;

impl Worker {
    /// Nothing is under way, because of this.
    pub(super) fn show_waiting(&self, what: Obstacle, next: Option<NextTry>) {
        let now = self.now();
        self.shared.progress.update(&self.uid, |progress| {
            progress.doing.clear();
            progress.failing = self.failing();
            let since = progress.waiting.as_ref().filter(|old| old.what == what);
            let since = since.map_or(now, |old| old.since);
            progress.waiting = Some(WaitingFor { what, since });
            progress.next = next;
        });
    }

    /// The pod cannot be looked at, perhaps because nobody is there to tell how it is.
    pub(super) fn show_blindness(&self) {
        let runtime = self.runtime.problem.clone().map(Obstacle::Runtime);
        self.show_waiting(runtime.unwrap_or(Obstacle::Observation), None);
    }

    /// The worker rests: held back by the runtime, by a failure, or by nothing.
    pub(super) fn show_idle(&self, order: &Order, decision: &Decision, wake_at: Option<Mono>) {
        let next = |at: Mono| {
            let mut due = decision.steps.iter().flatten();
            let what = due.next().map(kind_of).or_else(|| {
                let held = decision.waiting.keys().next()?;
                Some(format!("start {held}"))
            });
            NextTry { what: what.unwrap_or_else(|| "look again".to_owned()), at }
        };
        if let Some((obstacle, retry_at)) = self.volume_obstacle(decision) {
            let next = |at| NextTry { what: "the volumes".to_owned(), at };
            return self.show_waiting(obstacle, retry_at.map(next));
        }
        let obstacle = if decision.steps.is_empty() {
            if decision.waiting.is_empty() { Obstacle::Nothing } else { Obstacle::Retry }
        } else {
            self.obstacle(order, decision)
        };
        self.show_waiting(obstacle, wake_at.map(next));
    }

    fn obstacle(&self, order: &Order, decision: &Decision) -> Obstacle {
        match (&self.runtime.problem, self.missing_network(order.pod.as_ref(), decision)) {
            (Some(problem), _) => Obstacle::Runtime(problem.clone()),
            (None, Some(problem)) => Obstacle::Network(problem.clone()),
            (None, None) => Obstacle::Retry,
        }
    }

    /// Since when each container fails to start.
    fn failing(&self) -> BTreeMap<ContainerName, Mono> {
        let failed = self.memory.failed_starts.iter();
        failed.map(|(name, failure)| (name.clone(), failure.since)).collect()
    }

    /// A step is under way.
    pub(super) fn show_doing(&self, step: &[Action]) {
        let since = self.now();
        self.shared.progress.update(&self.uid, |progress| {
            let doing = |action| Doing::new(kind_of(action), since);
            progress.doing = step.iter().map(doing).collect();
            progress.failing = self.failing();
            (progress.waiting, progress.next) = (None, None);
        });
    }

    /// The pod is being removed.
    pub(super) fn show_ending(&self, end: Termination, seen: &ObservedPod) {
        let end = PodEnd { since: end.since, kill_at: end.ends_at(), runs: seen.may_run() };
        self.shared.progress.update(&self.uid, |progress| progress.ending = Some(end));
    }

    /// A step succeeded: an error of its like is history.
    pub(super) fn show_done(&self, step: &[Action]) {
        self.shared.progress.update(&self.uid, |progress| {
            progress.doing.clear();
            let stale = |error: &StepError| step.iter().any(|a| kind_of(a) == error.step);
            if progress.last_error.as_ref().is_some_and(stale) {
                progress.last_error = None;
            }
        });
    }

    /// A step failed.
    pub(super) fn show_error(&self, step: &[Action], failure: &ActionError) {
        let at = self.shared.ports.clock.wall();
        let step = match failure {
            ActionError::NotStarted { name, .. } => format!("start {name}"),
            _ => step.first().map(kind_of).unwrap_or_default(),
        };
        self.shared.progress.update(&self.uid, |progress| {
            progress.doing.clear();
            let before = progress.last_error.as_ref().filter(|error| error.step == step);
            let count = before.map_or(0, |error| error.count).saturating_add(1);
            progress.last_error = Some(StepError { step, message: failure.to_string(), at, count });
        });
    }
}
