//! The conditions that the agent owns. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::generate::{Facts, truncate};

/// Reason and message of a condition that does not hold.
type Because = (&'static str, String);

pub(super) fn conditions(
    facts: &Facts<'_>,
    phase: &str,
    statuses: &[ContainerStatus],
) -> Vec<PodCondition> {
    let containers_ready = containers_ready(phase, statuses);
    let initialized = if phase == "Succeeded" { Some("PodCompleted") } else { None };
    vec![
        condition(facts, "PodReadyToStartContainers", ready_to_start(facts)),
        with_reason(condition(facts, "Initialized", Ok(())), initialized),
        condition(facts, "Ready", containers_ready.clone()),
        condition(facts, "ContainersReady", containers_ready),
        condition(facts, "PodScheduled", Ok(())),
    ]
}

/// A ready sandbox with a network; otherwise what it waits for.
fn ready_to_start(facts: &Facts<'_>) -> Result<(), Because> {
    let host_network = facts.pod.spec().host_network.unwrap_or(false);
    let newest = facts.seen.sandboxes.first();
    if newest.is_some_and(|s| s.ready && (host_network || !s.ips.is_empty())) {
        return Ok(());
    }
    Err(("", facts.pod_problem.unwrap_or_default().to_owned()))
}

fn containers_ready(phase: &str, statuses: &[ContainerStatus]) -> Result<(), Because> {
    match phase {
        "Succeeded" => return Err(("PodCompleted", String::new())),
        "Failed" => return Err(("PodFailed", String::new())),
        _ => {}
    }
    let unready: Vec<_> = statuses.iter().filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    if unready.is_empty() {
        return Ok(());
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Err(("ContainersNotReady", message))
}

fn condition(facts: &Facts<'_>, kind: &str, holds: Result<(), Because>) -> PodCondition {
    let status = if holds.is_ok() { "True" } else { "False" };
    let (reason, message) = holds.err().unwrap_or_default();
    let before = facts
        .before
        .and_then(|b| b.conditions.as_ref())
        .and_then(|all| all.iter().find(|c| c.type_ == kind && c.status == status));
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: (!message.is_empty()).then_some(message),
        last_transition_time: before
            .and_then(|b| b.last_transition_time.clone())
            .or(Some(Time(truncate(facts.wall)))),
        ..PodCondition::default()
    }
}

fn with_reason(mut condition: PodCondition, reason: Option<&str>) -> PodCondition {
    condition.reason = reason.map(str::to_owned).or(condition.reason);
    condition
}
