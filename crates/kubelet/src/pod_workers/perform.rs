//! The worker's hands: waiting, acting, learning from failure.

use std::sync::Arc;
use std::time::Duration;

use kubelet_model::{Action, Mono, ObservedPod};
use tokio::time::sleep;

use super::volumes::objects_changed;
use super::worker::{Decision, Intent, Order, Worker};
use crate::lane::Lane;
use crate::pod_plan::RETRY_AFTER_ERROR;
use crate::progress::{Calls, Obstacle};
use crate::runtime_manager::{ActionError, Executor, Means, PodIdentity};

/// Longest turn at the runtime: a sandbox takes a second or two, even on a busy node.
/// A pull holds none: it keeps the registry busy, not the runtime.
const TURN_MAX: Duration = Duration::from_secs(10);

impl Worker {
    /// Asks for a fresh look and waits for it, for a new order, or for news of why
    /// there is none.
    pub(super) async fn await_observation(&mut self) {
        if self.requested != Some(self.fence) {
            self.seen.request().await;
            self.requested = Some(self.fence);
        }
        tokio::select! { biased;
            () = self.seen.changed() => {}
            changed = self.orders.changed() => Self::unless_shut_down(changed.is_err()).await,
            () = self.shared.runtime.changed() => {}
        }
    }

    /// Waits until something may have changed, or `wake_at`, or the periodic look.
    pub(super) async fn idle(&mut self, wake_at: Option<Mono>) {
        let resync = self.shared.ports.jitter.spread(self.shared.settings.sync_frequency);
        let wait = wake_at.map_or(resync, |at| at.since(self.now()).min(resync));
        tokio::select! { biased;
            changed = self.orders.changed() => Self::unless_shut_down(changed.is_err()).await,
            () = self.seen.changed() => {}
            () = self.probe_watch.changed() => {}
            () = self.volume_watch.changed() => {}
            () = objects_changed(&mut self.objects) => {}
            () = self.shared.runtime.changed() => {}
            () = sleep(wait) => {}
        }
    }

    /// Performs the steps until one fails or a more urgent order comes.
    pub(super) async fn act(&mut self, order: &Order, seen: &ObservedPod, decision: Decision) {
        let Decision { steps, waiting, stage, .. } = decision;
        let hold = self.seen.hold();
        let identity = match &order.pod {
            Some(pod) => PodIdentity::of(pod),
            None => self.identity_from_runtime(),
        };
        let shared = &self.shared;
        let means = Means {
            ports: shared.ports.clone(),
            settings: Arc::clone(&shared.settings),
            recorder: shared.recorder.clone(),
            images: shared.images.clone(),
            allocations: shared.allocations.clone(),
            hooks: shared.metrics.hooks.clone(),
        };
        let clock = Arc::clone(&shared.ports.clock);
        let calls = Calls::new(shared.progress.clone(), clock, self.uid.clone());
        let mut executor = Executor::new(means, calls, identity, order.pod.clone(), seen);
        if let Some(pod) = &order.pod {
            executor = executor
                .with_volumes(self.mountables(), self.can_read_only(pod))
                .with_objects(self.shared.objects.clone(), self.shared.lists.clone());
        }
        let mut orders = self.orders.clone();
        let touches_runtime = steps.iter().flatten().any(|action| !is_local(action));
        let lane = Lane::new(TURN_MAX);
        let mut left = steps.len();
        for step in steps {
            for action in &step {
                self.shared.metrics.pods.begin(action, order.pod.as_ref());
                if let Action::StartContainer { name, .. } = action {
                    self.memory.note_start(seen, name, self.backoff(), self.now());
                }
            }
            let failures = tokio::select! { biased;
                () = more_urgent(&mut orders, order) => break,
                failures = self.perform_step(&mut executor, &step, &lane) => failures,
                never = self.follow_step(order, seen, &step, (&waiting, stage)) => match never {},
            };
            let go_on = self.learn(order, &step, failures);
            if !go_on {
                break;
            }
            left -= 1;
        }
        if left == 0 {
            self.memory.note_plan_done();
        }
        if let Some(sandbox) = executor.sandbox_seen() {
            self.seen.note_sandbox(sandbox);
        }
        if touches_runtime {
            self.fence = self.now();
            hold.settle();
        }
    }

    /// Performs the actions of a step, in a turn if they keep the runtime busy.
    async fn perform_step(
        &self,
        executor: &mut Executor,
        step: &[Action],
        lane: &Lane,
    ) -> Vec<ActionError> {
        self.show_doing(step);
        if let [Action::StartContainer { name, .. }] = step {
            // A registry may be slow, and nobody else has to wait for it.
            let give_back = || lane.give_back();
            let images = lane.during(executor.ensure_images(name, &give_back)).await;
            if let Err(error) = images {
                return vec![error];
            }
        }
        if lane.is_free() && step.iter().any(keeps_runtime_busy) {
            self.show_waiting(Obstacle::Turn, None);
            lane.take(&self.shared.lanes).await;
            self.show_doing(step);
        }
        lane.during(perform_all(executor, step)).await
    }

    /// The identity of a pod that only the runtime knows. It may be gone before
    /// anybody looked closely; its name is known from the listing.
    fn identity_from_runtime(&self) -> PodIdentity {
        let (name, namespace) = self.full_name.parts().unwrap_or_default();
        PodIdentity {
            uid: self.uid.clone(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// Notes what came of a step; false if the rest of the plan makes no sense now.
    pub(super) fn learn(
        &mut self,
        order: &Order,
        step: &[Action],
        failures: Vec<ActionError>,
    ) -> bool {
        let now = self.now();
        if failures.is_empty() {
            for action in step {
                match action {
                    Action::StartContainer { name, .. } => {
                        self.memory.note_started(name);
                        self.resting.remove(name);
                    }
                    Action::StopSandbox { id } => {
                        self.memory.stopped_sandboxes.insert(id.clone());
                    }
                    Action::LinkLog { id, .. } => {
                        self.memory.linked_logs.insert(id.clone());
                    }
                    Action::Resize { .. } => self.note_resized(),
                    Action::RemovePodFiles => self.files_removed = true,
                    Action::RemovePodCgroup => self.cgroup_removed = true,
                    _ => {}
                }
            }
            self.memory.note_step_done();
            self.show_done(step);
            for action in step {
                self.told.remove(&kind_of(action));
            }
            return true;
        }
        let mut go_on = true;
        for failure in failures {
            self.tell(order, step, &failure);
            self.show_error(step, &failure);
            self.tell_of_failure(order, step, &failure);
            self.note_refusal(order, &failure);
            let jitter = &self.shared.ports.jitter;
            match failure {
                ActionError::NotStarted { name, waiting, retry_after } => {
                    let (pods, pod) = (&self.shared.metrics.pods, order.pod.as_ref());
                    pods.fail_start(pod, name.as_str(), waiting.reason);
                    let pause = retry_after.unwrap_or_else(|| jitter.spread(RETRY_AFTER_ERROR));
                    self.memory.note_failed_start(&name, waiting, pause, now);
                }
                ActionError::NotResized { message } => {
                    let pause = jitter.spread(RETRY_AFTER_ERROR);
                    self.note_failed_resize(order, message, pause);
                }
                other => {
                    if step.iter().any(|action| matches!(action, Action::CreateSandbox { .. })) {
                        self.shared.metrics.pods.fail_sandbox();
                    }
                    let pause = self.memory.step_pause();
                    self.memory.note_failed_step(other.to_string(), jitter.spread(pause), now);
                    go_on = false;
                }
            }
        }
        go_on
    }

    /// Says what failed, once per change of the cause; fresh ids are no change.
    fn tell(&mut self, order: &Order, step: &[Action], failure: &ActionError) {
        let text = failure.to_string();
        let kind = step.first().map(kind_of).unwrap_or_default();
        let known = self.told.insert(kind, mask_ids(&text));
        if known.is_some_and(|known| known == mask_ids(&text)) {
            return;
        }
        let pod = order.pod.as_ref().map(|pod| pod.full_name().to_string()).unwrap_or_default();
        tracing::warn!(pod, uid = %self.uid, error = text, "action failed; it will be tried again");
    }

    /// Waits for the end of the agent if its senders are gone.
    async fn unless_shut_down(gone: bool) {
        if gone {
            std::future::pending::<()>().await;
        }
    }
}

/// Changes nothing in the runtime.
fn is_local(action: &Action) -> bool {
    matches!(action, Action::RemovePodFiles | Action::RemovePodCgroup | Action::LinkLog { .. })
}

/// Waiting for a container's grace costs the runtime nothing.
fn keeps_runtime_busy(action: &Action) -> bool {
    !is_local(action) && !matches!(action, Action::StopContainer { .. })
}

/// Actions of a step run side by side; all are waited for.
async fn perform_all(executor: &mut Executor, step: &[Action]) -> Vec<ActionError> {
    if let [action] = step {
        return executor.perform(action).await.err().into_iter().collect();
    }
    let all = step.iter().map(|action| {
        let mut executor = executor.clone();
        async move { executor.perform(action).await }
    });
    futures_util::future::join_all(all).await.into_iter().filter_map(Result::err).collect()
}

/// Returns once the order asks for the end of a pod, or for a sooner one, than `now`.
async fn more_urgent(orders: &mut tokio::sync::watch::Receiver<Order>, now: &Order) {
    loop {
        let urgent = {
            let new = orders.borrow_and_update();
            match (now.intent, new.intent, now.termination(), new.termination()) {
                (Intent::Run, Intent::End(_), ..) | (.., None, Some(_)) => true,
                (.., Some(old), Some(new)) => new.ends_at() < old.ends_at(),
                _ => false,
            }
        };
        if urgent {
            return;
        }
        if orders.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What the removal of a pod's files is called.
pub(super) const REMOVE_FILES: &str = "remove files";

/// What an action does and to which container of the spec, whatever its instance.
pub(super) fn kind_of(action: &Action) -> String {
    match action {
        Action::CreateSandbox { .. } => "create sandbox".to_owned(),
        Action::StartContainer { name, .. } => format!("start {name}"),
        Action::StopContainer { name, .. } => format!("stop {name}"),
        Action::StopSandbox { .. } => "stop sandbox".to_owned(),
        Action::RemoveContainer { name, .. } => format!("remove {name}"),
        Action::RemoveSandbox { .. } => "remove sandbox".to_owned(),
        Action::LinkLog { name, .. } => format!("link {name}"),
        Action::Resize { .. } => "resize".to_owned(),
        Action::RemovePodFiles => REMOVE_FILES.to_owned(),
        Action::RemovePodCgroup => "remove cgroup".to_owned(),
    }
}

/// The text with long hexadecimal runs blanked: runtimes put a new id into every error.
fn mask_ids(text: &str) -> String {
    const ID_MIN: usize = 12;
    let mut out = String::with_capacity(text.len());
    let mut run = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        out.push_str(if run.len() >= ID_MIN { "…" } else { &run });
        run.clear();
        out.push(c);
    }
    out.pop();
    out
}

#[cfg(test)]
mod tests {
    use super::mask_ids;

    #[test]
    fn ids_are_masked_and_words_are_not() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(mask_ids(&format!("sandbox {id}: bad code 128")), "sandbox …: bad code 128");
        assert_eq!(mask_ids("feed a dead cafe"), "feed a dead cafe");
        assert_eq!(mask_ids(&format!("at the end {id}")), "at the end …");
        assert_eq!(mask_ids(""), "");
    }
}
