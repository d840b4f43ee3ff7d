//! A worker's part in the end of a pod that ends by itself or for the node's sake: takes
//! the order up, and tells the dispatcher how far the end is.

use kubelet_model::ObservedPod;

use super::worker::{Order, Report, Worker};

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
}
