//! The conditions that the agent owns. Pure.
//!
//! Conditions of others are passed on as the pod's object has them. Upstream:
//! pkg/kubelet/status/generate.go.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{ContainerKind, restart};

use super::containers::{ContainerStatuses, ended, is_running};
use super::generate::{Facts, Outcome, Stage, generation, truncate};
use super::restart_all;

/// Reason and message of a condition.
type Because = (&'static str, String);

const OWNED: [&str; 8] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizePending",
    "PodResizeInProgress",
    restart_all::CONDITION,
];

/// Told by whoever ends a pod before its time; the agent is one of several.
pub(super) const DISRUPTED: &str = "DisruptionTarget";

/// The agent itself says whether this condition holds.
pub fn is_owned_condition(kind: &str) -> bool {
    OWNED.contains(&kind)
}

pub(super) fn conditions(
    facts: &Facts<'_>,
    outcome: &Outcome,
    statuses: &ContainerStatuses,
) -> Vec<PodCondition> {
    let phase = outcome.phase.as_str();
    let others = facts.pod.pod().status.as_ref().and_then(|status| status.conditions.as_ref());
    let others = others.into_iter().flatten().filter(|c| !is_owned_condition(&c.type_));
    let mut all: Vec<PodCondition> = others.cloned().collect();
    let containers_ready = containers_ready(facts, phase, statuses);
    let ready = containers_ready.clone().and_then(|()| gates(facts, &all));
    all.push(condition(facts, "PodReadyToStartContainers", ready_to_start(facts, phase)));
    all.push(initialized(facts, phase, statuses));
    all.push(condition(facts, "Ready", ready));
    all.push(condition(facts, "ContainersReady", containers_ready));
    all.push(condition(facts, "PodScheduled", Ok(())));
    all.extend(resizes(facts, phase));
    if restart::could_start_over(facts.pod.spec()) {
        all.push(all_restarting(facts, phase));
    }
    if let Some(disrupted) = disrupted(facts, outcome) {
        all.retain(|c| c.type_ != DISRUPTED);
        all.push(disrupted);
    }
    all
}

/// The agent ended the pod for the node's sake, and that is why the pod failed.
fn disrupted(facts: &Facts<'_>, outcome: &Outcome) -> Option<PodCondition> {
    let ended = facts.ended?;
    let message = ended.disruption.as_ref()?;
    let own = outcome.phase == "Failed" && outcome.reason.as_ref() == Some(&ended.reason);
    own.then(|| PodCondition {
        reason: Some("TerminationByKubelet".to_owned()),
        message: Some(message.clone()),
        ..condition(facts, DISRUPTED, Ok(()))
    })
}

/// A resize that waits and one under way; a pod that has ended has neither.
fn resizes(facts: &Facts<'_>, phase: &str) -> Vec<PodCondition> {
    if facts.stage != Stage::Live || matches!(phase, "Succeeded" | "Failed") {
        return Vec::new();
    }
    let pending = facts.pending_resize.map(|refusal| {
        resize(facts, "PodResizePending", refusal.reason.as_str(), &refusal.message)
    });
    let progress = facts.resizing.map(|resizing| match resizing.error {
        Some(error) => resize(facts, "PodResizeInProgress", "Error", error),
        None => resize(facts, "PodResizeInProgress", "", ""),
    });
    pending.into_iter().chain(progress).collect()
}

/// Its time tells since when the reason holds.
fn resize(facts: &Facts<'_>, kind: &str, reason: &str, message: &str) -> PodCondition {
    let reason = (!reason.is_empty()).then(|| reason.to_owned());
    let before = before(facts, kind).filter(|c| c.reason == reason);
    let since = before.and_then(|before| before.last_transition_time.clone());
    let since = since.unwrap_or(Time(truncate(facts.wall)));
    PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason,
        message: (!message.is_empty()).then(|| message.to_owned()),
        observed_generation: generation(facts),
        last_probe_time: Some(since.clone()),
        last_transition_time: Some(since),
    }
}

/// A ready sandbox with a network; otherwise what it waits for.
fn ready_to_start(facts: &Facts<'_>, phase: &str) -> Result<(), Because> {
    let host_network = facts.pod.spec().host_network.unwrap_or(false);
    let missing = match facts.seen.sandboxes.first() {
        None => "it is yet to be created",
        Some(s) if !s.ready => "the last one has stopped, and a new one is yet to be created",
        Some(_) if facts.seen.sandboxes.iter().filter(|s| s.ready).count() > 1 => {
            "more than one is ready, and a single new one will replace them"
        }
        Some(s) if s.host_network != host_network => {
            "it has the wrong network namespace and will be replaced"
        }
        Some(s) if !host_network && s.ips.is_empty() => {
            "it has no network address and will be replaced"
        }
        Some(_) => return Ok(()),
    };
    // A pod that ends waits for nothing.
    let waits = facts.stage == Stage::Live && !matches!(phase, "Succeeded" | "Failed");
    let message = match facts.pod_problem {
        Some(problem) => problem.to_owned(),
        None if waits => format!("waiting for the sandbox: {missing}"),
        None => String::new(),
    };
    Err(("", message))
}

fn initialized(facts: &Facts<'_>, phase: &str, statuses: &ContainerStatuses) -> PodCondition {
    const KIND: &str = "Initialized";
    if phase == "Succeeded" {
        let holds = condition(facts, KIND, Ok(()));
        return PodCondition { reason: Some("PodCompleted".to_owned()), ..holds };
    }
    let incomplete = |c: &&Container| match (ContainerKind::of_init(c), statuses.find(&c.name)) {
        (ContainerKind::Sidecar, status) => status.is_none_or(|s| s.started != Some(true)),
        (_, status) => status.is_none_or(|s| !s.ready),
    };
    let init = facts.pod.spec().init_containers.iter().flatten();
    let incomplete = names(init.filter(incomplete));
    let started = |s: &ContainerStatus| is_running(s) || ended(s).is_some();
    // It never reverts: sidecars that start again, or init containers that run
    // again in a new sandbox, do not undo what has been.
    let holds = incomplete.is_empty()
        || statuses.regular.iter().any(started)
        || before(facts, KIND).is_some_and(|c| c.status == "True");
    let because = || format!("containers with incomplete status: [{incomplete}]");
    let holds = if holds { Ok(()) } else { Err(("ContainersNotInitialized", because())) };
    condition(facts, KIND, holds)
}

/// Regular containers and sidecars, in the order of the spec. Each has a status here,
/// so upstream's reason for those without one (`UnknownContainerStatuses`) never holds.
fn containers_ready(
    facts: &Facts<'_>,
    phase: &str,
    statuses: &ContainerStatuses,
) -> Result<(), Because> {
    match phase {
        "Succeeded" => return Err(("PodCompleted", String::new())),
        "Failed" => return Err(("PodFailed", String::new())),
        _ => {}
    }
    let spec = facts.pod.spec();
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|c| ContainerKind::of_init(c) == ContainerKind::Sidecar);
    let unready = |c: &&Container| statuses.find(&c.name).is_none_or(|status| !status.ready);
    let unready = names(sidecars.chain(&spec.containers).filter(unready));
    if unready.is_empty() {
        return Ok(());
    }
    Err(("ContainersNotReady", format!("containers with unready status: [{unready}]")))
}

/// Conditions by which others hold back a pod whose containers are ready.
fn gates(facts: &Facts<'_>, others: &[PodCondition]) -> Result<(), Because> {
    let mut closed = Vec::new();
    for gate in facts.pod.spec().readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match others.iter().find(|c| c.type_ == *kind).map(|c| c.status.as_str()) {
            Some("True") => {}
            Some(status) => closed.push(format!(
                "the status of pod readiness gate {kind:?} is not \"True\", but {status}"
            )),
            None => closed.push(format!(
                "corresponding condition of pod readiness gate {kind:?} does not exist."
            )),
        }
    }
    if closed.is_empty() { Ok(()) } else { Err(("ReadinessGatesNotReady", closed.join(", "))) }
}

fn all_restarting(facts: &Facts<'_>, phase: &str) -> PodCondition {
    let because = match phase {
        "Succeeded" => ("PodCompleted", String::new()),
        "Failed" => ("PodFailed", String::new()),
        _ if restart_all::in_progress(facts) && !restart_all::is_cleaned_up(facts) => {
            let message = "container exited with restart policy rule".to_owned();
            let reason = Some("RestartAllContainersStarted".to_owned());
            let holds = condition(facts, restart_all::CONDITION, Ok(()));
            return PodCondition { reason, message: Some(message), ..holds };
        }
        _ => ("", String::new()),
    };
    condition(facts, restart_all::CONDITION, Err(because))
}

fn condition(facts: &Facts<'_>, kind: &str, holds: Result<(), Because>) -> PodCondition {
    let status = if holds.is_ok() { "True" } else { "False" };
    let (reason, message) = holds.err().unwrap_or_default();
    let before = before(facts, kind).filter(|c| c.status == status);
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: (!message.is_empty()).then_some(message),
        observed_generation: generation(facts),
        last_transition_time: before
            .and_then(|b| b.last_transition_time.clone())
            .or(Some(Time(truncate(facts.wall)))),
        ..PodCondition::default()
    }
}

fn before<'a>(facts: &Facts<'a>, kind: &str) -> Option<&'a PodCondition> {
    facts.before?.conditions.as_ref()?.iter().find(|c| c.type_ == kind)
}

fn names<'a>(containers: impl Iterator<Item = &'a Container>) -> String {
    containers.map(|c| c.name.as_str()).collect::<Vec<_>>().join(" ")
}
