//! Containers that run, and yet are not ready. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Probe};

use super::advice::{full_name, is_of, logs_command, probe_text};
use super::{Finding, Rank, WhyFacts};
use crate::events::Event;

/// Why a running container takes no traffic.
pub(super) fn answer(
    facts: &WhyFacts<'_>,
    container: &Container,
    status: &ContainerStatus,
) -> Finding {
    let startup = container.startup_probe.as_ref().filter(|_| status.started != Some(true));
    let (kind, probe) = match (startup, &container.readiness_probe) {
        (Some(probe), _) => ("startup", Some(probe)),
        (None, probe) => ("readiness", probe.as_ref()),
    };
    let name = &container.name;
    let Some(probe) = probe else {
        return Finding::new(Rank::NotReady, format!("{name} runs and will be ready in a moment."))
            .waits_for("the next look at its state")
            .advise("Nothing: it has no readiness probe, so running is enough.");
    };
    let since = status.state.as_ref().and_then(|state| state.running.as_ref());
    let since = since.and_then(|running| running.started_at.as_ref()).map(|time| time.0);
    let failed = last_failure(facts.events, name, kind);
    let headline = match failed {
        Some(_) => {
            format!("{name} runs, but its {kind} probe fails. The probe {}.", probe_text(probe))
        }
        None => format!(
            "{name} runs; its {kind} probe has not succeeded yet. The probe {}.",
            probe_text(probe)
        ),
    };
    let mut finding = Finding::new(Rank::NotReady, headline)
        .waits_for(format!("{} of its {kind} probe", successes(probe)))
        .since(since)
        .error(failed.map(|event| event.message.clone()).unwrap_or_default());
    finding.next =
        Some(format!("probe {name} again, every {} s", probe.period_seconds.unwrap_or(10)));
    finding.advice = advice(probe, failed.map(|event| event.message.as_str()));
    if kind == "startup" {
        let seconds = i64::from(probe.failure_threshold.unwrap_or(3))
            * i64::from(probe.period_seconds.unwrap_or(10));
        finding = finding.advise(format!("It is restarted if it takes longer than about {seconds} s: raise startupProbe.failureThreshold if it needs more."));
    }
    finding
        .advise(format!("See what it says: {}", logs_command(facts.pod, name, false)))
        .advise(format!("Look inside: `klet exec -it -c {name} {} -- sh`.", full_name(facts.pod)))
}

fn successes(probe: &Probe) -> String {
    match probe.success_threshold.unwrap_or(1) {
        1 => "a success".to_owned(),
        many => format!("{many} successes in a row"),
    }
}

/// The newest failed probe of that kind.
pub(super) fn last_failure<'e>(
    events: &'e [Event],
    container: &str,
    kind: &str,
) -> Option<&'e Event> {
    events.iter().rev().find(|event| {
        event.reason == "Unhealthy"
            && is_of(event, container)
            && event.message.to_lowercase().starts_with(kind)
    })
}

/// What to do about a probe, from what it said last.
pub(super) fn advice(probe: &Probe, said: Option<&str>) -> Vec<String> {
    let text = said.unwrap_or_default().to_lowercase();
    let has = |needle: &str| text.contains(needle);
    let seconds = probe.timeout_seconds.unwrap_or(1);
    let first = if has("statuscode: 404") {
        "The server answers, but knows no such page: correct the probe's path.".to_owned()
    } else if has("statuscode: 401") || has("statuscode: 403") {
        "The server wants a login: probe a page that needs none, or add httpHeaders.".to_owned()
    } else if has("statuscode: 5") {
        "The server answers that it is not well: what it depends on may be missing.".to_owned()
    } else if has("connection refused") {
        "Nothing listens on that port yet: check the port, and that the program listens on 0.0.0.0 and not only on 127.0.0.1.".to_owned()
    } else if has("timed out") || has("timeout") || has("deadline") {
        format!(
            "It takes longer than {seconds} s: raise timeoutSeconds, or make the check cheaper."
        )
    } else if has("no such file") || has("not found") {
        "The probe's command is not in the image: correct exec.command.".to_owned()
    } else if has("http response to https") || has("tls") {
        "Probe and server disagree on encryption: set httpGet.scheme to HTTP or HTTPS.".to_owned()
    } else if probe.initial_delay_seconds.unwrap_or(0) > 0 && said.is_none() {
        format!(
            "The first probe comes {} s after the start.",
            probe.initial_delay_seconds.unwrap_or(0)
        )
    } else {
        "Check that what the probe asks for is what the program offers once it is ready.".to_owned()
    };
    vec![first]
}
