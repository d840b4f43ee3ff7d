//! What is counted of volumes that an earlier life of the agent left. Upstream:
//! pkg/kubelet/volumemanager/metrics, pkg/kubelet/metrics.
//!
//! Upstream looks at all of them when it starts, this agent at those that no pod wants,
//! when they are undone: the others are made anew and found to be there.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of volumes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct VolumeMetrics {
    found: Counter,
    unknown: Counter,
    cleaned: Counter,
    not_cleaned: Counter,
    orphans: Gauge,
    orphan_errors: Gauge,
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
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for line in [
            "reconstruct_volume_operations_total 2",
            "reconstruct_volume_operations_errors_total 1",
            "force_cleaned_failed_volume_operations_total 2",
            "force_cleaned_failed_volume_operation_errors_total 1",
            "kubelet_orphan_pod_cleaned_volumes 3",
            "kubelet_orphan_pod_cleaned_volumes_errors 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
