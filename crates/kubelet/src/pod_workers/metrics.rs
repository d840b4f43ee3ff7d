//! What is counted of pods and of the starts of their containers.
//!
//! Upstream: pkg/kubelet/metrics.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet_model::pod::CONFIG_SEEN;
use kubelet_model::{Action, DesiredPod, WaitReason};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::census::{Census, Count};

/// Prometheus's own buckets.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upstream's for the start of a pod.
const START_BUCKETS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Static {
    r#static: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Working {
    lifecycle: &'static str,
    config: &'static str,
    r#static: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    container_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    container_type: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeName {
    node: String,
}

/// Metrics of pods. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PodMetrics {
    desired: Family<Static, Gauge>,
    active: Family<Static, Gauge>,
    working: Family<Working, Gauge>,
    mirrors: Gauge,
    ephemeral: Gauge,
    node: Family<NodeName, Gauge>,
    started: Counter,
    start_errors: Counter,
    containers: Family<Kind, Counter>,
    container_errors: Family<Failure, Counter>,
    worker_start_seconds: Histogram,
    start_seconds: Histogram,
}

impl Default for PodMetrics {
    fn default() -> Self {
        Self {
            desired: Family::default(),
            active: Family::default(),
            working: Family::default(),
            mirrors: Gauge::default(),
            ephemeral: Gauge::default(),
            node: Family::default(),
            started: Counter::default(),
            start_errors: Counter::default(),
            containers: Family::default(),
            container_errors: Family::default(),
            worker_start_seconds: Histogram::new(BUCKETS),
            start_seconds: Histogram::new(START_BUCKETS),
        }
    }
}

impl PodMetrics {
    /// Makes them part of `/metrics`.
    pub fn register(&self, r: &mut Registry) {
        let text = "Pods that the sources ask for";
        r.register("kubelet_desired_pods", text, self.desired.clone());
        let text = "Pods that the sources ask for and that have not ended";
        r.register("kubelet_active_pods", text, self.active.clone());
        r.register("kubelet_working_pods", "Pods with a worker", self.working.clone());
        let text = "Static pods that the API server has a copy of";
        r.register("kubelet_mirror_pods", text, self.mirrors.clone());
        let text = "Ephemeral containers in pods that the sources ask for";
        r.register("kubelet_managed_ephemeral_containers", text, self.ephemeral.clone());
        r.register("kubelet_node_name", "The node's name; always 1", self.node.clone());
        r.register("kubelet_started_pods", "Sandboxes begun", self.started.clone());
        let text = "Sandboxes that could not be made";
        r.register("kubelet_started_pods_errors", text, self.start_errors.clone());
        let text = "Starts of containers begun";
        r.register("kubelet_started_containers", text, self.containers.clone());
        let text = "Starts of containers that failed";
        r.register("kubelet_started_containers_errors", text, self.container_errors.clone());
        let text = "From when a pod was first seen until its worker began";
        let seconds = self.worker_start_seconds.clone();
        r.register_with_unit("kubelet_pod_worker_start_duration", text, Unit::Seconds, seconds);
        let text = "From when a pod was first seen until it ran";
        let seconds = self.start_seconds.clone();
        r.register_with_unit("kubelet_pod_start_duration", text, Unit::Seconds, seconds);
    }

    /// The agent's node is this.
    pub fn know_node(&self, name: &str) {
        self.node.get_or_create(&NodeName { node: name.to_owned() }).set(1);
    }

    /// The API server has so many copies of static pods.
    pub fn count_mirrors(&self, count: usize) {
        self.mirrors.set(gauge(count));
    }

    pub(super) fn count(&self, census: &Census) {
        let set = |family: &Family<Static, Gauge>, count: Count| {
            family.get_or_create(&Static { r#static: "" }).set(gauge(count.regular));
            family.get_or_create(&Static { r#static: "true" }).set(gauge(count.fixed));
        };
        set(&self.desired, census.desired);
        set(&self.active, census.active);
        for ((lifecycle, config, fixed), count) in &census.working {
            let labels = Working { lifecycle, config, r#static: fixed };
            self.working.get_or_create(&labels).set(gauge(*count));
        }
        self.ephemeral.set(gauge(census.ephemeral_containers));
    }

    /// An action begins.
    pub(super) fn begin(&self, action: &Action, pod: Option<&DesiredPod>) {
        match action {
            Action::CreateSandbox { .. } => drop(self.started.inc()),
            Action::StartContainer { name, .. } => {
                let container_type = kind(pod, name.as_str());
                self.containers.get_or_create(&Kind { container_type }).inc();
            }
            _ => {}
        }
    }

    /// A sandbox could not be made.
    pub(super) fn fail_sandbox(&self) {
        self.start_errors.inc();
    }

    /// A container could not be started.
    pub(super) fn fail_start(&self, pod: Option<&DesiredPod>, name: &str, reason: WaitReason) {
        let labels = Failure { container_type: kind(pod, name), code: reason.as_str() };
        self.container_errors.get_or_create(&labels).inc();
    }

    /// A worker begins.
    pub(super) fn begin_worker(&self, pod: &DesiredPod, now: Timestamp) {
        if let Some(age) = seen_for(pod, now) {
            self.worker_start_seconds.observe(age.as_secs_f64());
        }
    }

    /// A pod's status changes.
    pub(super) fn note_status(
        &self,
        pod: &DesiredPod,
        before: Option<&PodStatus>,
        after: &PodStatus,
        now: Timestamp,
    ) {
        let was = before.and_then(|before| before.phase.as_deref());
        if was == Some("Pending")
            && after.phase.as_deref() == Some("Running")
            && let Some(age) = seen_for(pod, now)
        {
            self.start_seconds.observe(age.as_secs_f64());
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// For how long the agent has known of a pod.
fn seen_for(pod: &DesiredPod, now: Timestamp) -> Option<Duration> {
    let seen = pod.pod().metadata.annotations.as_ref()?.get(CONFIG_SEEN)?;
    Duration::try_from(now.duration_since(seen.parse::<Timestamp>().ok()?)).ok()
}

fn kind(pod: Option<&DesiredPod>, name: &str) -> &'static str {
    let spec = pod.map(DesiredPod::spec);
    let mut init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let mut other = spec.into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    if init.any(|container| container.name == name) {
        "init_container"
    } else if other.any(|container| container.name == name) {
        "ephemeral_container"
    } else {
        "container"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubelet_model::Source;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn starts_are_told_by_upstreams_names() {
        let pod = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u",
                "annotations": {CONFIG_SEEN: "2026-01-01T00:00:00Z"}},
            "spec": {"containers": [{"name": "app"}], "initContainers": [{"name": "first"}],
                "ephemeralContainers": [{"name": "look"}]}});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        let pod = DesiredPod::new(Source::Api, pod).unwrap();
        let (metrics, mut registry) = (PodMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.know_node("n1");
        metrics.count_mirrors(2);
        let now = "2026-01-01T00:00:07Z".parse().unwrap();
        metrics.begin_worker(&pod, now);
        metrics.begin(&Action::CreateSandbox { attempt: 0 }, Some(&pod));
        metrics.fail_sandbox();
        for name in ["app", "first", "look"] {
            let start = Action::StartContainer { name: name.into(), restart_count: None };
            metrics.begin(&start, Some(&pod));
        }
        metrics.fail_start(Some(&pod), "first", WaitReason::ErrImagePull);
        let phase = |phase: &str| PodStatus { phase: Some(phase.to_owned()), ..Default::default() };
        let (pending, running) = (phase("Pending"), phase("Running"));
        for (before, after) in
            [(None, &pending), (Some(&pending), &running), (Some(&running), &running)]
        {
            metrics.note_status(&pod, before, after, now);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "kubelet_node_name{node=\"n1\"} 1",
            "kubelet_mirror_pods 2",
            "kubelet_started_pods_total 1",
            "kubelet_started_pods_errors_total 1",
            "kubelet_started_containers_total{container_type=\"container\"} 1",
            "kubelet_started_containers_total{container_type=\"init_container\"} 1",
            "kubelet_started_containers_total{container_type=\"ephemeral_container\"} 1",
            "kubelet_started_containers_errors_total{container_type=\"init_container\",code=\"ErrImagePull\"} 1",
            "kubelet_pod_worker_start_duration_seconds_sum 7.0",
            "kubelet_pod_start_duration_seconds_sum 7.0",
            "kubelet_pod_start_duration_seconds_bucket{le=\"6.0\"} 0",
            "kubelet_pod_start_duration_seconds_bucket{le=\"8.0\"} 1",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line} is not in\n{text}");
        }
    }
}
