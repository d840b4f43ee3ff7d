//! How long a container that is stopped may take to end by itself.
//!
//! Upstream: setTerminationGracePeriod in pkg/kubelet/kuberuntime.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kubelet_model::{DesiredPod, Grace, StopReason};

/// The pod's own grace period; that of its deletion if it is being deleted.
pub(super) fn of_pod(pod: &DesiredPod) -> Grace {
    let deletion = pod.pod().metadata.deletion_grace_period_seconds;
    floored(deletion.or(pod.spec().termination_grace_period_seconds).unwrap_or(30))
}

/// The grace of one stop. A probe may have its own, which a deletion overrides.
pub(super) fn of_stop(pod: &DesiredPod, container: &Container, why: StopReason) -> Grace {
    let probe = match why {
        StopReason::LivenessFailed => container.liveness_probe.as_ref(),
        StopReason::StartupFailed => container.startup_probe.as_ref(),
        _ => None,
    };
    let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
    match own {
        Some(seconds) if pod.pod().metadata.deletion_grace_period_seconds.is_none() => {
            floored(seconds)
        }
        _ => of_pod(pod),
    }
}

/// Even one that wants none gets the floor.
fn floored(seconds: i64) -> Grace {
    Grace::from_secs(seconds).after(Duration::ZERO)
}
