//! Reaching the endpoints of pods, for probes and for hooks that ask over HTTP.
//!
//! Failures are sentences in upstream's words, because they end up in events.
//! Upstream: pkg/probe.

use std::time::Duration;

use async_trait::async_trait;

/// Bytes of an answer's body that are kept; the rest is not read.
pub const BODY_MAX: usize = 10 * 1024;

/// How probes introduce themselves; servers tell them from users by it.
pub const PROBE_USER_AGENT: &str = "kube-probe/1.36";

/// How to speak HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS; whom the certificate names and who signed it does not matter.
    Https,
}

/// A GET of one address.
///
/// No connection is kept for a second request and no proxy is used. Redirects
/// are followed on the same host only, ten at the most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// How.
    pub scheme: Scheme,
    /// Address or name, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query as the manifest has them.
    pub path: String,
    /// Headers as the manifest has them. `Host` names the host asked for;
    /// an empty `Accept` or `User-Agent` is not sent at all.
    pub headers: Vec<(String, String)>,
    /// Sent unless the headers have one.
    pub user_agent: String,
    /// For everything: connection, redirects and body.
    pub timeout: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// The first [`BODY_MAX`] bytes of the body.
    pub body: Vec<u8>,
    /// Why the body broke off before its end or its bound, if it did.
    pub body_error: Option<String>,
    /// Where a redirect that was not followed leads.
    pub location: Option<String>,
}

/// Reaches endpoints. Every call ends within its timeout.
#[async_trait]
pub trait ProbeNet: Send + Sync + 'static {
    /// Asks over HTTP.
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String>;
    /// Opens a connection and closes it.
    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), String>;
    /// Asks the health service of a gRPC server; `Ok` means that it serves.
    async fn grpc(
        &self,
        host: &str,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<(), String>;
}
