//! The pod's phase from its containers' states. Pure.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};

use super::generate::Facts;
use crate::pod_plan::{RestartPolicy, restart_policy};

/// The phase of a pod whose earlier phase was not terminal. A static pod's phase
/// is not forced when it is removed: its containers tell.
pub(super) fn phase(facts: &Facts<'_>, statuses: &[ContainerStatus]) -> &'static str {
    let policy = restart_policy(facts.pod.spec());
    let (mut waiting, mut running, mut stopped, mut succeeded) = (0, 0, 0, 0);
    let mut restartable = false;
    for status in statuses {
        let state = status.state.as_ref();
        let last = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
        if state.is_some_and(|s| s.running.is_some()) {
            running += 1;
        } else if let Some(ended) = state.and_then(|s| s.terminated.as_ref()) {
            stopped += 1;
            succeeded += i32::from(ended.exit_code == 0);
            restartable |= restarts(policy, ended);
        } else if let Some(ended) = last {
            stopped += 1;
            succeeded += i32::from(ended.exit_code == 0);
            restartable |= restarts(policy, ended);
        } else {
            waiting += 1;
        }
    }
    if waiting > 0 {
        "Pending"
    } else if running > 0 || (stopped > 0 && restartable) {
        "Running"
    } else if stopped == 0 {
        "Pending"
    } else if stopped == succeeded {
        "Succeeded"
    } else {
        "Failed"
    }
}

fn restarts(policy: RestartPolicy, ended: &ContainerStateTerminated) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => ended.exit_code != 0,
        RestartPolicy::Never => false,
    }
}
