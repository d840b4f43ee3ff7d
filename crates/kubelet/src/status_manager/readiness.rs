//! Whether a container has started and is ready, from its probes. Pure.
//!
//! Never runs a probe. Upstream: UpdatePodStatus in pkg/kubelet/prober.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition, Probe};
use kubelet_model::{
    ContainerKind, ContainerName, ContainerState, ObservedContainer, ProbeKind, ProbeResult,
};

use super::containers::{ended, is_running};
use super::generate::Facts;
use super::instance::container_id;
use crate::probe_manager::RESTART_GRACE;

/// Sets `started` and `ready`.
pub(super) fn note(
    facts: &Facts<'_>,
    kind: ContainerKind,
    container: &Container,
    before: Option<&ContainerStatus>,
    status: &mut ContainerStatus,
) {
    let running = is_running(status);
    (status.started, status.ready) = match kind {
        // Nobody waits for it.
        ContainerKind::Ephemeral => (None, false),
        ContainerKind::Init => {
            (Some(running), ended(status).is_some_and(|ended| ended.exit_code == 0))
        }
        ContainerKind::Sidecar | ContainerKind::Regular => {
            let name = ContainerName::new(&container.name);
            match facts.seen.current(&name).filter(|_| running).and_then(Life::of) {
                Some(life) => {
                    let started = life.started(facts, container, before);
                    (Some(started), started && life.ready(facts, container, before))
                }
                None => (Some(false), false),
            }
        }
    };
}

/// An instance that runs.
struct Life<'a> {
    instance: &'a ObservedContainer,
    started_at: Timestamp,
}

impl<'a> Life<'a> {
    fn of(instance: &'a ObservedContainer) -> Option<Self> {
        match instance.state {
            ContainerState::Running { started_at } => Some(Self { instance, started_at }),
            _ => None,
        }
    }

    fn started(
        &self,
        facts: &Facts<'_>,
        container: &Container,
        before: Option<&ContainerStatus>,
    ) -> bool {
        if let Some(result) = facts.probes.get(&self.instance.id, ProbeKind::Startup) {
            return result == ProbeResult::Success;
        }
        let Some(probe) = &container.startup_probe else { return true };
        let id = container_id(facts, self.instance);
        match before.and_then(|b| Some((b.container_id.as_deref()?, b.started))) {
            Some((told, started)) => told == id && started == Some(true),
            // No status has told of this container, as after a restart of a
            // standalone agent. Had it not started within its probe's budget,
            // it would have been killed.
            None => self.age(facts) > startup_budget(probe).max(RESTART_GRACE),
        }
    }

    fn ready(
        &self,
        facts: &Facts<'_>,
        container: &Container,
        before: Option<&ContainerStatus>,
    ) -> bool {
        match facts.probes.get(&self.instance.id, ProbeKind::Readiness) {
            Some(result) => result == ProbeResult::Success,
            None if container.readiness_probe.is_none() => true,
            None => self.age(facts) > RESTART_GRACE && self.was_ready(facts, before),
        }
    }

    /// Whether it counts as ready until its first probe since the agent's
    /// restart: readiness must not flap because the agent was restarted. Without
    /// an earlier status of the container, as after a restart of a standalone
    /// agent, it is taken to have been ready: its probe corrects that within a
    /// period, while a needless flap would take a healthy pod out of service.
    fn was_ready(&self, facts: &Facts<'_>, before: Option<&ContainerStatus>) -> bool {
        let Some(before) = before.filter(|b| b.container_id.is_some()) else { return true };
        let same = before.container_id == Some(container_id(facts, self.instance));
        let pod_ready = |c: &PodCondition| c.type_ == "Ready" && c.status == "True";
        let conditions = facts.before.and_then(|b| b.conditions.as_ref());
        (same && before.ready) || conditions.is_some_and(|all| all.iter().any(pod_ready))
    }

    /// How long it had run when the agent started.
    fn age(&self, facts: &Facts<'_>) -> SignedDuration {
        facts.agent_started.duration_since(self.started_at)
    }
}

/// The longest that a container may take to start, with upstream's defaults.
fn startup_budget(probe: &Probe) -> SignedDuration {
    let seconds = |value: Option<i32>, default: i32| i64::from(value.unwrap_or(default).max(0));
    let delay = seconds(probe.initial_delay_seconds, 0);
    let period = seconds(probe.period_seconds, 10).max(1);
    let threshold = seconds(probe.failure_threshold, 3).max(1);
    let timeout = seconds(probe.timeout_seconds, 1);
    // Each factor is below 2^31, so neither product nor sum overflows.
    SignedDuration::from_secs(delay + period * threshold + timeout)
}
