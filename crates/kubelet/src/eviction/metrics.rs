//! What is counted of evictions. Upstream: pkg/kubelet/metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Signal {
    eviction_signal: &'static str,
}

/// Metrics of evictions. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct EvictionMetrics(Family<Signal, Counter>);

impl EvictionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("kubelet_evictions", "Pods evicted, by signal", self.0.clone());
    }

    pub(super) fn count(&self, eviction_signal: &'static str) {
        self.0.get_or_create(&Signal { eviction_signal }).inc();
    }
}
