//! One status per container of the spec, of whatever kind. Pure.

use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateTerminated, ContainerStatus, PodStatus,
};
use kubelet_model::{ContainerKind, ContainerName, ContainerState};

use super::generate::{Facts, Stage};
use super::{instance, readiness, restart_all};

/// The statuses of a pod's containers by kind.
#[derive(Debug)]
pub(super) struct ContainerStatuses {
    /// Init containers and sidecars, in the order of the spec.
    pub init: Vec<ContainerStatus>,
    /// Regular containers, by name.
    pub regular: Vec<ContainerStatus>,
    /// Ephemeral containers, by name.
    pub ephemeral: Vec<ContainerStatus>,
}

impl ContainerStatuses {
    /// All of them, to change them.
    pub(super) fn every(&mut self) -> impl Iterator<Item = &mut ContainerStatus> {
        self.init.iter_mut().chain(&mut self.regular).chain(&mut self.ephemeral)
    }

    /// The status of an init or regular container.
    pub(super) fn find(&self, name: &str) -> Option<&ContainerStatus> {
        self.init.iter().chain(&self.regular).find(|status| status.name == name)
    }
}

/// What all containers of one pod have in common.
pub(super) struct Scene<'a> {
    pub facts: &'a Facts<'a>,
    /// Every container is being restarted.
    pub restarting_all: bool,
    /// Some regular container exists and is to stay, so the init containers are done.
    pub initialized: bool,
}

/// Statuses of every container of the spec.
pub(super) fn statuses(facts: &Facts<'_>) -> ContainerStatuses {
    let spec = facts.pod.spec();
    let restarting_all = restart_all::in_progress(facts);
    let initialized = !restarting_all && any_regular_created(facts);
    let scene = Scene { facts, restarting_all, initialized };
    let before = |pick: fn(&PodStatus) -> &Option<Vec<ContainerStatus>>, name: &str| {
        facts.before.and_then(|b| pick(b).as_ref()).and_then(|all| find(all, name))
    };
    let init = spec.init_containers.iter().flatten().map(|c| {
        let before = before(|b| &b.init_container_statuses, &c.name);
        status(&scene, ContainerKind::of_init(c), c, before)
    });
    let regular = spec.containers.iter().map(|c| {
        let before = before(|b| &b.container_statuses, &c.name);
        status(&scene, ContainerKind::Regular, c, before)
    });
    let ephemeral = spec.ephemeral_containers.iter().flatten().filter_map(|c| {
        let (kind, container) = facts.pod.container(&c.name)?;
        let before = before(|b| &b.ephemeral_container_statuses, &c.name);
        Some(status(&scene, kind, &container, before))
    });
    ContainerStatuses {
        init: init.collect(),
        regular: sorted(regular.collect()),
        ephemeral: sorted(ephemeral.collect()),
    }
}

fn status(
    scene: &Scene<'_>,
    kind: ContainerKind,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let facts = scene.facts;
    let name = ContainerName::new(&container.name);
    let mut status = match facts.seen.current(&name) {
        Some(current) => {
            let mut others = facts.seen.instances(&name).filter(|c| c.id != current.id);
            instance::existing(scene, container, current, others.next(), before)
        }
        None => instance::missing(scene, container, before),
    };
    let done = kind == ContainerKind::Init && presume_done(scene, &name, &mut status);
    if !done && let Some(waiting) = facts.waiting.get(&name).filter(|_| facts.stage == Stage::Live)
    {
        if ended(&status).is_some() {
            status.last_state = status.state.take();
        }
        status.state = Some(instance::waiting_state(waiting));
    }
    readiness::note(facts, kind, container, before, &mut status);
    status
}

/// Whether an init container has done its work. One that the runtime no longer
/// holds, of a pod whose regular containers exist, must have: a static pod's
/// status does not outlive the agent, and nothing else remembers.
fn presume_done(scene: &Scene<'_>, name: &ContainerName, status: &mut ContainerStatus) -> bool {
    let gone = scene.facts.seen.newest(name).is_none();
    let waits = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
    if gone && waits && scene.initialized {
        let completed = ContainerStateTerminated {
            reason: Some("Completed".to_owned()),
            message: Some(
                "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
                    .to_owned(),
            ),
            ..ContainerStateTerminated::default()
        };
        status.state = Some(ApiState { terminated: Some(completed), ..ApiState::default() });
    }
    ended(status).is_some_and(|ended| ended.exit_code == 0)
}

fn any_regular_created(facts: &Facts<'_>) -> bool {
    facts.pod.spec().containers.iter().any(|c| {
        let newest = facts.seen.newest(&ContainerName::new(&c.name));
        newest.is_some_and(|instance| instance.state != ContainerState::Unknown)
    })
}

/// How the container's current instance ended, if it did.
pub(super) fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

/// Whether the container's current instance runs.
pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn find<'a>(all: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    all.iter().find(|status| status.name == name)
}

fn sorted(mut statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}
