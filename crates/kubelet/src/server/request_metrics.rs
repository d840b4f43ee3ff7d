//! What `/metrics` tells of the servers themselves: requests, streams, the build.
//!
//! Upstream: pkg/kubelet/server/metrics, component-base metrics/prometheus/version.

use std::sync::Arc;
use std::time::Duration;

use kubelet_config::KUBERNETES_VERSION;
use node_server::{RequestKind, Requests};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Prometheus's own buckets.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Labels of requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    method: &'static str,
    path: &'static str,
    server_type: &'static str,
    long_running: &'static str,
}

/// Label of streams over WebSockets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Subresource {
    subresource: &'static str,
}

/// Label of where containers' figures come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: &'static str,
}

/// Labels of the build.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    major: &'static str,
    minor: &'static str,
    git_version: &'static str,
    compiler: &'static str,
    platform: &'static str,
}

/// The servers' metrics.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    requests: Family<Request, Counter>,
    inflight: Family<Request, Gauge>,
    seconds: Family<Request, Histogram>,
    websockets: Family<Subresource, Counter>,
    provider: Family<Provider, Gauge>,
    build: Family<Build, Gauge>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            inflight: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            websockets: Family::default(),
            provider: Family::default(),
            build: Family::default(),
        }
    }
}

impl RequestMetrics {
    /// Makes them part of `/metrics`.
    pub fn register(&self, to: &mut Registry) {
        to.register(
            "kubelet_http_requests",
            "Requests that the servers were asked",
            self.requests.clone(),
        );
        to.register(
            "kubelet_http_inflight_requests",
            "Requests that are being answered",
            self.inflight.clone(),
        );
        to.register_with_unit(
            "kubelet_http_requests_duration",
            "How long requests took",
            Unit::Seconds,
            self.seconds.clone(),
        );
        to.register(
            "kubelet_websocket_streaming_requests",
            "Streams over WebSockets that the node serves itself",
            self.websockets.clone(),
        );
        to.register(
            "kubelet_metrics_provider",
            "Where containers' figures come from: control groups, as cadvisor has them",
            self.provider.clone(),
        );
        to.register(
            "kubernetes_build_info",
            "The Kubernetes whose kubelet this agent stands in for",
            self.build.clone(),
        );
        self.provider.get_or_create(&Provider { provider: "cadvisor" }).set(1);
        self.build.get_or_create(&build()).set(1);
    }

    /// For the server that asks who asks.
    pub fn of_secure(&self) -> Arc<dyn Requests> {
        Arc::new(Server { metrics: self.clone(), server_type: "readwrite" })
    }

    /// For the server that only shows.
    pub(super) fn of_read_only(&self) -> Arc<dyn Requests> {
        Arc::new(Server { metrics: self.clone(), server_type: "readonly" })
    }
}

/// One of the servers.
struct Server {
    metrics: RequestMetrics,
    server_type: &'static str,
}

impl Server {
    fn labels(&self, kind: RequestKind) -> Request {
        Request {
            method: kind.method,
            path: kind.path,
            server_type: self.server_type,
            long_running: if kind.long_running { "true" } else { "false" },
        }
    }
}

fn build() -> Build {
    let mut parts = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    Build {
        major: parts.next().unwrap_or_default(),
        minor: parts.next().unwrap_or_default(),
        git_version: KUBERNETES_VERSION,
        compiler: "rustc",
        platform: if cfg!(target_arch = "x86_64") { "linux/amd64" } else { "linux/arm64" },
    }
}

impl Requests for Server {
    fn began(&self, kind: RequestKind) {
        let labels = self.labels(kind);
        self.metrics.requests.get_or_create(&labels).inc();
        self.metrics.inflight.get_or_create(&labels).inc();
    }

    fn ended(&self, kind: RequestKind, took: Duration) {
        let labels = self.labels(kind);
        self.metrics.inflight.get_or_create(&labels).dec();
        self.metrics.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn websocket(&self, subresource: &'static str) {
        self.metrics.websockets.get_or_create(&Subresource { subresource }).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn requests_are_told_by_upstreams_names() {
        let metrics = RequestMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let kind = RequestKind { method: "GET", path: "pods", long_running: false };
        let heard = metrics.of_secure();
        heard.began(kind);
        heard.began(kind);
        heard.ended(kind, Duration::from_millis(300));
        heard.websocket("exec");
        metrics.of_read_only().began(kind);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let labels = r#"method="GET",path="pods",server_type="readwrite",long_running="false""#;
        for line in [
            format!("kubelet_http_requests_total{{{labels}}} 2"),
            format!("kubelet_http_inflight_requests{{{labels}}} 1"),
            format!("kubelet_http_requests_total{{{}}} 1", labels.replace("readwrite", "readonly")),
            format!("kubelet_http_requests_duration_seconds_count{{{labels}}} 1"),
            r#"kubelet_websocket_streaming_requests_total{subresource="exec"} 1"#.to_owned(),
            r#"kubelet_metrics_provider{provider="cadvisor"} 1"#.to_owned(),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} is not in\n{text}");
        }
        assert!(text.contains("kubernetes_build_info{major=\"1\",minor="), "{text}");
    }
}
