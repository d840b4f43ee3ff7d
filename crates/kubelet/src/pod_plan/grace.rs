//! How long a container that is stopped may take to end by itself.
//!
//! Upstream: setTerminationGracePeriod in pkg/kubelet/kuberuntime.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kubelet_model::{DesiredPod, Grace, StopReason};

/// The pod's own grace period; that of its deletion if it is being deleted.
pub(super) fn of_pod(pod: &DesiredPod) -> Grace {
    floored(seconds_of_pod(pod))
}

/// The grace of one stop.
pub(super) fn of_stop(pod: &DesiredPod, container: &Container, why: StopReason) -> Grace {
    floored(seconds_of_stop(pod, container, why))
}

fn seconds_of_pod(pod: &DesiredPod) -> i64 {
    let deletion = pod.pod().metadata.deletion_grace_period_seconds;
    deletion.unwrap_or_else(|| Grace::seconds_of(pod.spec()))
}

/// Seconds that one stop is meant to have, before the floor. A probe may have its
/// own, which a deletion overrides.
pub fn seconds_of_stop(pod: &DesiredPod, container: &Container, why: StopReason) -> i64 {
    let probe = match why {
        StopReason::LivenessFailed => container.liveness_probe.as_ref(),
        StopReason::StartupFailed => container.startup_probe.as_ref(),
        _ => None,
    };
    let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
    match own {
        Some(seconds) if pod.pod().metadata.deletion_grace_period_seconds.is_none() => seconds,
        _ => seconds_of_pod(pod),
    }
}

/// Even one that wants none gets the floor.
fn floored(seconds: i64) -> Grace {
    Grace::from_secs(seconds).after(Duration::ZERO)
}
