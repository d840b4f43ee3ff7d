//! Endpoints of pods over real sockets.
//!
//! Owns the TLS configuration, built when first needed and shared by every
//! probe. Keeps no connection. `SO_LINGER` stays off, unlike upstream: it
//! would block the thread that closes the socket. Upstream: pkg/probe.

mod dial;
mod grpc;
mod http;
mod target;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use tokio_rustls::TlsConnector;

use super::probe::{HttpAnswer, HttpRequest, ProbeNet};

/// Probes over the machine's network.
#[derive(Default)]
pub struct RealProbeNet {
    tls: OnceLock<TlsConnector>,
}

impl RealProbeNet {
    fn tls(&self) -> Result<&TlsConnector, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let made = tls::connector()?;
        Ok(self.tls.get_or_init(|| made))
    }
}

#[async_trait]
impl ProbeNet for RealProbeNet {
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String> {
        http::get(self, request).await
    }

    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), String> {
        let connected = tokio::time::timeout(timeout, dial::dial(host, port)).await;
        let timed_out = |_| format!("dial tcp {}: i/o timeout", target::join(host, port));
        connected.map_err(timed_out)?.map(drop)
    }

    async fn grpc(
        &self,
        host: &str,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<(), String> {
        grpc::check(host, port, service, timeout).await
    }
}
