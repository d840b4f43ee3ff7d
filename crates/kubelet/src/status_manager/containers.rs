//! One status per container of the spec. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{ContainerName, ContainerState, Exit, ObservedContainer, WaitReason, Waiting};

use super::generate::{Facts, Stage, truncate};

/// Exit code of a container that was lost track of.
const LOST_EXIT_CODE: i32 = 137;

/// Statuses sorted by container name.
pub(super) fn statuses(facts: &Facts<'_>) -> Vec<ContainerStatus> {
    let before: BTreeMap<&str, &ContainerStatus> = facts
        .before
        .and_then(|status| status.container_statuses.as_ref())
        .into_iter()
        .flatten()
        .map(|status| (status.name.as_str(), status))
        .collect();
    let spec = facts.pod.spec();
    let mut statuses: Vec<_> = spec
        .containers
        .iter()
        .map(|container| status(facts, container, before.get(container.name.as_str()).copied()))
        .collect();
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

fn status(
    facts: &Facts<'_>,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let name = ContainerName::new(&container.name);
    let mut status = match facts.seen.current(&name) {
        Some(current) => {
            let mut others = facts.seen.instances(&name).filter(|c| c.id != current.id);
            from_instance(facts, current, others.next(), before)
        }
        None => without_instance(facts, container, before),
    };
    let ended = status.state.as_ref().is_some_and(|s| s.terminated.is_some());
    if let Some(waiting) = facts.waiting.get(&name).filter(|_| facts.stage == Stage::Live) {
        if ended {
            status.last_state = status.state.take();
        }
        status.state = Some(waiting_state(waiting));
    }
    let running = status.state.as_ref().is_some_and(|s| s.running.is_some());
    status.started = Some(running);
    status.ready = running;
    status
}

fn from_instance(
    facts: &Facts<'_>,
    newest: &ObservedContainer,
    second: Option<&ObservedContainer>,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let last = second.and_then(|instance| match &instance.state {
        ContainerState::Exited(exit) => Some(terminated(facts, instance, exit)),
        _ => None,
    });
    let ran = before.and_then(|b| b.state.as_ref()).is_some_and(|s| s.running.is_some());
    let restart_count = match before.filter(|_| newest.state == ContainerState::Unknown && ran) {
        Some(before) => before.restart_count.saturating_add(1),
        None => i32::try_from(newest.restart_count).unwrap_or(i32::MAX),
    };
    // The record of the previous instance outlives the instance itself.
    let kept =
        before.filter(|b| b.restart_count == restart_count).and_then(|b| b.last_state.clone());
    ContainerStatus {
        name: newest.name.to_string(),
        image: newest.image.clone(),
        image_id: newest.image_id.clone(),
        container_id: Some(container_id(facts, newest)),
        restart_count,
        state: Some(match &newest.state {
            ContainerState::Created => {
                ApiState { waiting: Some(ContainerStateWaiting::default()), ..ApiState::default() }
            }
            ContainerState::Running { started_at } => ApiState {
                running: Some(ContainerStateRunning {
                    started_at: Some(Time(truncate(*started_at))),
                }),
                ..ApiState::default()
            },
            ContainerState::Exited(exit) => terminated(facts, newest, exit),
            ContainerState::Unknown => lost_or_waiting(before),
        }),
        last_state: Some(last.or(kept).unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

/// A container the runtime holds nothing of: not made yet, or vanished.
fn without_instance(
    facts: &Facts<'_>,
    container: &Container,
    before: Option<&ContainerStatus>,
) -> ContainerStatus {
    let creating = Waiting {
        reason: WaitReason::ContainerCreating,
        message: facts.pod_problem.unwrap_or_default().to_owned(),
    };
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting_state(&creating)),
        last_state: Some(ApiState::default()),
        ..ContainerStatus::default()
    };
    let Some(before) = before else { return status };
    status.restart_count = before.restart_count;
    status.last_state = before.last_state.clone();
    let state = before.state.as_ref();
    if let Some(ended) = state.and_then(|s| s.terminated.clone()) {
        status.state = Some(ApiState { terminated: Some(ended), ..ApiState::default() });
        status.container_id = before.container_id.clone();
        status.image_id = before.image_id.clone();
    } else if state.is_some_and(|s| s.running.is_some())
        && before.last_state.as_ref().is_none_or(|s| s.terminated.is_none())
    {
        let message = "The container could not be located when the pod was deleted.  The container used to be Running";
        status.last_state = Some(lost(message, before.container_id.clone()));
        let once_more = i32::from(facts.stage == Stage::Live);
        status.restart_count = status.restart_count.saturating_add(once_more);
    }
    status
}

fn terminated(facts: &Facts<'_>, instance: &ObservedContainer, exit: &Exit) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: exit.code,
            reason: Some(exit.reason.clone()),
            message: (!exit.message.is_empty()).then(|| exit.message.clone()),
            started_at: exit.started_at.map(|at| Time(truncate(at))),
            finished_at: Some(Time(truncate(exit.finished_at))),
            container_id: Some(container_id(facts, instance)),
            signal: None,
        }),
        ..ApiState::default()
    }
}

fn lost_or_waiting(before: Option<&ContainerStatus>) -> ApiState {
    let ran = before.and_then(|b| b.state.as_ref()).is_some_and(|s| s.running.is_some());
    if ran {
        let id = before.and_then(|b| b.container_id.clone());
        lost("The container could not be located when the pod was terminated", id)
    } else {
        ApiState { waiting: Some(ContainerStateWaiting::default()), ..ApiState::default() }
    }
}

fn lost(message: &str, container_id: Option<String>) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: LOST_EXIT_CODE,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some(message.to_owned()),
            container_id,
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

fn waiting_state(waiting: &Waiting) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(waiting.reason.as_str().to_owned()),
            message: (!waiting.message.is_empty()).then(|| waiting.message.clone()),
        }),
        ..ApiState::default()
    }
}

fn container_id(facts: &Facts<'_>, instance: &ObservedContainer) -> String {
    format!("{}://{}", facts.runtime_name, instance.id)
}
