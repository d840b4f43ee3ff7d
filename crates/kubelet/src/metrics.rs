//! The agent's own metrics, under upstream's names.
//!
//! Upstream: pkg/kubelet/metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::admission::AdmissionMetrics;
use crate::allocation::ResizeMetrics;
use crate::eviction::EvictionMetrics;
use crate::image_manager::ImageMetrics;
use crate::node_shutdown::ShutdownMetrics;
use crate::pod_workers::PodMetrics;
use crate::ports::CsiMetrics;
use crate::runtime_manager::HookMetrics;
use crate::server::RequestMetrics;
use crate::volume_manager::Volumes;

/// Prometheus's own buckets.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Label of the runtime operation metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Operation {
    /// E.g. `run_podsandbox`.
    pub operation_type: &'static str,
}

/// Label of the container gauge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ContainerState {
    /// `created`, `running`, `exited` or `unknown`.
    pub container_state: &'static str,
}

/// Every metric; incremented where the thing happens.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Sandboxes that are ready.
    pub running_pods: Gauge,
    /// Containers, by state.
    pub running_containers: Family<ContainerState, Gauge>,
    /// Pods and their starts.
    pub pods: PodMetrics,
    /// Pod workers that panicked and were started again.
    pub worker_panics: Counter,
    /// Full listings begun.
    pub relists: Counter,
    /// Duration of full listings.
    pub relist_seconds: Histogram,
    /// Runtime events received.
    pub events: Counter,
    /// Calls to the runtime.
    pub operations: Family<Operation, Counter>,
    /// Calls that failed.
    pub operation_errors: Family<Operation, Counter>,
    /// Duration of calls.
    pub operation_seconds: Family<Operation, Histogram>,
    /// Images.
    pub images: ImageMetrics,
    /// Of resizes.
    pub resizes: ResizeMetrics,
    /// Of hooks.
    pub hooks: HookMetrics,
    /// Of admission.
    pub admission: AdmissionMetrics,
    /// Of the servers.
    pub requests: RequestMetrics,
    /// Of evictions.
    pub evictions: EvictionMetrics,
    /// Of the machine's last shutdown.
    pub shutdown: ShutdownMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            running_pods: Gauge::default(),
            running_containers: Family::default(),
            pods: PodMetrics::default(),
            worker_panics: Counter::default(),
            relists: Counter::default(),
            relist_seconds: Histogram::new(BUCKETS),
            events: Counter::default(),
            operations: Family::default(),
            operation_errors: Family::default(),
            operation_seconds: Family::new_with_constructor(seconds),
            images: ImageMetrics::default(),
            resizes: ResizeMetrics::default(),
            hooks: HookMetrics::default(),
            admission: AdmissionMetrics::default(),
            requests: RequestMetrics::default(),
            evictions: EvictionMetrics::default(),
            shutdown: ShutdownMetrics::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = self.lock();
        let r = &mut *registry;
        self.resizes.register(r);
        self.hooks.register(r);
        self.admission.register(r);
        self.requests.register(r);
        self.evictions.register(r);
        self.shutdown.register(r);
        r.register("kubelet_running_pods", "Pods with a ready sandbox", self.running_pods.clone());
        r.register(
            "kubelet_running_containers",
            "Running containers",
            self.running_containers.clone(),
        );
        self.pods.register(r);
        r.register(
            "klet_pod_worker_panics",
            "Pod workers restarted after a panic",
            self.worker_panics.clone(),
        );
        r.register("klet_pleg_relists", "Full listings of the runtime", self.relists.clone());
        r.register_with_unit(
            "kubelet_pleg_relist_duration",
            "Duration of full listings",
            Unit::Seconds,
            self.relist_seconds.clone(),
        );
        r.register("klet_pleg_events", "Runtime events received", self.events.clone());
        r.register("kubelet_runtime_operations", "Calls to the runtime", self.operations.clone());
        r.register(
            "kubelet_runtime_operations_errors",
            "Calls to the runtime that failed",
            self.operation_errors.clone(),
        );
        r.register_with_unit(
            "kubelet_runtime_operations_duration",
            "Duration of calls to the runtime",
            Unit::Seconds,
            self.operation_seconds.clone(),
        );
        self.images.register(r);
    }

    /// Takes over what exists right now.
    pub fn count(&self, ready_sandboxes: usize, containers: BTreeMap<&'static str, usize>) {
        self.running_pods.set(as_gauge(ready_sandboxes));
        self.running_containers.clear();
        for (container_state, count) in containers {
            let label = ContainerState { container_state };
            self.running_containers.get_or_create(&label).set(as_gauge(count));
        }
    }

    /// Adds the figures of volumes, and of calls to their drivers.
    pub fn add_volumes(&self, volumes: &Volumes, drivers: &CsiMetrics) {
        let mut registry = self.lock();
        volumes.metrics().register(&mut registry);
        drivers.register(&mut registry);
        registry.register_collector(Box::new(volumes.total()));
    }

    /// Adds figures that are read when somebody asks.
    pub fn collect(&self, collector: Box<dyn Collector>) {
        self.lock().register_collector(collector);
    }

    /// The text that `/metrics` answers.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.lock());
        text
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().expect("metrics lock: no code panics while holding it")
    }
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.5, 14))
}
