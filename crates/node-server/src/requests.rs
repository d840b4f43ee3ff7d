//! What metrics tell of requests: how many of which kind, and how long they took.
//!
//! Kinds are few, whatever is asked for, so that nobody can make metrics grow by asking
//! for odd paths. Upstream: pkg/kubelet/server/server.go (getMetricBucket, ServeHTTP).

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio::time::Instant;

use crate::routes::Handlers;

/// A kind of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestKind {
    /// The method, or `other`.
    pub method: &'static str,
    /// The first part of the path, two of those below `metrics`, or `other`.
    pub path: &'static str,
    /// It is a stream, or a profile.
    pub long_running: bool,
}

/// Hears of requests.
pub trait Requests: Send + Sync + 'static {
    /// One began.
    fn began(&self, kind: RequestKind);
    /// It is over: its answer is sent, its stream has ended, or its client has left.
    fn ended(&self, kind: RequestKind, took: Duration);
    /// A stream over a WebSocket is served here: `exec`, `attach` or `portforward`.
    fn websocket(&self, subresource: &'static str);
}

const METHODS: [&str; 8] = ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"];
/// Paths that always have a name of their own.
const ALWAYS: [&str; 14] = [
    "healthz",
    "pods",
    "stats",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "runningpods",
    "logs",
];
/// Those that upstream counts as long.
const LONG: [&str; 3] = ["exec", "attach", "debug"];
const OTHER: &str = "other";

/// The kind of a request to a server with these handlers. Pure.
pub fn request_kind(method: &Method, path: &str, handlers: &Handlers) -> RequestKind {
    let known = METHODS.iter().find(|known| **known == method.as_str());
    let path = bucket(path, handlers);
    RequestKind {
        method: known.copied().unwrap_or(OTHER),
        path,
        long_running: LONG.contains(&path),
    }
}

fn bucket(path: &str, handlers: &Handlers) -> &'static str {
    let mut parts = path.strip_prefix('/').unwrap_or(path).splitn(3, '/');
    let first = parts.next().unwrap_or_default();
    let found = |wanted: &str| ALWAYS.iter().find(|known| **known == wanted).copied();
    match (first, parts.next()) {
        ("metrics", Some(second)) => found(&format!("metrics/{second}")).unwrap_or(OTHER),
        ("configz", _) if handlers.debugging => "configz",
        ("debug", _) if handlers.debugging => "debug",
        ("checkpoint", _) if handlers.debugging && handlers.checkpoint => "checkpoint",
        ("statusz", _) if handlers.debugging && handlers.statusz => "statusz",
        ("flagz", _) if handlers.debugging && handlers.flagz => "flagz",
        (first, _) => found(first).unwrap_or(OTHER),
    }
}

/// A request that is being answered; over once this is dropped.
pub struct Counted {
    requests: Arc<dyn Requests>,
    kind: RequestKind,
    begun: Instant,
}

impl Counted {
    /// One begins.
    pub fn begin(requests: &Arc<dyn Requests>, kind: RequestKind) -> Arc<Self> {
        requests.began(kind);
        Arc::new(Self { requests: Arc::clone(requests), kind, begun: Instant::now() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.requests.ended(self.kind, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_few_names() {
        let off = Handlers { debugging: false, ..Handlers::default() };
        for (path, on, when_off) in [
            ("/healthz", "healthz", "healthz"),
            ("/healthz/log", "healthz", "healthz"),
            ("/metrics", "metrics", "metrics"),
            ("/metrics/cadvisor", "metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/cadvisor/x", "metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/slis", "other", "other"),
            ("/metrics/made-up", "other", "other"),
            ("/metrics/", "other", "other"),
            ("/exec/n/p/c", "exec", "exec"),
            ("/portForward/n/p", "portForward", "portForward"),
            ("/debug/pprof/heap", "debug", "other"),
            ("/configz", "configz", "other"),
            ("/statusz", "statusz", "other"),
            ("/flagz", "flagz", "other"),
            ("/checkpoint/n/p/c", "checkpoint", "other"),
            ("//pods", "other", "other"),
            ("/", "other", "other"),
            ("", "other", "other"),
            ("*", "other", "other"),
        ] {
            let named = |handlers: &Handlers| request_kind(&Method::GET, path, handlers).path;
            assert_eq!(named(&Handlers::default()), on, "{path}");
            assert_eq!(named(&off), when_off, "{path}");
        }
        let odd: Method = "BREW".parse().unwrap();
        let brewed = request_kind(&odd, "/exec/a", &Handlers::default());
        assert_eq!((brewed.method, brewed.long_running), ("other", true));
        assert!(!request_kind(&Method::GET, "/pods", &Handlers::default()).long_running);
    }
}
