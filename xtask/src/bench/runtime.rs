//! Watching a runtime from a connection of its own, the same way for everyone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cri::v1;
use testkit::cri_client::Cri;

/// How often the runtime is asked. A listing of 100 pods takes it a few
/// milliseconds, so this costs every contender the same per cent or two.
const EVERY: Duration = Duration::from_millis(100);

/// Longest anyone may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Waits until so many containers run; returns when that was seen.
pub fn wait_running(cri: &Cri, pods: u32, check: impl FnMut() -> Result<()>) -> Result<Instant> {
    wait(&format!("{pods} running containers"), check, || {
        let running = v1::ContainerState::ContainerRunning as i32;
        let containers = cri.containers()?;
        Ok(containers.iter().filter(|container| container.state == running).count()
            == pods as usize)
    })
}

/// Waits until nothing runs any more, removed or not.
pub fn wait_stopped(cri: &Cri, check: impl FnMut() -> Result<()>) -> Result<Instant> {
    wait("all containers and sandboxes to stop", check, || {
        let running = v1::ContainerState::ContainerRunning as i32;
        let ready = v1::PodSandboxState::SandboxReady as i32;
        Ok(cri.containers()?.iter().all(|container| container.state != running)
            && cri.sandboxes()?.iter().all(|sandbox| sandbox.state != ready))
    })
}

/// Waits until the runtime knows no sandbox and no container.
pub fn wait_removed(cri: &Cri, check: impl FnMut() -> Result<()>) -> Result<Instant> {
    wait("all containers and sandboxes to be removed", check, || {
        Ok(cri.sandboxes()?.is_empty() && cri.containers()?.is_empty())
    })
}

fn wait(
    what: &str,
    mut check: impl FnMut() -> Result<()>,
    done: impl Fn() -> Result<bool>,
) -> Result<Instant> {
    let start = Instant::now();
    while !done()? {
        check()?;
        ensure!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain for {what}");
        std::thread::sleep(EVERY);
    }
    Ok(Instant::now())
}
