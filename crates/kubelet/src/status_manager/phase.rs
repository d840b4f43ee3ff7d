//! The pod's phase from its containers' states. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec};
use kubelet_model::{ContainerKind, ContainerName, ContainerState};

use super::containers::{ContainerStatuses, ended, is_running};
use super::generate::{Facts, Stage};
use super::instance::is_presumed;
use super::restart::{RESTARTING_ALL, may_restart};

/// What one container's status means for the phase.
enum Life {
    /// Runs.
    Running { started: bool },
    /// Ended, and no instance runs yet that would replace it.
    Ended(End),
    /// Has not run yet.
    Waiting,
}

struct End {
    code: i32,
    restarts: bool,
}

#[derive(Default)]
struct Tally {
    /// Some init container failed for good.
    init_failed: bool,
    /// Some container has yet to run, or to finish before others may run.
    waiting: bool,
    /// Some sidecar runs but has not started.
    starting: bool,
    running: bool,
    /// Of regular containers. Sidecars that ended do not count: they end with the pod.
    ends: Vec<End>,
}

impl Tally {
    /// Every regular container ended for good.
    fn is_over(&self, spec: &PodSpec) -> bool {
        self.ends.len() == spec.containers.len() && self.ends.iter().all(|end| !end.restarts)
    }
}

/// The phase of a pod whose earlier phase was not terminal. When nothing of it runs
/// any more, a pod of an API server has succeeded or failed; a static pod's phase is
/// not forced when it is removed: its containers tell.
pub(super) fn phase(facts: &Facts<'_>, statuses: &ContainerStatuses) -> &'static str {
    let tally = tally(facts, statuses);
    if facts.stage == Stage::Terminated && !facts.pod.is_static() {
        let all = tally.ends.len() == facts.pod.spec().containers.len();
        let succeeded = all && !tally.init_failed && tally.ends.iter().all(|end| end.code == 0);
        return if succeeded { "Succeeded" } else { "Failed" };
    }
    if tally.init_failed {
        "Failed"
    } else if !(tally.is_over(facts.pod.spec()) && has_no_sandbox(facts))
        && (tally.waiting || (tally.starting && !has_initialized(facts)))
    {
        "Pending"
    } else if tally.running || tally.ends.iter().any(|end| end.restarts) {
        "Running"
    } else if tally.ends.is_empty() {
        "Pending"
    } else if tally.ends.iter().all(|end| end.code == 0) {
        "Succeeded"
    } else {
        "Failed"
    }
}

fn tally(facts: &Facts<'_>, statuses: &ContainerStatuses) -> Tally {
    let spec = facts.pod.spec();
    let mut tally = Tally::default();
    for container in spec.init_containers.iter().flatten() {
        let sidecar = ContainerKind::of_init(container) == ContainerKind::Sidecar;
        match life(facts, container, statuses.find(&container.name)) {
            Life::Running { started } if sidecar => {
                tally.running = true;
                tally.starting |= !started;
            }
            Life::Ended(_) if sidecar => {}
            Life::Ended(end) => tally.init_failed |= end.code != 0 && !end.restarts,
            Life::Running { .. } | Life::Waiting => tally.waiting = true,
        }
    }
    for container in &spec.containers {
        match life(facts, container, statuses.find(&container.name)) {
            Life::Running { .. } => tally.running = true,
            Life::Ended(end) => tally.ends.push(end),
            Life::Waiting => tally.waiting = true,
        }
    }
    tally
}

fn life(facts: &Facts<'_>, container: &Container, status: Option<&ContainerStatus>) -> Life {
    let Some(status) = status else { return Life::Waiting };
    if is_running(status) {
        return Life::Running { started: status.started == Some(true) };
    }
    let last = || status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    // A pod that is removed before it ran does not come to have run by that.
    let seen = ended(status).filter(|ended| !is_presumed(ended));
    let Some(ended) = seen.or_else(last) else { return Life::Waiting };
    let code = ended.exit_code;
    let all_restart = ended.reason.as_deref() == Some(RESTARTING_ALL);
    let restarts = all_restart
        || may_restart(container, facts.pod.spec(), code)
        || has_successor(facts, container);
    Life::Ended(End { code, restarts })
}

/// An instance was made and did not start: it is yet to run, whatever the exit of
/// the one before it said. Upstream from v1.35 fails such a pod, though it starts
/// the container again; before that it called it running.
fn has_successor(facts: &Facts<'_>, container: &Container) -> bool {
    let current = facts.seen.current(&ContainerName::new(&container.name));
    facts.stage == Stage::Live
        && current.is_some_and(|c| matches!(c.state, ContainerState::Created))
}

/// Nothing can run. What init containers and sidecars left behind says nothing
/// then: their traces go when a sandbox is to be replaced.
fn has_no_sandbox(facts: &Facts<'_>) -> bool {
    !facts.seen.sandboxes.first().is_some_and(|sandbox| sandbox.ready)
}

/// Regular containers exist in the present sandbox: a sidecar that starts again
/// does not take the pod back to its beginning.
fn has_initialized(facts: &Facts<'_>) -> bool {
    let Some(sandbox) = facts.seen.sandboxes.first().filter(|s| s.ready) else { return false };
    facts.pod.spec().containers.iter().any(|c| {
        let name = ContainerName::new(&c.name);
        facts.seen.instances(&name).any(|instance| instance.sandbox == sandbox.id)
    })
}
