//! The endpoints of simulated pods.
//!
//! Whoever listens at an address and port answers as its program says, unless
//! the world says that a port is unwell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet::ports::{HttpAnswer, HttpRequest, ProbeNet};
use tokio::time::sleep;

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
}

#[async_trait]
impl ProbeNet for SimProbeNet {
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String> {
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
