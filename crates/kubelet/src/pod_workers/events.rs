//! Events about the pod as a whole, and about containers that are held back.
//!
//! Events about what happens to a container are recorded where it happens.

use kubelet_model::{Action, DesiredPod, EventObject, EventType, WaitReason};

use super::worker::{Decision, Order, Worker};
use crate::runtime_manager::ActionError;

impl Worker {
    pub(super) fn record(
        &self,
        pod: &DesiredPod,
        kind: EventType,
        reason: &'static str,
        text: String,
    ) {
        self.shared.recorder.record(&EventObject::pod(pod), kind, reason, text);
    }

    /// The plan must wait, perhaps for the network.
    pub(super) fn tell_of_wait(&self, order: &Order, decision: &Decision) {
        let Some(pod) = &order.pod else { return };
        let needs_network = pod.spec().host_network != Some(true)
            && decision.steps.iter().flatten().any(|a| matches!(a, Action::CreateSandbox { .. }));
        if let Some(problem) = self.runtime.network_problem.as_ref().filter(|_| needs_network) {
            let text = format!("network is not ready: {problem}");
            self.record(pod, EventType::Warning, "NetworkNotReady", text);
        }
    }

    /// Containers that crash again and again rest; each rest is told once.
    pub(super) fn tell_of_back_off(&mut self, order: &Order, decision: &Decision) {
        let Some(pod) = &order.pod else { return };
        let crashing = |reason| reason == WaitReason::CrashLoopBackOff;
        self.resting.retain(|name| decision.waiting.get(name).is_some_and(|w| crashing(w.reason)));
        for (name, waiting) in &decision.waiting {
            if !crashing(waiting.reason) || !self.resting.insert(name.clone()) {
                continue;
            }
            let text = format!(
                "Back-off restarting failed container {name} in pod {}_{}({})",
                pod.name(),
                pod.namespace(),
                pod.uid()
            );
            if let Some(object) = EventObject::container(pod, name.as_str()) {
                self.shared.recorder.record(&object, EventType::Warning, "BackOff", text);
            }
        }
    }

    /// A step failed.
    pub(super) fn tell_of_failure(&self, order: &Order, step: &[Action], failure: &ActionError) {
        let Some(pod) = &order.pod else { return };
        let kills =
            |a: &Action| matches!(a, Action::StopContainer { .. } | Action::StopSandbox { .. });
        if step.iter().any(kills) {
            let text = format!("error killing pod: {failure}");
            self.record(pod, EventType::Warning, "FailedKillPod", text);
        }
    }
}
