//! A worker's part in a resize: notices that one is under way, and tells how it went.

use std::time::Duration;

use kubelet_model::{EventType, ObservedPod};

use super::worker::{Intent, Order, Worker};
use crate::allocation::resize_message;
use crate::pod_plan::is_resizing;
use crate::status_manager::Resizing;

impl Worker {
    /// Looks whether the pod has what it was allocated; tells when it has.
    pub(super) fn tend_resize(&mut self, order: &Order, seen: &ObservedPod) {
        self.actuated = self.shared.allocations.actuated(&self.uid);
        let (Some(pod), Intent::Run) = (&order.pod, order.intent) else {
            self.resizing = false;
            self.shared.allocations.note_in_progress(&self.uid, false);
            return;
        };
        if self.resizes != order.resize.allocated {
            self.resizes = order.resize.allocated;
            self.resizing = true;
            self.memory.note_resized();
        }
        if is_resizing(pod, seen, self.actuated.as_ref()) {
            self.resizing = true;
        } else if std::mem::take(&mut self.resizing) {
            self.memory.note_resized();
            let text = resize_message("Pod resize completed", pod.pod(), "");
            self.record(pod, EventType::Normal, "ResizeCompleted", text);
        }
        self.shared.allocations.note_in_progress(&self.uid, self.resizing);
    }

    /// What the pod's condition says of a resize under way.
    pub(super) fn resizing(&self) -> Option<Resizing<'_>> {
        let failure = self.memory.resize_failure.as_ref();
        self.resizing.then(|| Resizing { error: failure.map(|failure| failure.message.as_str()) })
    }

    /// A resize was put in force: what the runtime told before is out of date.
    pub(super) fn note_resized(&mut self) {
        self.memory.note_resized();
        self.seen.note_resized(self.now());
    }

    /// A resize failed, perhaps in part. It is tried again; nothing waits for it.
    pub(super) fn note_failed_resize(&mut self, order: &Order, message: String, pause: Duration) {
        let before = self.memory.resize_failure.as_ref();
        let new = before.is_none_or(|before| before.message != message);
        if let Some(pod) = order.pod.as_ref().filter(|_| new) {
            let text = resize_message("Pod resize error", pod.pod(), &message);
            self.record(pod, EventType::Warning, "ResizeError", text);
        }
        let now = self.now();
        self.memory.note_failed_resize(message, pause, now);
        self.resizing = true;
        self.seen.note_resized(now);
    }
}
