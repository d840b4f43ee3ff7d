//! What is counted of resizes. Upstream: pkg/kubelet/metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upstream's: from ten milliseconds to ten minutes.
const DURATIONS_MS: [f64; 14] = [
    10.0, 50.0, 100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0,
    120_000.0, 300_000.0, 600_000.0,
];

/// An edit of one amount.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Requested {
    /// `cpu` or `memory`.
    pub resource: &'static str,
    /// `requests` or `limits`.
    pub requirement: &'static str,
    /// `add`, `remove`, `increase` or `decrease`.
    pub operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonDetail {
    reason_detail: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryTrigger {
    retry_trigger: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Success {
    success: &'static str,
}

/// Metrics of resizes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ResizeMetrics {
    requested: Family<Requested, Counter>,
    pending: Family<Reason, Gauge>,
    in_progress: Gauge,
    infeasible: Family<ReasonDetail, Counter>,
    accepted: Family<RetryTrigger, Counter>,
    duration: Family<Success, Histogram>,
}

impl Default for ResizeMetrics {
    fn default() -> Self {
        Self {
            requested: Family::default(),
            pending: Family::default(),
            in_progress: Gauge::default(),
            infeasible: Family::default(),
            accepted: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATIONS_MS)),
        }
    }
}

impl ResizeMetrics {
    /// Makes them part of `/metrics`.
    pub fn register(&self, to: &mut Registry) {
        to.register(
            "kubelet_container_requested_resizes",
            "Edits of the requests and limits of containers",
            self.requested.clone(),
        );
        to.register("kubelet_pod_pending_resizes", "Resizes that wait", self.pending.clone());
        to.register(
            "kubelet_pod_in_progress_resizes",
            "Resizes being put in force",
            self.in_progress.clone(),
        );
        to.register(
            "kubelet_pod_infeasible_resizes",
            "Resizes that can never be done",
            self.infeasible.clone(),
        );
        to.register(
            "kubelet_pod_deferred_accepted_resizes",
            "Resizes that were done after they had waited",
            self.accepted.clone(),
        );
        to.register(
            "kubelet_pod_resize_duration_milliseconds",
            "Duration of putting a resize in force",
            self.duration.clone(),
        );
    }

    pub(super) fn count_requested(&self, requested: &Requested) {
        self.requested.get_or_create(requested).inc();
    }

    pub(super) fn set_pending(&self, reason: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.pending.get_or_create(&Reason { reason }).set(count);
    }

    pub(super) fn set_in_progress(&self, count: usize) {
        self.in_progress.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count_infeasible(&self) {
        // The one cause there is here; upstream's API server refuses such an edit.
        let reason_detail = "qos_class_change";
        self.infeasible.get_or_create(&ReasonDetail { reason_detail }).inc();
    }

    pub(super) fn count_accepted(&self, retry_trigger: &'static str) {
        self.accepted.get_or_create(&RetryTrigger { retry_trigger }).inc();
    }

    /// A resize was put in force, or was not.
    pub fn observe(&self, success: bool, took: Duration) {
        let success = Success { success: if success { "true" } else { "false" } };
        self.duration.get_or_create(&success).observe(took.as_secs_f64() * 1_000.0);
    }
}
