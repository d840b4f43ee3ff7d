//! A worker's part in the end of a pod that the agent ends, or that ends by itself: why it
//! ends, and how the dispatcher hears how far the end is.

use kubelet_model::{DesiredPod, EventType, Mono, ObservedPod};

use super::worker::{Order, Report, Worker};
use crate::node_shutdown;
use crate::pod_plan::{self, Deadline};
use crate::runtime_manager::{ActionError, refusal};
use crate::status_manager::{Ended, start_time};

impl Worker {
    /// The node ends the pod: it fails, and gets no more time than that leaves it.
    pub(super) fn note_kill(&mut self, order: &Order, seen: &ObservedPod) {
        let Some(kill) = &order.kill else { return };
        self.ended.get_or_insert_with(|| kill.ended.clone());
        self.ending.order(kill.termination);
        if !seen.may_run() {
            self.tell_of_end();
        }
    }

    /// Tells the dispatcher that nothing of the pod runs. Should it be behind, it is told
    /// at the next look.
    pub(super) fn tell_of_end(&mut self) {
        if !self.end_told {
            self.end_told = self.reports.try_send(Report::Ended(self.uid.clone())).is_ok();
        }
    }

    /// The same of all else by which it used the node.
    pub(super) fn tell_of_clean_up(&mut self) {
        if !self.clean_up_told {
            let report = Report::CleanedUp(self.uid.clone());
            self.clean_up_told = self.reports.try_send(report).is_ok();
        }
    }

    /// A pod that this node can never run as it is written fails before anything
    /// of it is made.
    pub(super) fn refuse_what_cannot_run(&mut self, pod: &DesiredPod, seen: &ObservedPod) {
        if self.ended.is_some() || !seen.is_gone() {
            return;
        }
        let of_shutdown = || {
            let (reason, message) = node_shutdown::REFUSED;
            let is = self.shared.shutting_down.is_shutting_down();
            is.then(|| refusal::Refusal { reason, message: message.to_owned() })
        };
        let refused = refusal::of_node(pod, &self.shared.settings).or_else(of_shutdown);
        if let Some(refusal::Refusal { reason, message }) = refused {
            tracing::warn!(pod = %pod.full_name(), reason, message, "pod refused: it cannot run here");
            self.record(pod, EventType::Warning, reason, message.clone());
            self.ended = Some(Ended::rejected(reason, &message));
        }
    }

    /// What the runtime can never give the pod, it need not be asked for again.
    pub(super) fn note_refusal(&mut self, order: &Order, failure: &ActionError) {
        let ActionError::Refused { reason: reason @ refusal::STRICT_GROUPS, message } = failure
        else {
            return;
        };
        if order.pod.is_some() {
            self.ended = Some(Ended::rejected(reason, message));
        }
    }

    /// When the pod's time is up; ends it if that is now.
    pub(super) fn watch_deadline(&mut self, pod: &DesiredPod, seen: &ObservedPod) -> Option<Mono> {
        let before = self.shared.statuses.get(&self.uid);
        let wall = self.shared.ports.clock.wall();
        let start = start_time(before.as_deref(), seen, wall);
        match pod_plan::deadline(pod, Some(start), wall) {
            Deadline::None => None,
            Deadline::In(left) => Some(self.now() + left),
            Deadline::Passed => {
                let ended = Ended::deadline_exceeded();
                self.record(pod, EventType::Normal, "DeadlineExceeded", ended.message.clone());
                self.ended = Some(ended);
                None
            }
        }
    }

    /// Ends a pod that can neither go on nor start over.
    pub(super) fn fail_cut_off(&mut self, pod: &DesiredPod) {
        let ended = Ended::sandbox_lost();
        tracing::warn!(pod = %pod.full_name(), "pod failed: its sandbox was lost and it never restarts");
        self.record(pod, EventType::Warning, "SandboxLost", ended.message.clone());
        self.ended = Some(ended);
    }
}
