//! How long it takes to do something to a volume. Upstream: pkg/volume/util/metrics.go,
//! pkg/kubelet/server/metrics.
//!
//! Only what this agent does as one piece of work has a series. Upstream's
//! `verify_controller_attached_volume` has none: nobody is asked, a change is heard of.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::ports::storage_seconds;

/// Prometheus's own buckets.
const MEASURED_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What is done, as upstream calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::volume_manager) enum Operation {
    /// A file system, for a pod.
    Mount,
    /// The same undone.
    Unmount,
    /// What the node has of it, undone after the last pod.
    UnmountDevice,
    /// A device, for a pod.
    Map,
    /// The same undone.
    Unmap,
    /// What the node has of it, undone after the last pod.
    UnmapDevice,
    /// More room, in use.
    Grow,
    /// Files given to a group.
    Own,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Mount => "volume_mount",
            Self::Unmount => "volume_unmount",
            Self::UnmountDevice => "unmount_device",
            Self::Map => "map_volume",
            Self::Unmap => "unmap_volume",
            Self::UnmapDevice => "unmap_device",
            Self::Grow => "volume_fs_resize",
            Self::Own => "volume_apply_access_control",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    volume_plugin: String,
    operation_name: &'static str,
    status: &'static str,
    /// In-tree volumes are never translated here.
    migrated: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WholeLabels {
    plugin_name: String,
    operation_name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MeasureLabels {
    metric_source: String,
}

/// Durations of what is done to volumes. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Durations {
    operations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    whole: Family<WholeLabels, Histogram, fn() -> Histogram>,
    measured: Family<MeasureLabels, Histogram, fn() -> Histogram>,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            operations: Family::new_with_constructor(storage_seconds),
            whole: Family::new_with_constructor(storage_seconds),
            measured: Family::new_with_constructor(|| Histogram::new(MEASURED_BUCKETS)),
        }
    }
}

impl Durations {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register_with_unit(
            "storage_operation_duration",
            "Storage operation duration",
            Unit::Seconds,
            self.operations.clone(),
        );
        to.register_with_unit(
            "volume_operation_total",
            "Storage operation end to end duration in seconds",
            Unit::Seconds,
            self.whole.clone(),
        );
        to.register_with_unit(
            "kubelet_volume_metric_collection_duration",
            "Duration in seconds to calculate volume stats",
            Unit::Seconds,
            self.measured.clone(),
        );
    }

    pub(super) fn operation(&self, plugin: &str, what: Operation, began: Instant, done: bool) {
        let labels = OperationLabels {
            volume_plugin: plugin.to_owned(),
            operation_name: what.as_str(),
            status: if done { "success" } else { "fail-unknown" },
            migrated: "false",
        };
        self.operations.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
    }

    pub(super) fn mounted(&self, plugin: &str, wanted: Instant) {
        let (plugin_name, operation_name) = (plugin.to_owned(), "overall_volume_mount");
        let whole = self.whole.get_or_create(&WholeLabels { plugin_name, operation_name });
        whole.observe(wanted.elapsed().as_secs_f64());
    }

    pub(super) fn measured(&self, source: &str, began: Instant) {
        let labels = MeasureLabels { metric_source: source.to_owned() };
        self.measured.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
    }
}
