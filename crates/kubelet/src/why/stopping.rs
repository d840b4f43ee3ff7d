//! Containers that klet is stopping, though their pod stays. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Probe};

use super::advice::{full_name, logs_command, probe_text};
use super::{Finding, Rank, WhyFacts, exits, not_ready};

/// Why a container that runs is being stopped, if it is.
pub(super) fn answer(
    facts: &WhyFacts<'_>,
    container: &Container,
    status: &ContainerStatus,
) -> Option<Finding> {
    let progress = facts.progress.filter(|progress| progress.ending.is_none())?;
    let stop = progress.stop_of(&container.name)?;
    let running = status.state.as_ref()?.running.as_ref()?;
    let name = &container.name;
    let killing = exits::killing(facts, name, running.started_at.as_ref());
    let blamed = killing.and_then(|event| exits::blamed_probe(event, name));
    let probe = blamed.and_then(|kind| Some((kind, probe(container, kind)?)));
    let headline = match (probe, killing) {
        (Some((kind, probe)), _) => format!(
            "{name} is being stopped, because its {kind} probe failed. The probe {}.",
            probe_text(probe)
        ),
        (None, Some(event)) => format!("{name} is being stopped: {}.", event.message),
        (None, None) => format!("{name} is being stopped."),
    };
    let finding = Finding::new(Rank::NotReady, headline)
        .waits_for("its end: it was told to end, and is killed when its grace period is over")
        .since(facts.wall_of(stop.since));
    let Some((kind, probe)) = probe else {
        let events = format!("`klet events {}` tells why.", full_name(facts.pod));
        return Some(finding.advise(events));
    };
    let failed = not_ready::last_failure(facts.events, name, kind).map(|one| one.message.as_str());
    Some(
        finding
            .error(failed.unwrap_or_default())
            .advise_all(not_ready::advice(probe, failed))
            .advise(format!("See what it says: {}", logs_command(facts.pod, name, false)))
            .advise(format!("A program that is only slow needs more time: raise {kind}Probe.failureThreshold or timeoutSeconds.")),
    )
}

fn probe<'c>(container: &'c Container, kind: &str) -> Option<&'c Probe> {
    match kind {
        "liveness" => container.liveness_probe.as_ref(),
        "startup" => container.startup_probe.as_ref(),
        _ => None,
    }
}
