//! Whether the pod's sandbox will do, and how to replace it.

use kubelet_model::{Action, DesiredPod, ObservedPod, StopReason};

use super::containers::{RestartPolicy, Wanted, restart_policy};
use super::{PodPlan, containers, terminate};

/// What to do about the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The newest one is usable.
    Keep,
    /// Stop everything and make a new one.
    Recreate { attempt: u32 },
}

pub(super) fn decide(pod: &DesiredPod, seen: &ObservedPod) -> Verdict {
    let Some(newest) = seen.sandboxes.first() else {
        return Verdict::Recreate { attempt: 0 };
    };
    let host_network = pod.spec().host_network.unwrap_or(false);
    let several_ready = seen.sandboxes.iter().filter(|s| s.ready).count() > 1;
    let usable = newest.ready
        && !several_ready
        && newest.host_network == host_network
        && (host_network || !newest.ips.is_empty());
    if usable {
        Verdict::Keep
    } else {
        Verdict::Recreate { attempt: newest.attempt.saturating_add(1) }
    }
}

/// Stops what is left of the old sandbox; makes a new one if there is something to run in it.
pub(super) fn plan_recreation(
    pod: &DesiredPod,
    seen: &ObservedPod,
    attempt: u32,
    wanted: &[Wanted],
    plan: &mut PodPlan,
) {
    let replace = wants_sandbox(pod, seen, attempt, wanted);
    let mut stopping = seen.clone();
    if let Some(newest) = stopping.sandboxes.first_mut() {
        // One that died by itself still holds its network.
        newest.ready |= replace;
    }
    let grace = containers::grace(pod.spec());
    plan.steps.extend(terminate::stop_everything(&stopping, grace, StopReason::SandboxChanged));
    if !replace {
        return;
    }
    plan.step(vec![Action::CreateSandbox { attempt }]);
    for container in wanted {
        // A container that still ran in the old sandbox has been stopped above.
        container.start_in_new_sandbox(plan);
    }
}

fn wants_sandbox(pod: &DesiredPod, seen: &ObservedPod, attempt: u32, wanted: &[Wanted]) -> bool {
    let ever_ran = !seen.containers.is_empty();
    if restart_policy(pod.spec()) == RestartPolicy::Never && attempt != 0 && ever_ran {
        return false;
    }
    !ever_ran || wanted.iter().any(Wanted::belongs_in_new_sandbox)
}
