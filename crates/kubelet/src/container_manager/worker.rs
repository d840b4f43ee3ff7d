//! Sets the machine's groups up: asks the runtime for its driver, makes the tiers,
//! enforces what pods may use together and what is reserved for others, and tells
//! of both. Upstream: pkg/kubelet/cm/container_manager_linux.go (Start),
//! node_container_manager_linux.go, getCgroupDriverFromCRI.

use std::sync::Arc;
use std::time::Duration;

use cgroups::Driver;
use cri::Runtime;
use cri::v1::CgroupDriver;
use tokio::time::{sleep, timeout};

use super::executor::{NodeCgroups, Reservation};
use crate::events::NodeEvents;
use crate::ports::PodCgroups;

/// Event reasons.
const ENFORCED: &str = "NodeAllocatableEnforced";
const NOT_ENFORCED: &str = "FailedNodeAllocatableEnforcement";

/// A runtime that is up answers at once; the agent must not wait for one that is not.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// Between questions to a runtime that does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between attempts to make or limit groups.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Asks once, so that pods that start with the agent find the driver known.
pub async fn ask_first(groups: &NodeCgroups, runtime: &dyn Runtime, configured: Driver) {
    if let Ok(Some(driver)) = timeout(FIRST_ANSWER, ask(runtime, configured)).await {
        groups.set_driver(driver);
    }
}

/// Runs until everything is in force.
pub async fn run(
    groups: Arc<NodeCgroups>,
    runtime: Arc<dyn Runtime>,
    configured: Driver,
    events: NodeEvents,
) {
    while !groups.knows_driver() {
        match ask(&*runtime, configured).await {
            Some(driver) => groups.set_driver(driver),
            None => sleep(ASK_AGAIN).await,
        }
    }
    enforce(&groups, &events).await;
}

/// Tries until it succeeds: pods that use more than they may have to shrink first,
/// and the groups of others may come later.
pub(super) async fn enforce(groups: &NodeCgroups, events: &NodeEvents) {
    let mut pods_limited = false;
    let mut reservations = groups.reservations();
    loop {
        pods_limited = pods_limited || limit_pods(groups, events);
        reservations.retain(|reservation| !limit_others(groups, reservation, events));
        if pods_limited && reservations.is_empty() {
            tracing::info!("pods' control groups are in force");
            return;
        }
        sleep(TRY_AGAIN).await;
    }
}

/// Limits what pods may use together; true if that is done.
fn limit_pods(groups: &NodeCgroups, events: &NodeEvents) -> bool {
    match groups.prepare().and_then(|()| groups.enforce()) {
        Ok(()) => {
            events.normal(ENFORCED, "Updated Node Allocatable limit across pods");
            true
        }
        Err(error) => {
            let group = groups.pods_group_text();
            failed(events, format!("Failed to update Node Allocatable Limits {group}: {error}"))
        }
    }
}

/// Limits a group that something is reserved for; true if that is done.
fn limit_others(groups: &NodeCgroups, reservation: &Reservation<'_>, events: &NodeEvents) -> bool {
    let Reservation { whose, compressible_only, group, .. } = reservation;
    match groups.enforce_reserved(reservation) {
        Ok(()) => {
            let whose = whose.to_lowercase();
            events.normal(ENFORCED, format!("Updated limits on {whose} reserved cgroup {group}"));
            true
        }
        Err(error) => {
            let what = if *compressible_only { "Reserved Compressible" } else { "Reserved" };
            let text = format!("Failed to enforce {whose} {what} Cgroup Limits on {group:?}");
            failed(events, format!("{text}: {error}"))
        }
    }
}

/// Tells of a failure; false, because it is not done.
fn failed(events: &NodeEvents, message: String) -> bool {
    tracing::error!(message, "pods' control groups are not as configured; trying again");
    events.warn(NOT_ENFORCED, message);
    false
}

/// The runtime's driver; the configured one if it cannot tell, `None` if it does not answer.
async fn ask(runtime: &dyn Runtime, configured: Driver) -> Option<Driver> {
    match runtime.runtime_config().await {
        Ok(answer) => Some(answer.linux.map_or(configured, |linux| match linux.cgroup_driver() {
            CgroupDriver::Systemd => Driver::Systemd,
            CgroupDriver::Cgroupfs => Driver::Cgroupfs,
        })),
        Err(error) => error.is_unimplemented().then_some(configured),
    }
}
