//! The endpoints of simulated pods.
//!
//! Whoever listens at an address and port answers as its program says, unless
//! the world says that a port is unwell. Requests of hooks are answered as the
//! hook itself says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet::ports::{HttpAnswer, HttpRequest, ProbeNet};
use tokio::time::sleep;

use crate::hooks::Command;
use crate::world::{Life, World};

/// What endpoints answer.
#[derive(Default)]
pub(crate) struct Endpoints {
    /// Ports on which every probe fails, whatever the host.
    pub(crate) unwell: BTreeSet<u16>,
}

/// The probing port of one life.
pub struct SimProbeNet {
    world: Arc<World>,
    life: Life,
}

impl SimProbeNet {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    /// Takes a while, then says whether the port is well.
    async fn ask(&self, host: &str, port: u16, timeout: Duration) -> Result<bool, String> {
        let wait = self.world.lock().delay();
        sleep(wait.min(timeout)).await;
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
        let well = self.world.lock().answer_at(host, port, wait >= timeout);
        if wait >= timeout {
            return Err("simulated: i/o timeout".to_owned());
        }
        Ok(well)
    }

    /// A request of a hook: takes as long as it says, then is answered or not.
    async fn run_hook(&self, request: &HttpRequest, hook: Command) -> Result<HttpAnswer, String> {
        let refused = || Err("simulated: connection refused".to_owned());
        let (wait, lost, found) = {
            let mut state = self.world.lock();
            let (wait, rate) = (state.delay(), state.faults.probe_lost);
            let lost = state.chance(rate);
            let found = state.hook_listener(&request.host, request.port);
            let found = found.map(|c| (c.id.clone(), c.ended.subscribe()));
            if let Some((id, _)) = found.as_ref().filter(|_| self.life.is_alive()) {
                state.note_hook_asked(id, hook);
            }
            (wait, lost, found)
        };
        let Some((id, mut ended)) = found else {
            sleep(wait).await;
            return refused();
        };
        let takes = hook.takes().unwrap_or(request.timeout) + wait;
        let in_time = tokio::select! { biased;
            _ = ended.wait_for(|done| *done) => false,
            () = sleep(takes.min(request.timeout)) => takes < request.timeout,
        };
        if !self.life.is_alive() {
            std::future::pending::<()>().await;
        }
        let code = match hook {
            Command::PostStart(hook) | Command::PreStop(hook) => hook.code,
            Command::Probe(_) | Command::Other => 0,
        };
        let well = in_time && !lost && code == 0;
        self.world.lock().note_exec(&id, hook, well);
        // Whatever the status: that there is an answer is enough.
        let answer = HttpAnswer { status: 500, body: Vec::new(), body_error: None, location: None };
        if well { Ok(answer) } else { refused() }
    }
}

#[async_trait]
impl ProbeNet for SimProbeNet {
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String> {
        if let Some(hook) = Command::of_path(&request.path) {
            return self.run_hook(request, hook).await;
        }
        let well = self.ask(&request.host, request.port, request.timeout).await?;
        let status = if well { 200 } else { 500 };
        Ok(HttpAnswer { status, body: Vec::new(), body_error: None, location: None })
    }

    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), String> {
        let well = self.ask(host, port, timeout).await?;
        if well { Ok(()) } else { Err("simulated: connection refused".to_owned()) }
    }

    async fn grpc(
        &self,
        host: &str,
        port: u16,
        _service: &str,
        timeout: Duration,
    ) -> Result<(), String> {
        let well = self.ask(host, port, timeout).await?;
        if well { Ok(()) } else { Err("simulated: service unhealthy".to_owned()) }
    }
}
