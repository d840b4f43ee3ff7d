//! What is counted of volumes: how many there are, how long they take, and what an earlier
//! life of the agent left. Upstream: pkg/kubelet/volumemanager/metrics, pkg/kubelet/metrics.
//!
//! Of what was left, upstream looks at all of them when it starts, this agent at those that no pod wants,
//! when they are undone: the others are made anew and found to be there.

mod operations;
mod totals;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use kubelet_model::PodUid;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use operations::Durations;
pub(super) use operations::Operation;
pub use totals::TotalVolumes;
pub(super) use totals::{of_driver, plugin_of};

/// Metrics of volumes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct VolumeMetrics {
    found: Counter,
    unknown: Counter,
    cleaned: Counter,
    not_cleaned: Counter,
    orphans: Gauge,
    orphan_errors: Gauge,
    durations: Durations,
    /// Plugins of what is on its way out, by pod.
    leaving: Arc<Mutex<BTreeMap<PodUid, Vec<String>>>>,
}

impl VolumeMetrics {
    /// Makes them part of `/metrics`. `_total` is written behind the names of counters.
    pub fn register(&self, to: &mut Registry) {
        let counters = [
            ("reconstruct_volume_operations", "Volumes found on the disk", &self.found),
            (
                "reconstruct_volume_operations_errors",
                "Volumes found on the disk of which it is not known what they are",
                &self.unknown,
            ),
            (
                "force_cleaned_failed_volume_operations",
                "Attempts to undo such volumes",
                &self.cleaned,
            ),
            (
                "force_cleaned_failed_volume_operation_errors",
                "Attempts to undo such volumes that failed",
                &self.not_cleaned,
            ),
        ];
        for (name, help, counter) in counters {
            to.register(name, help, counter.clone());
        }
        self.durations.register(to);
        to.register(
            "kubelet_orphan_pod_cleaned_volumes",
            "Pods that are no more whose volumes the last sweep undid",
            self.orphans.clone(),
        );
        to.register(
            "kubelet_orphan_pod_cleaned_volumes_errors",
            "Pods that are no more whose volumes the last sweep could not undo",
            self.orphan_errors.clone(),
        );
    }

    /// Something was done to a volume of a plugin, or could not be.
    pub(super) fn time(&self, plugin: &str, what: Operation, began: Instant, done: bool) {
        self.durations.operation(plugin, what, began, done);
    }

    /// A pod has a volume mounted that it has wanted since then.
    pub(super) fn mounted(&self, plugin: &str, wanted: Instant) {
        self.durations.mounted(plugin, wanted);
    }

    /// A volume was measured, or nobody could say.
    pub(super) fn measured(&self, source: &str, began: Instant) {
        self.durations.measured(source, began);
    }

    /// What is left of a pod's volumes.
    pub(super) fn set_leaving(&self, uid: &PodUid, plugins: Vec<String>) {
        match plugins.is_empty() {
            true => drop(self.lock().remove(uid)),
            false => drop(self.lock().insert(uid.clone(), plugins)),
        }
    }

    /// What is left of the volumes of all pods.
    fn leaving(&self) -> Vec<String> {
        self.lock().values().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Vec<String>>> {
        self.leaving.lock().expect("leaving lock: no code panics while holding it")
    }

    /// A volume was found on the disk; is it known what it is?
    pub(super) fn count_found(&self, known: bool) {
        self.found.inc();
        if !known {
            self.unknown.inc();
        }
    }

    /// A volume of which that is not known was to be undone.
    pub(super) fn count_cleaned(&self, undone: bool) {
        self.cleaned.inc();
        if !undone {
            self.not_cleaned.inc();
        }
    }

    /// A sweep has come across so many pods that are no more, and failed at some.
    pub fn set_orphans(&self, pods: usize, errors: usize) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.orphans.set(gauge(pods));
        self.orphan_errors.set(gauge(errors));
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn names_are_upstreams() {
        let (metrics, mut registry) = (VolumeMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.count_found(true);
        metrics.count_found(false);
        metrics.count_cleaned(false);
        metrics.count_cleaned(true);
        metrics.set_orphans(3, 1);
        let began = Instant::now();
        metrics.time("kubernetes.io/csi:d", Operation::Mount, began, true);
        metrics.time("kubernetes.io/csi:d", Operation::Mount, began, false);
        metrics.time("kubernetes.io/nfs", Operation::Unmount, began, true);
        metrics.mounted("kubernetes.io/nfs", began);
        metrics.measured("du", began);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for line in [
            "reconstruct_volume_operations_total 2",
            "reconstruct_volume_operations_errors_total 1",
            "force_cleaned_failed_volume_operations_total 2",
            "force_cleaned_failed_volume_operation_errors_total 1",
            "kubelet_orphan_pod_cleaned_volumes 3",
            "kubelet_orphan_pod_cleaned_volumes_errors 1",
            "storage_operation_duration_seconds_count{volume_plugin=\"kubernetes.io/csi:d\",\
             operation_name=\"volume_mount\",status=\"success\",migrated=\"false\"} 1",
            "storage_operation_duration_seconds_count{volume_plugin=\"kubernetes.io/csi:d\",\
             operation_name=\"volume_mount\",status=\"fail-unknown\",migrated=\"false\"} 1",
            "storage_operation_duration_seconds_bucket{le=\"0.1\",\
             volume_plugin=\"kubernetes.io/nfs\",operation_name=\"volume_unmount\",\
             status=\"success\",migrated=\"false\"} 1",
            "volume_operation_total_seconds_count{plugin_name=\"kubernetes.io/nfs\",\
             operation_name=\"overall_volume_mount\"} 1",
            "kubelet_volume_metric_collection_duration_seconds_count{metric_source=\"du\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
