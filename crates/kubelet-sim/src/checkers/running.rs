//! What runs is what the manifests ask for, and what ended stays ended.

use std::time::Duration;

use cri::v1::ContainerState;

use super::{Actual, ReportedPod, fail};
use crate::container_template::{ContainerTemplate, ProbeRole};
use crate::deadlines::was_exceeded;
use crate::manifest::Restart;
use crate::runtime::{Container, Sandbox};
use crate::world::{State, Violation};

/// Slack on top of the longest back-off before a crashed container counts as lost.
const BACKOFF_SLACK: Duration = Duration::from_secs(60);
/// Dead instances of one container beside a live one: the policy's one, and one
/// that its replacement has just pushed out.
const DEAD_MAX: usize = 2;

/// Is the pod finished, so that nothing needs to run?
pub(super) fn is_done(actual: &Actual<'_>) -> bool {
    let template = actual.template;
    let ready = actual.sandboxes.iter().any(|s| s.ready);
    if template.restart == Restart::Never && !ready && !actual.newest.is_empty() {
        return true;
    }
    let ended = |c: &ContainerTemplate| {
        actual.newest.get(c.name.as_str()).is_some_and(|instance| {
            instance.has_exited() && !c.restarts(template.restart, instance.exit_code)
        })
    };
    template.containers.iter().all(ended) || init_failed(actual)
}

/// Did an init container fail for good?
pub(super) fn init_failed(actual: &Actual<'_>) -> bool {
    let template = actual.template;
    template.init.iter().any(|c| {
        actual.newest.get(c.name.as_str()).is_some_and(|instance| {
            let code = instance.exit_code;
            instance.has_exited() && code != 0 && !c.restarts(template.restart, code)
        })
    })
}

/// A pod that ended stays ended, even if an edit in place would let it run again,
/// if a container that never restarts was stopped with its sandbox, or if its time
/// was up.
pub(super) fn stays_ended(actual: &Actual<'_>, reported: &[ReportedPod]) -> bool {
    let report = reported.iter().find(|r| r.uid == actual.uid);
    let ended = report.is_some_and(|r| r.phase == "Succeeded" || r.phase == "Failed");
    let alive = actual.newest.values().any(|c| c.is_running());
    let mut all = actual.template.init.iter().chain(&actual.template.containers);
    let own_end = all.any(|c| c.own_restart.is_some() && c.never_restarts(Restart::Never));
    let too_late = actual.template.deadline_secs.is_some() && report.is_some_and(was_exceeded);
    (actual.template.fixed_uid.is_some() || own_end || too_late) && ended && !alive
}

/// An unfinished pod has one ready sandbox, and its containers run or wait out a back-off.
pub(super) fn runs_as_asked(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    backoff_max: Duration,
) -> Result<(), Violation> {
    let ready: Vec<&&Sandbox> = actual.sandboxes.iter().filter(|s| s.ready).collect();
    let [sandbox] = ready[..] else {
        return fail(pod, format!("{} ready sandboxes instead of one", ready.len()));
    };
    let here = |name: &str| {
        let newest = actual.newest.get(name).copied();
        newest.filter(|instance| instance.sandbox == sandbox.id)
    };
    let ran_on = actual.template.containers.iter().any(|c| here(&c.name).is_some());
    let initialised = is_initialised(state, actual, sandbox);
    let mut held = false;
    for defined in &actual.template.init {
        let instance = here(&defined.name);
        let done = instance.is_some_and(|c| c.has_exited() && c.exit_code == 0);
        if !defined.sidecar && (ran_on || done) {
            continue;
        }
        if !held || instance.is_some() {
            runs_or_rests(state, pod, actual, defined, sandbox, backoff_max)?;
        }
        let passes = defined.sidecar && instance.is_some_and(|c| has_started(state, defined, c));
        held |= !passes && !initialised;
    }
    for defined in &actual.template.containers {
        // One that ended waits again for a sidecar that must come up first.
        if !held || here(&defined.name).is_some_and(|c| !c.has_exited()) {
            runs_or_rests(state, pod, actual, defined, sandbox, backoff_max)?;
        }
    }
    Ok(())
}

/// May regular containers run? As computeInitContainerActions upstream: if one was
/// created here or runs, or if the last of the init containers got through.
fn is_initialised(state: &State, actual: &Actual<'_>, sandbox: &Sandbox) -> bool {
    let newest = |c: &ContainerTemplate| actual.newest.get(c.name.as_str()).copied();
    let here = |c: &ContainerTemplate| newest(c).filter(|i| i.sandbox == sandbox.id);
    let mut regular = actual.template.containers.iter();
    if regular.any(|c| here(c).is_some_and(|instance| !instance.has_exited())) {
        return true;
    }
    actual.template.init.last().is_none_or(|last| match here(last) {
        Some(instance) if last.sidecar => has_started(state, last, instance),
        Some(instance) => instance.has_exited() && instance.exit_code == 0,
        None => false,
    })
}

/// Has an instance got through its start, as far as its program tells?
fn has_started(state: &State, defined: &ContainerTemplate, instance: &Container) -> bool {
    let probed = defined.probe_of(ProbeRole::Startup).is_some();
    instance.is_running()
        && (!probed || state.answers.has_started(&instance.sandbox, instance.name()))
}

/// A container runs what it should where it should, or has reason not to.
fn runs_or_rests(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
    defined: &ContainerTemplate,
    sandbox: &Sandbox,
    backoff_max: Duration,
) -> Result<(), Violation> {
    let name = &defined.name;
    let Some(container) = actual.newest.get(name.as_str()) else {
        return fail(pod, format!("{name} was never created"));
    };
    let restarts = defined.restarts(actual.template.restart, container.exit_code);
    match container.state {
        ContainerState::ContainerRunning if container.sandbox != sandbox.id => {
            fail(pod, format!("{name} runs in an old sandbox"))
        }
        ContainerState::ContainerRunning if container.image != defined.program.image() => {
            fail(pod, format!("{name} runs {}", container.image))
        }
        ContainerState::ContainerRunning => Ok(()),
        ContainerState::ContainerExited if !restarts => Ok(()),
        ContainerState::ContainerExited
            if container.ended_at + backoff_max + BACKOFF_SLACK > state.now() =>
        {
            Ok(())
        }
        other => fail(pod, format!("{name} is {}", other.as_str_name())),
    }
}

/// Dead instances do not pile up.
pub(super) fn few_dead_instances(
    state: &State,
    pod: &str,
    actual: &Actual<'_>,
) -> Result<(), Violation> {
    for name in actual.newest.keys() {
        let dead = state
            .objects
            .containers
            .values()
            .filter(|c| c.uid() == actual.uid && c.name() == *name && !c.is_running())
            .count();
        if dead > DEAD_MAX {
            return fail(pod, format!("{dead} dead instances of {name}"));
        }
    }
    Ok(())
}
