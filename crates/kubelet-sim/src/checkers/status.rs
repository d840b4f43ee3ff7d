//! What the agent reports is what the runtime holds and what probes found.

use std::time::Duration;

use super::running::{init_failed, stays_ended};
use super::{Actual, ReportedPod, fail};
use crate::container_template::{ContainerTemplate, ProbeRole};
use crate::manifest::PodTemplate;
use crate::runtime::Container;
use crate::world::{State, Violation};

/// How long after a change of health every probe has noticed it, at the longest
/// periods and thresholds of simulated manifests, and something was done about it.
const PROBES_TAKE: Duration = Duration::from_secs(45);

/// Longest postStart hook of simulated manifests, and a look after it.
const HOOK_TAKES: Duration = Duration::from_secs(25);

/// The agent reports what the runtime holds.
pub(super) fn status_matches_runtime(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    done: bool,
    reported: &[ReportedPod],
) -> Result<(), Violation> {
    let Some(report) = reported.iter().find(|r| r.uid == actual.uid) else {
        return fail(pod, format!("uid {} is not reported", actual.uid));
    };
    if report.revision != actual.template.revision {
        return fail(pod, format!("revision {} is reported", report.revision));
    }
    for (name, container) in &actual.newest {
        if is_in_hook(state, actual.template, container) {
            continue;
        }
        let Some(status) = report.containers.iter().find(|c| c.name == *name) else {
            return fail(pod, format!("no status of {name}"));
        };
        if status.id.as_deref() != Some(container.id.as_str()) {
            let text =
                format!("status of {name} has id {:?}, runtime has {}", status.id, container.id);
            return fail(pod, text);
        }
        if status.running != container.is_running() {
            let text = format!("status of {name} says running: {}", status.running);
            return fail(pod, text);
        }
        // Where the whole pod restarts, instances are removed and the status counts on.
        let counts = i64::from(status.restarts).cmp(&container.attempt().into());
        if counts.is_lt() || (counts.is_gt() && !may_start_over(actual.template)) {
            let text = format!(
                "{name}: {} restarts reported, attempt {}",
                status.restarts,
                container.attempt()
            );
            return fail(pod, text);
        }
    }
    follows_probes(state, pod, actual, report)?;
    let ended_well = |c: &ContainerTemplate| {
        actual.newest.get(c.name.as_str()).is_some_and(|instance| {
            let code = instance.exit_code;
            instance.has_exited() && code == 0 && !c.restarts(actual.template.restart, code)
        })
    };
    let all_well = !init_failed(actual) && actual.template.containers.iter().all(ended_well);
    let initialises = !actual.template.init.is_empty();
    let phase = match (done, all_well) {
        // A pod goes back to its beginning with each sandbox.
        (false, _) if initialises && report.phase == "Pending" => return Ok(()),
        (false, _) => "Running",
        // Which of the two depends on the text that was in force when it ended.
        (true, _) if stays_ended(actual, reported) => return Ok(()),
        (true, true) => "Succeeded",
        (true, false) => "Failed",
    };
    if report.phase != phase {
        return fail(pod, format!("phase is {} instead of {phase}", report.phase));
    }
    Ok(())
}

/// While a postStart hook runs, the pod's status waits.
fn is_in_hook(state: &State, template: &PodTemplate, container: &Container) -> bool {
    let mut all = template.init.iter().chain(&template.containers);
    let hooks = all.any(|c| c.post_start.is_some_and(|hook| hook.takes_ms > 0));
    hooks && container.ran_at + HOOK_TAKES > state.now()
}

/// May an exit start the whole pod over?
fn may_start_over(template: &PodTemplate) -> bool {
    let mut all = template.init.iter().chain(&template.containers);
    all.any(|c| c.own_restart.is_some_and(|own| own.all))
}

/// Probes have done their work: what is well is ready, what is not is not, and
/// what its liveness condemns does not run.
fn follows_probes(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    report: &ReportedPod,
) -> Result<(), Violation> {
    let init = actual.template.init.iter().filter(|c| c.sidecar);
    for defined in init.chain(&actual.template.containers) {
        let name = defined.name.as_str();
        let Some(instance) = actual.newest.get(name).filter(|c| c.is_running()) else { continue };
        let age = state.now().saturating_sub(instance.ran_at);
        if !instance.program().is_steady(age, PROBES_TAKE) {
            continue;
        }
        let Some(status) = report.containers.iter().find(|c| c.name == name) else { continue };
        let well = state.is_well(instance);
        let probed = |role| defined.probe_of(role).is_some();
        let started = !probed(ProbeRole::Startup)
            || state.answers.has_started(&instance.sandbox, instance.name());
        if !well && started && probed(ProbeRole::Liveness) {
            return fail(pod, format!("{name} runs though its liveness fails"));
        }
        if well && !status.ready {
            return fail(pod, format!("{name} is well but not ready"));
        }
        if !well && status.ready && (probed(ProbeRole::Readiness) || !started) {
            return fail(pod, format!("{name} is ready but not well"));
        }
    }
    Ok(())
}
