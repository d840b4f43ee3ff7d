//! Regular and ephemeral containers: which to start, stop, keep or hold back.

use kubelet_model::hash::container_hash;
use kubelet_model::{
    ContainerKind, ContainerName, ContainerState, ObservedContainer, ProbeKind, StopReason, restart,
};

use super::terminate::stop;
use super::wanted::{Decision, Subject, Wanted, start_fresh};
use super::{Facts, PodPlan, grace, resize};

/// The regular containers of an initialised pod.
pub(super) fn wanted(facts: Facts<'_>) -> Vec<Wanted> {
    let containers = facts.pod.spec().containers.iter();
    let want = |container| {
        let subject = Subject::new(facts, container, ContainerKind::Regular);
        let decision = decide(&subject);
        subject.wanted(decision)
    };
    containers.map(want).collect()
}

fn decide(subject: &Subject<'_>) -> Decision {
    let state = subject.current.map(|c| &c.state);
    if let (Some(instance), Some(ContainerState::Running { .. })) = (subject.current, state) {
        return match trouble(subject, instance) {
            Some(why) => subject.replace(instance, why),
            None => Decision::Keep,
        };
    }
    let spec = subject.facts.pod.spec();
    if !restart::should_start(spec, subject.container, subject.kind, state) {
        return Decision::Done;
    }
    subject.start()
}

/// Why a running container must be replaced, if it must.
fn trouble(subject: &Subject<'_>, instance: &ObservedContainer) -> Option<StopReason> {
    let probes = subject.facts.ctx.probes;
    if is_changed(subject, instance) {
        Some(StopReason::DefinitionChanged)
    } else if probes.failed(&instance.id, ProbeKind::Liveness) {
        Some(StopReason::LivenessFailed)
    } else if probes.failed(&instance.id, ProbeKind::Startup) {
        Some(StopReason::StartupFailed)
    } else if resize::needs_restart(subject, instance) {
        Some(StopReason::Resized)
    } else {
        None
    }
}

/// Was the instance made from another definition than the pod has now?
pub(super) fn is_changed(subject: &Subject<'_>, instance: &ObservedContainer) -> bool {
    let image = subject.container.image.as_deref().unwrap_or_default();
    instance.hash != Some(container_hash(subject.name.as_str(), image))
}

/// Ephemeral containers start once, at any time, and never again.
pub(super) fn ephemeral(facts: Facts<'_>) -> Vec<Wanted> {
    let containers = facts.pod.spec().ephemeral_containers.iter().flatten();
    let names = containers.map(|c| ContainerName::new(&c.name));
    let want = |name: ContainerName| {
        let decision = match facts.seen.newest(&name) {
            Some(_) => Decision::Done,
            None => start_fresh(facts, &name),
        };
        Wanted::new(facts, name, decision)
    };
    names.map(want).collect()
}

/// Containers that an edit has taken out of the pod.
pub(super) fn plan_unlisted(facts: Facts<'_>, plan: &mut PodPlan) {
    let listed = |c: &&ObservedContainer| facts.pod.container(c.name.as_str()).is_some();
    let unlisted = facts.seen.containers.iter().filter(|c| c.state.may_run() && !listed(c));
    let grace = grace::of_pod(facts.pod);
    plan.step(unlisted.map(|c| stop(c, grace, StopReason::DefinitionChanged)).collect());
}
