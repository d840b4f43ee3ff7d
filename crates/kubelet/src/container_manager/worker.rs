//! Sets the machine's groups up: asks the runtime for its driver, makes the tiers,
//! enforces what pods may use together.
//!
//! Upstream: pkg/kubelet/cm/container_manager_linux.go (Start), getCgroupDriverFromCRI.

use std::sync::Arc;
use std::time::Duration;

use cgroups::{CgroupError, Driver};
use cri::Runtime;
use cri::v1::CgroupDriver;
use tokio::time::{sleep, timeout};

use super::executor::NodeCgroups;
use crate::ports::PodCgroups;

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
pub async fn run(groups: Arc<NodeCgroups>, runtime: Arc<dyn Runtime>, configured: Driver) {
    while !groups.knows_driver() {
        match ask(&*runtime, configured).await {
            Some(driver) => groups.set_driver(driver),
            None => sleep(ASK_AGAIN).await,
        }
    }
    while let Err(error) = set_up(&groups) {
        tracing::error!(%error, "pods' control groups are not as configured");
        sleep(TRY_AGAIN).await;
    }
    tracing::info!("pods' control groups are in force");
}

fn set_up(groups: &NodeCgroups) -> Result<(), CgroupError> {
    groups.prepare()?;
    groups.enforce()?;
    groups.enforce_reserved()
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
