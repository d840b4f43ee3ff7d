//! The last words on a pod of which nothing runs any more. Pure.
//!
//! Upstream: TerminatePod in pkg/kubelet/status.

use k8s_openapi::api::core::v1::ContainerStatus;
use kubelet_model::ContainerKind;

use super::containers::{ContainerStatuses, ended, is_running};
use super::generate::Facts;
use super::instance;

/// Gives an end to every container that could have run and of which none is
/// known: whoever waits for an end must see one. Containers that were never
/// reached, because init containers before them did not finish, keep waiting.
pub(super) fn finish(facts: &Facts<'_>, statuses: &mut ContainerStatuses) {
    let initialized = has_initialized(facts, statuses);
    let reached = statuses.init.iter().rposition(has_started).unwrap_or(0);
    let init = statuses.init.iter_mut().take(reached + 1);
    let regular = statuses.regular.iter_mut().filter(|_| initialized);
    for status in init.chain(regular).filter(|status| ended(status).is_none()) {
        status.state = Some(instance::presumed_end());
        (status.started, status.ready) = (Some(false), false);
    }
}

fn has_initialized(facts: &Facts<'_>, statuses: &ContainerStatuses) -> bool {
    let init = facts.pod.spec().init_containers.iter().flatten();
    let Some((container, status)) = init.zip(&statuses.init).last() else { return true };
    let done = match ContainerKind::of_init(container) {
        ContainerKind::Sidecar => is_running(status) && status.started == Some(true),
        _ => [&status.state, &status.last_state]
            .into_iter()
            .flatten()
            .any(|state| state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0)),
    };
    done || statuses.regular.iter().any(has_started)
}

/// It runs, or ran once.
fn has_started(status: &ContainerStatus) -> bool {
    let ended_once = status.last_state.as_ref().is_some_and(|s| s.terminated.is_some());
    is_running(status) || ended(status).is_some() || ended_once
}
