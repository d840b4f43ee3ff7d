//! Init containers and sidecars: how far the pod has come, and what is due next.
//!
//! The list is walked from its end, because what ended long ago may have been
//! removed from the runtime: the last container that left a trace tells how far
//! the pod has come. Before that one only sidecars matter; they are kept running.
//! Upstream: computeInitContainerActions in pkg/kubelet/kuberuntime.

use k8s_openapi::api::core::v1::Container;
use kubelet_model::{
    ContainerKind, ContainerState, DesiredPod, Exit, ObservedContainer, ProbeKind, ProbeResult,
    RestartDecision, StopReason, restart,
};

use super::containers::is_changed;
use super::wanted::{Decision, Subject, Wanted, start_fresh};
use super::{Facts, resize};

/// How far a pod's initialisation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Regular containers may run.
    Complete,
    /// An init container or sidecar must get somewhere first.
    Pending,
    /// An init container failed for good.
    Failed,
}

/// The state of the initialisation and the containers that are due.
#[derive(Debug)]
pub(super) struct Init {
    pub(super) progress: Progress,
    /// In the order of the spec. At most one is not a sidecar, and it is the last.
    pub(super) due: Vec<Wanted>,
}

/// Where one container stands.
enum Standing {
    /// Those after it may go on.
    Passed(Decision),
    /// Those after it wait.
    Blocks(Decision),
    /// It ended the pod.
    Failed,
}

/// The init containers of a pod, sidecars among them.
pub(super) fn containers(pod: &DesiredPod) -> &[Container] {
    pod.spec().init_containers.as_deref().unwrap_or_default()
}

pub(super) fn walk(facts: Facts<'_>) -> Init {
    let containers = containers(facts.pod);
    let mut complete = containers.is_empty() || has_initialised(facts);
    let mut begun = complete;
    let mut due = Vec::new();
    for (index, container) in containers.iter().enumerate().rev() {
        let subject = Subject::new(facts, container, ContainerKind::of_init(container));
        let sidecar = subject.kind == ContainerKind::Sidecar;
        let Some(instance) = subject.current else {
            if begun && sidecar {
                let decision = subject.start();
                due.push(subject.wanted(decision));
            }
            continue;
        };
        let standing = if sidecar {
            stand_sidecar(&subject, instance)
        } else if begun {
            Standing::Passed(Decision::Done)
        } else {
            stand_init(&subject, instance)
        };
        let decision = match standing {
            Standing::Failed => return Init { progress: Progress::Failed, due: Vec::new() },
            Standing::Blocks(decision) => decision,
            Standing::Passed(decision) => {
                match containers.get(index + 1) {
                    Some(next) if !begun => due.push(first_start(facts, next)),
                    None => complete = true,
                    Some(_) => {}
                }
                decision
            }
        };
        due.push(subject.wanted(decision));
        begun = true;
    }
    if !begun {
        due.extend(containers.first().map(|first| first_start(facts, first)));
    }
    due.reverse();
    let progress = if complete { Progress::Complete } else { Progress::Pending };
    Init { progress, due }
}

/// The first init container, in a sandbox that holds nothing yet.
pub(super) fn first_in_new_sandbox(facts: Facts<'_>) -> Option<Wanted> {
    containers(facts.pod).first().map(|first| first_start(facts, first))
}

fn first_start(facts: Facts<'_>, container: &Container) -> Wanted {
    let subject = Subject::new(facts, container, ContainerKind::of_init(container));
    let decision = start_fresh(facts, &subject.name);
    subject.wanted(decision)
}

/// A regular container that runs, or was made in this sandbox, shows that the
/// pod was initialised, whatever is left of its init containers. One that ended
/// shows nothing: after a reboot of the node it belongs to an earlier sandbox.
fn has_initialised(facts: Facts<'_>) -> bool {
    let newest = facts.seen.sandboxes.first().map(|s| &s.id);
    let mut regular = facts.pod.spec().containers.iter();
    regular.any(|container| {
        let subject = Subject::new(facts, container, ContainerKind::Regular);
        subject.current.is_some_and(|instance| match instance.state {
            ContainerState::Running { .. } => true,
            ContainerState::Created => Some(&instance.sandbox) == newest,
            ContainerState::Exited(_) | ContainerState::Unknown => false,
        })
    })
}

fn stand_init(subject: &Subject<'_>, instance: &ObservedContainer) -> Standing {
    let spec = subject.facts.pod.spec();
    match &instance.state {
        // A call of an earlier agent took effect late, when the work was done.
        ContainerState::Created if has_succeeded(subject, instance) => {
            Standing::Passed(Decision::Stop { stop: instance.removal(), again: false })
        }
        ContainerState::Created => Standing::Blocks(subject.start()),
        ContainerState::Running { .. } => Standing::Blocks(Decision::Keep),
        ContainerState::Exited(exit) if is_success(exit) => Standing::Passed(Decision::Done),
        ContainerState::Exited(exit) => {
            match restart::after_exit(spec, subject.container, subject.kind, exit.code) {
                RestartDecision::Stay => Standing::Failed,
                RestartDecision::Restart | RestartDecision::RestartAll => {
                    Standing::Blocks(subject.start())
                }
            }
        }
        ContainerState::Unknown => {
            if restart::after_kill(spec, subject.container, subject.kind) {
                Standing::Blocks(subject.start())
            } else {
                Standing::Failed
            }
        }
    }
}

/// Killed for its memory, a child may have taken the blow.
fn is_success(exit: &Exit) -> bool {
    exit.code == 0 && exit.reason != "OOMKilled"
}

/// Did another instance succeed in the same sandbox?
fn has_succeeded(subject: &Subject<'_>, instance: &ObservedContainer) -> bool {
    subject.facts.seen.containers.iter().any(|other| {
        other.name == subject.name
            && other.sandbox == instance.sandbox
            && matches!(&other.state, ContainerState::Exited(exit) if is_success(exit))
    })
}

fn stand_sidecar(subject: &Subject<'_>, instance: &ObservedContainer) -> Standing {
    if !matches!(instance.state, ContainerState::Running { .. }) {
        return Standing::Blocks(subject.start());
    }
    let probes = subject.facts.ctx.probes;
    if subject.container.startup_probe.is_some() {
        match probes.get(&instance.id, ProbeKind::Startup) {
            Some(ProbeResult::Success) => {}
            Some(ProbeResult::Failure) => {
                return Standing::Blocks(subject.replace(instance, StopReason::StartupFailed));
            }
            Some(ProbeResult::Unknown) | None => return Standing::Blocks(Decision::Keep),
        }
    }
    // One that is replaced holds back those after it until its successor is up.
    if is_changed(subject, instance) {
        Standing::Blocks(subject.replace(instance, StopReason::DefinitionChanged))
    } else if probes.failed(&instance.id, ProbeKind::Liveness) {
        Standing::Blocks(subject.replace(instance, StopReason::LivenessFailed))
    } else if resize::needs_restart(subject, instance) {
        Standing::Blocks(subject.replace(instance, StopReason::Resized))
    } else {
        Standing::Passed(Decision::Keep)
    }
}
