//! A container's state from the instances that the runtime holds of it. Pure.

use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, LinuxContainerUser,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{
    ContainerState, Exit, ObservedContainer, RunsAs, WaitReason, Waiting, restart,
};

use super::containers::{Scene, ended, is_running};
use super::generate::{Facts, Stage, truncate};
use super::restart::RESTARTING_ALL;
use super::{details, resources, transitions};

/// Exit code of a container that was lost track of.
const LOST_EXIT_CODE: i32 = 137;
const LOST_WITH_THE_POD: &str = "The container could not be located when the pod was terminated";

/// A container of which the runtime holds an instance.
pub(super) fn existing(
    scene: &Scene<'_>,
    container: &Container,
    newest: &ObservedContainer,
    second: Option<&ObservedContainer>,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let facts = scene.facts;
    let id = container_id(facts, newest);
    let last = second.and_then(|instance| match &instance.state {
        ContainerState::Exited(exit) => Some(terminated(facts, instance, exit)),
        _ => None,
    });
    let restart_count = restart_count(facts, newest, before);
    let kept = before.and_then(|before| kept_last_state(before, &id, restart_count));
    ContainerStatus {
        name: newest.name.to_string(),
        image: newest.image.clone(),
        image_id: newest.image_id.clone(),
        restart_count,
        state: Some(match &newest.state {
            ContainerState::Created => waiting_for_nothing(),
            ContainerState::Running { started_at } => ApiState {
                running: Some(ContainerStateRunning {
                    started_at: Some(Time(truncate(*started_at))),
                }),
                ..ApiState::default()
            },
            ContainerState::Exited(exit) => terminated(facts, newest, exit),
            ContainerState::Unknown => match before.filter(|before| is_running(before)) {
                Some(before) => lost_instance(scene, before),
                None => waiting_for_nothing(),
            },
        }),
        last_state: Some(last.or(kept).unwrap_or_default()),
        volume_mounts: details::volume_mounts(facts, container),
        allocated_resources: resources::allocated(container),
        resources: resources::in_force(
            facts,
            container,
            newest,
            before.filter(|b| is_same(b, &id)),
        ),
        user: newest.user.as_ref().map(container_user),
        stop_signal: newest.stop_signal.clone().filter(|_| facts.stop_signals),
        container_id: Some(id),
        ..ContainerStatus::default()
    }
}

/// Did a status speak of this very instance, running?
fn is_same(before: &ContainerStatus, id: &str) -> bool {
    is_running(before) && before.container_id.as_deref() == Some(id)
}

/// A container the runtime holds nothing of: not made yet, removed, or vanished.
pub(super) fn missing(
    scene: &Scene<'_>,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let facts = scene.facts;
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting_state(&Waiting {
            reason: default_reason(facts),
            message: facts.pod_problem.unwrap_or_default().to_owned(),
        })),
        last_state: Some(ApiState::default()),
        volume_mounts: details::volume_mounts(facts, container),
        ..ContainerStatus::default()
    };
    let Some(before) = before else { return status };
    let waited = before.state.as_ref().is_none_or(|state| state.waiting.is_some());
    status.restart_count = before.restart_count;
    status.last_state = before.last_state.clone();
    if scene.restarting_all && !waited {
        return removed_to_restart(before, status);
    }
    if ended(before).is_some() {
        // Its end outlives it.
        return before.clone();
    }
    let ended_before = before.last_state.as_ref().is_some_and(|s| s.terminated.is_some());
    if is_running(before) && !ended_before {
        let message = "The container could not be located when the pod was deleted.  The container used to be Running";
        status.last_state =
            Some(lost(transitions::STATUS_UNKNOWN, message, before.container_id.clone()));
        let once_more = i32::from(facts.stage == Stage::Live);
        status.restart_count = status.restart_count.saturating_add(once_more);
    }
    status
}

/// The end of a container that nothing is known of, in a pod that has ended. It
/// names no instance: none was seen to run.
pub(super) fn presumed_end() -> ApiState {
    lost(transitions::STATUS_UNKNOWN, LOST_WITH_THE_POD, None)
}

/// Whether an end is such a presumption.
pub(super) fn is_presumed(ended: &ContainerStateTerminated) -> bool {
    ended.reason.as_deref() == Some(transitions::STATUS_UNKNOWN) && ended.container_id.is_none()
}

fn removed_to_restart(before: &ContainerStatus, status: ContainerStatus) -> ContainerStatus {
    let message = "The container is removed because RestartAllContainers in place";
    let waiting =
        Waiting { reason: WaitReason::RestartingAllContainers, message: message.to_owned() };
    ContainerStatus {
        state: Some(waiting_state(&waiting)),
        last_state: Some(lost(RESTARTING_ALL, message, before.container_id.clone())),
        restart_count: before.restart_count.saturating_add(1),
        ..status
    }
}

fn restart_count(
    facts: &Facts<'_>,
    newest: &ObservedContainer,
    before: Option<&ContainerStatus>,
) -> i32 {
    let told = i32::try_from(newest.restart_count).unwrap_or(i32::MAX);
    let Some(before) = before else { return told };
    match newest.state {
        ContainerState::Unknown if is_running(before) => before.restart_count.saturating_add(1),
        // A restart of the whole pod removes the instances that the runtime counts by.
        _ if !restart::could_start_over(facts.pod.spec()) => told,
        ContainerState::Running { .. }
            if ended(before).is_some() && before.restart_count >= told =>
        {
            before.restart_count.saturating_add(1)
        }
        _ => told.max(before.restart_count),
    }
}

/// The record of the previous instance outlives the instance itself.
fn kept_last_state(before: &ContainerStatus, id: &str, restart_count: i32) -> Option<ApiState> {
    let another = before.container_id.as_deref() != Some(id);
    let waited = before.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let kept = if another && ended(before).is_some() {
        before.state.clone()
    } else if waited || before.restart_count == restart_count {
        before.last_state.clone()
    } else {
        None
    };
    // While it waited to restart, the end of this very instance was the last one.
    let is_other = |ended: &ContainerStateTerminated| ended.container_id.as_deref() != Some(id);
    kept.filter(|state| state.terminated.as_ref().is_some_and(is_other))
}

fn default_reason(facts: &Facts<'_>) -> WaitReason {
    let init = facts.pod.spec().init_containers.as_ref();
    if init.is_some_and(|containers| !containers.is_empty()) {
        WaitReason::PodInitializing
    } else {
        WaitReason::ContainerCreating
    }
}

fn terminated(facts: &Facts<'_>, instance: &ObservedContainer, exit: &Exit) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: exit.code,
            reason: (!exit.reason.is_empty()).then(|| exit.reason.clone()),
            message: (!exit.message.is_empty()).then(|| exit.message.clone()),
            started_at: exit.started_at.map(|at| Time(truncate(at))),
            finished_at: Some(Time(truncate(exit.finished_at))),
            container_id: Some(container_id(facts, instance)),
            signal: None,
        }),
        ..ApiState::default()
    }
}

fn lost_instance(scene: &Scene<'_>, before: &ContainerStatus) -> ApiState {
    let reason = if scene.restarting_all { RESTARTING_ALL } else { transitions::STATUS_UNKNOWN };
    lost(reason, LOST_WITH_THE_POD, before.container_id.clone())
}

fn lost(reason: &str, message: &str, container_id: Option<String>) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: LOST_EXIT_CODE,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            container_id,
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

fn waiting_for_nothing() -> ApiState {
    ApiState { waiting: Some(ContainerStateWaiting::default()), ..ApiState::default() }
}

/// The state of a container that is held back.
pub(super) fn waiting_state(waiting: &Waiting) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(waiting.reason.as_str().to_owned()),
            message: (!waiting.message.is_empty()).then(|| waiting.message.clone()),
        }),
        ..ApiState::default()
    }
}

/// An instance's id as statuses carry it.
pub(super) fn container_id(facts: &Facts<'_>, instance: &ObservedContainer) -> String {
    format!("{}://{}", facts.runtime_name, instance.id)
}

fn container_user(user: &RunsAs) -> ContainerUser {
    let groups = (!user.groups.is_empty()).then(|| user.groups.clone());
    let linux = LinuxContainerUser { uid: user.uid, gid: user.gid, supplemental_groups: groups };
    ContainerUser { linux: Some(linux) }
}
