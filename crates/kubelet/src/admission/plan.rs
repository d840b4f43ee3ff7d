//! May a pod run here? Pure.
//!
//! Asks in upstream's order, and the first no counts. What comes after the question for
//! room is asked before others are made to go: they must not go for nothing.

use kubelet_model::DesiredPod;
use kubelet_model::manifest::unsupported_from_api;

use super::fit::{Failure, Held, Shortage};
use super::node_view::{LABEL_OS, OS};
use super::{NodeView, Rejection, Rules, features, fit, pressure};
use crate::runtime_manager::{refusal, sysctl};
use crate::settings::Settings;

/// Everything a judgement follows from, but for the pods that are there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// The pod, with what it was given if it was admitted before.
    pub(super) pod: &'a DesiredPod,
    /// The node; `None` if nothing is known of it.
    pub(super) node: Option<&'a NodeView>,
    /// The node is as the server has it this moment, or there is no server to ask.
    pub(super) fresh: bool,
    /// What the agent was told.
    pub(super) settings: &'a Settings,
    /// What the node is short of.
    pub(super) conditions: &'a [String],
    /// The machine is about to go.
    pub(super) shutting_down: bool,
    /// The runtime gives a pod the groups that it names, and no others; `None` until
    /// it has answered.
    pub(super) strict_groups: Option<bool>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It may run.
    Admit,
    /// It may not.
    Reject(Rejection),
    /// It might, if the Node has changed meanwhile.
    AskNode,
    /// The runtime has to answer first.
    AskRuntime,
    /// It may once others have made room: of so much.
    MakeRoom(Vec<Shortage>),
}

/// Judges.
pub(super) fn judge(facts: &Facts<'_>, held: &Held) -> Answer {
    if let Some(rejection) = before_the_node(facts) {
        return Answer::Reject(rejection);
    }
    let Some(node) = facts.node else {
        let message = "Kubelet cannot get node info.";
        return Answer::Reject(Rejection::new("InvalidNodeInfo", message));
    };
    match suits(facts) {
        None => {}
        Some(Err(())) => return Answer::AskRuntime,
        Some(Ok(rejection)) => return Answer::Reject(rejection),
    }
    let rules = &facts.settings.admission;
    let failures = fit::failures(facts.pod, node, held, rules.compares_taints);
    let only_affinity = failures.iter().all(|failure| *failure == Failure::Affinity);
    if !failures.is_empty() && only_affinity && !facts.fresh {
        return Answer::AskNode;
    }
    let room = match short_of(facts.pod, &failures) {
        Ok(room) => room,
        Err(rejection) => return Answer::Reject(rejection),
    };
    match after_the_node(facts, rules) {
        Some(rejection) => Answer::Reject(rejection),
        None if room.is_empty() => Answer::Admit,
        None => Answer::MakeRoom(room),
    }
}

/// Asked before anything else.
fn before_the_node(facts: &Facts<'_>) -> Option<Rejection> {
    let Facts { pod, settings, .. } = facts;
    if let Some(message) = unsupported(pod) {
        return Some(Rejection::new(refusal::UNSUPPORTED, message));
    }
    let rules = &settings.admission;
    let short = pressure::refuse(pod, facts.conditions, rules.compares_taints);
    short.or_else(|| {
        let allowed = &settings.allowed_unsafe_sysctls;
        let message = sysctl::forbidden(pod.spec(), allowed, settings.machine.kernel)?;
        Some(Rejection::new("SysctlForbidden", message))
    })
}

/// Fields of a pod that are told of.
const PROBLEMS_MAX: usize = 5;

/// What an API server's pod asks for and this agent cannot give: running it without
/// would be running something else. Manifests were checked when they were read.
fn unsupported(pod: &DesiredPod) -> Option<String> {
    if pod.is_static() {
        return None;
    }
    let problems = unsupported_from_api(pod.asked());
    let texts: Vec<String> = problems.iter().take(PROBLEMS_MAX).map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Why a node like this is nothing for the pod, however much room it has; an error if
/// the runtime has to say.
fn suits(facts: &Facts<'_>) -> Option<Result<Rejection, ()>> {
    let pod = facts.pod;
    let labels = pod.pod().metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(LABEL_OS)).is_some_and(|os| os != OS) {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Ok(Rejection::new("PodOSSelectorNodeLabelDoesNotMatch", message)));
    }
    if pod.spec().os.as_ref().is_some_and(|os| os.name != OS) {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(Ok(Rejection::new("PodOSNotSupported", message)));
    }
    if !refusal::wants_strict_groups(pod) {
        return None;
    }
    match facts.strict_groups {
        None => Some(Err(())),
        Some(true) => None,
        Some(false) => {
            let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
            Some(Ok(Rejection::new(refusal::STRICT_GROUPS, message)))
        }
    }
}

/// What is missing that others may make room for. Critical pods are refused for other
/// reasons only, and others for the first there is.
fn short_of(pod: &DesiredPod, failures: &[Failure]) -> Result<Vec<Shortage>, Rejection> {
    let critical = pod.is_critical();
    let mut room = Vec::new();
    for failure in failures {
        match failure {
            Failure::Short(shortage) if critical => room.push(shortage.clone()),
            failure => return Err(failure.rejection()),
        }
    }
    Ok(room)
}

/// Asked of a pod that fits.
fn after_the_node(facts: &Facts<'_>, rules: &Rules) -> Option<Rejection> {
    let status = facts.pod.asked().status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    // What runs already was asked before it did.
    if phase == "Pending"
        && let Some(message) = refusal::apparmor(facts.pod, &facts.settings.machine)
    {
        return Some(Rejection::new("AppArmor", message));
    }
    features::refuse(facts.pod.spec(), rules).or_else(|| {
        let message = "Pod was rejected as the node is shutting down.";
        facts.shutting_down.then(|| Rejection::new("NodeShutdown", message))
    })
}
