//! Resizing a running pod: which containers change, how, and in which order.
//!
//! What a container should have is in the pod's spec, which holds what the pod was
//! allocated; what it was last given is in the context. One that nobody knows the
//! size of is given its size once more and never restarted for that.
//! Upstream: computePodResizeAction, doPodResizeAction and IsPodResizeInProgress in
//! pkg/kubelet/kuberuntime.

use cgroups::Limits;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use kubelet_model::{
    Action, ContainerKind, ContainerName, ContainerResize, ContainerState, DesiredPod,
    ObservedContainer, ObservedPod, PodResources, Sizes,
};

use super::wanted::{Subject, Wanted};
use super::{Facts, PodPlan};

/// What is resized on its own, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Memory, first.
    Memory,
    /// Processors.
    Cpu,
}

impl Resource {
    /// As resource lists name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// A part of resizing one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The limit of the pod's control group.
    PodLimit,
    /// The share of the pod's control group.
    PodRequest,
    /// The containers.
    Containers,
}

/// The order of a resize: a pod that grows must do so before its containers, one
/// that shrinks after them, and its limit never lies below its share.
pub fn stages(resource: Resource, now: &Limits, wanted: &Limits) -> Vec<Stage> {
    let limit = |limits: &Limits| match resource {
        Resource::Memory => limits.memory_bytes,
        Resource::Cpu => limits.cpu_quota_us,
    };
    let share = |limits: &Limits| match resource {
        Resource::Memory => None,
        Resource::Cpu => limits.cpu_shares,
    };
    // Limits cannot be taken off a running pod: none wanted leaves it as it is.
    let bound = |value: i64| if value < 0 { i64::MAX } else { value };
    let wanted_limit = limit(wanted).filter(|wanted| *wanted != 0).map(bound);
    let by_limit = wanted_limit.map(|wanted| wanted.cmp(&bound(limit(now).unwrap_or(-1))));
    let by_share = share(wanted).map(|wanted| wanted.cmp(&share(now).unwrap_or(0)));
    let (grows, shrinks) = (Some(std::cmp::Ordering::Greater), Some(std::cmp::Ordering::Less));
    let order = [
        (by_limit == grows, Stage::PodLimit),
        (by_share == grows, Stage::PodRequest),
        (true, Stage::Containers),
        (by_share == shrinks, Stage::PodRequest),
        (by_limit == shrinks, Stage::PodLimit),
    ];
    order.into_iter().filter(|(due, _)| *due).map(|(_, stage)| stage).collect()
}

/// Must a running container be restarted to get its size?
pub(super) fn needs_restart(subject: &Subject<'_>, instance: &ObservedContainer) -> bool {
    let facts = subject.facts;
    let known = facts.ctx.actuated.and_then(|actuated| actuated.sizes(subject.name.as_str()));
    let Some(from) = known else { return false };
    let Some(change) = change(facts, subject.container, instance) else { return false };
    let restarts = |resource: Resource| {
        let mut policies = subject.container.resize_policy.iter().flatten();
        let policy = policies.find(|policy| policy.resource_name == resource.as_str());
        policy.is_some_and(|policy| policy.restart_policy == "RestartContainer")
    };
    (change.to.with_cpu_of(from) != from && restarts(Resource::Memory))
        || (change.to.with_memory_of(from) != from && restarts(Resource::Cpu))
}

/// The resize that is due, unless it failed a moment ago.
pub(super) fn plan<'a>(
    facts: Facts<'_>,
    all: impl Iterator<Item = &'a Wanted>,
    plan: &mut PodPlan,
) -> Option<Action> {
    let (mut memory, mut cpu, mut pod) = (Vec::new(), Vec::new(), whole_changes(facts));
    for wanted in all {
        pod |= wanted.starts() && starts_resized(facts, wanted.name());
        let instance = facts.seen.current(wanted.name()).filter(|_| wanted.is_kept());
        let container = facts.pod.container(wanted.name().as_str());
        let (Some(instance), Some((kind, container))) = (instance, container) else { continue };
        if kind == ContainerKind::Ephemeral {
            continue;
        }
        let Some(change) = change(facts, &container, instance) else { continue };
        let to = change.to;
        let from = change.from.unwrap_or_default();
        let by_memory =
            [(from.memory_limit, to.memory_limit), (from.memory_request, to.memory_request)];
        let by_cpu = [(from.cpu_limit, to.cpu_limit), (from.cpu_request, to.cpu_request)];
        for (list, amounts) in [(&mut memory, by_memory), (&mut cpu, by_cpu)] {
            match amounts.into_iter().find(|(from, to)| from != to) {
                Some((from, to)) if to < from => list.insert(0, change.clone()),
                Some(_) => list.push(change.clone()),
                None => {}
            }
        }
    }
    if memory.is_empty() && cpu.is_empty() && !pod {
        return None;
    }
    let failure = facts.ctx.memory.resize_failure.as_ref();
    if let Some(failure) = failure.filter(|failure| failure.retry_at > facts.ctx.now) {
        plan.wake(failure.retry_at);
        return None;
    }
    Some(Action::Resize { memory, cpu, pod })
}

/// How a running container's size differs from what it was given; `None` if it
/// does not, or if it does not run.
fn change(
    facts: Facts<'_>,
    container: &Container,
    instance: &ObservedContainer,
) -> Option<ContainerResize> {
    if !matches!(instance.state, ContainerState::Running { .. }) {
        return None;
    }
    let from = facts.ctx.actuated.and_then(|actuated| actuated.sizes(&container.name));
    let to = Sizes::of_container(facts.pod.spec(), container);
    let (id, name) = (instance.id.clone(), instance.name.clone());
    (from.unwrap_or_default() != to).then_some(ContainerResize { id, name, from, to })
}

/// Has a container that is about to start another size than its last instance?
fn starts_resized(facts: Facts<'_>, name: &ContainerName) -> bool {
    let from = facts.ctx.actuated.and_then(|actuated| actuated.sizes(name.as_str()));
    let container = facts.pod.container(name.as_str());
    let (Some(from), Some((_, container))) = (from, container) else { return false };
    from != Sizes::of_container(facts.pod.spec(), &container)
}

/// Does the pod as a whole have another size than it was given?
fn whole_changes(facts: Facts<'_>) -> bool {
    let size = |whole: Option<&_>| whole.map(|whole| Sizes::of(whole, None)).unwrap_or_default();
    let Some(actuated) = facts.ctx.actuated else { return false };
    size(facts.pod.spec().resources.as_ref()) != size(actuated.whole.as_ref())
}

/// Does a running container, or the pod as a whole, still lack what it was
/// allocated? Init containers that run to their end do not count.
pub fn is_resizing(pod: &DesiredPod, seen: &ObservedPod, actuated: Option<&PodResources>) -> bool {
    let spec = pod.spec();
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| ContainerKind::of_init(c) == ContainerKind::Sidecar);
    let lacks = |container: &Container| {
        let instance = seen.current(&ContainerName::new(&container.name));
        let runs = instance.is_some_and(|c| matches!(c.state, ContainerState::Running { .. }));
        let given = actuated.and_then(|actuated| actuated.sizes(&container.name));
        runs && given.unwrap_or_default() != Sizes::of_container(spec, container)
    };
    let size = |whole: &ResourceRequirements| Sizes::of(whole, None);
    let whole = actuated.and_then(|actuated| actuated.whole.as_ref()).zip(spec.resources.as_ref());
    whole.is_some_and(|(from, to)| size(from) != size(to))
        || sidecars.chain(&spec.containers).any(lacks)
}
