//! Events about the pod as a whole, and about containers that are held back.
//!
//! Events about what happens to a container are recorded where it happens.

use std::collections::BTreeMap;

use kubelet_model::{
    Action, ContainerName, DesiredPod, EventObject, EventType, ObservedPod, Steps, WaitReason,
    Waiting,
};

use super::worker::{Decision, Order, Worker};
use crate::allocation::{News, PendingReason, Refusal, resize_message};
use crate::runtime_manager::ActionError;

/// What users are told of a resize that was allocated, or not.
pub(super) fn resize_news(news: &News) -> Option<(EventType, &'static str, String)> {
    Some(match news {
        News::Rejected { .. } | News::Preempt { .. } => return None,
        News::Started { pod, .. } => {
            let text = resize_message("Pod resize started", pod.asked(), "");
            (EventType::Normal, "ResizeStarted", text)
        }
        News::Pending { pod, refusal: Refusal { reason, message } } => {
            let what = format!("Pod resize {}", reason.as_str());
            let text = resize_message(&what, pod.asked(), message);
            let reason = match reason {
                PendingReason::Deferred => "ResizeDeferred",
                PendingReason::Infeasible => "ResizeInfeasible",
            };
            (EventType::Warning, reason, text)
        }
    })
}

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

    /// What is wrong with the network that the plan needs.
    pub(super) fn missing_network(
        &self,
        pod: Option<&DesiredPod>,
        decision: &Decision,
    ) -> Option<&String> {
        let spec = pod.map(DesiredPod::spec);
        let host_network = spec.is_some_and(|spec| spec.host_network == Some(true));
        let makes_sandbox = |action: &Action| matches!(action, Action::CreateSandbox { .. });
        let needed = !host_network && decision.steps.iter().flatten().any(makes_sandbox);
        self.runtime.network_problem.as_ref().filter(|_| needed)
    }

    /// The runtime does not tell how the pod is.
    pub(super) fn tell_of_blindness(&self, order: &Order, problem: &str) {
        let Some(pod) = &order.pod else { return };
        let text = format!("error determining status: {problem}");
        self.record(pod, EventType::Warning, "FailedSync", text);
    }

    /// The plan must wait, perhaps for the network.
    pub(super) fn tell_of_wait(&self, order: &Order, decision: &Decision) {
        let Some(pod) = &order.pod else { return };
        if let Some(problem) = self.missing_network(order.pod.as_ref(), decision) {
            let text = format!("network is not ready: {problem}");
            self.record(pod, EventType::Warning, "NetworkNotReady", text);
        }
    }

    /// A container whose rest is over shows it until it is started, as upstream has
    /// it: its image may have to be pulled first.
    pub(super) fn keep_back_offs(
        &self,
        waiting: &mut BTreeMap<ContainerName, Waiting>,
        steps: &Steps,
        seen: &ObservedPod,
    ) {
        let runs = |name| seen.current(name).is_some_and(|instance| instance.state.may_run());
        for action in steps.iter().flatten() {
            let Action::StartContainer { name, .. } = action else { continue };
            if let Some(rest) = self.resting.get(name).filter(|_| !runs(name)) {
                waiting.entry(name.clone()).or_insert_with(|| rest.clone());
            }
        }
    }

    /// Containers that crash again and again rest; each rest is told once.
    pub(super) fn tell_of_back_off(&mut self, order: &Order, decision: &Decision) {
        let Some(pod) = &order.pod else { return };
        let crashing = |waiting: &Waiting| waiting.reason == WaitReason::CrashLoopBackOff;
        self.resting.retain(|name, _| decision.waiting.get(name).is_some_and(crashing));
        for (name, waiting) in decision.waiting.iter().filter(|(_, waiting)| crashing(waiting)) {
            if self.resting.insert(name.clone(), waiting.clone()).is_some() {
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
