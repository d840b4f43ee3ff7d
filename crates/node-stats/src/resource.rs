//! `/metrics/resource`: processor time, memory and swap for autoscalers.
//!
//! Upstream: pkg/kubelet/metrics/collectors/resource_metrics.go.

use jiff::Timestamp;

use crate::gather::{Stats, Summary};
use crate::input::{NodeStatsInput, PodStatsInput};
use crate::samples::{Cpu, Memory, Swap};
use crate::text::{self, Family, Kind};

const NANOS: f64 = 1e9;

/// The three things measured of one kind of object.
struct Trio {
    cpu: Family,
    memory: Family,
    swap: Family,
}

impl Trio {
    fn add(&mut self, labels: &str, cpu: Option<Cpu>, memory: Option<Memory>, swap: Option<Swap>) {
        let time = cpu.and_then(|cpu| cpu.time);
        self.cpu.add(labels, cpu.and_then(|cpu| seconds(cpu.core_nanos)), time);
        let time = memory.and_then(|memory| memory.time);
        self.memory.add(labels, memory.and_then(|memory| bytes(memory.working_set)), time);
        let time = swap.and_then(|swap| swap.time);
        self.swap.add(labels, swap.and_then(|swap| bytes(swap.usage)), time);
    }
}

pub(crate) fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / NANOS)
}

pub(crate) fn bytes(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

fn epoch_seconds(time: Option<Timestamp>) -> Option<f64> {
    let time = time.filter(|time| time.as_second() > 0)?;
    Some(time.as_second() as f64 + f64::from(time.subsec_nanosecond()) / NANOS)
}

impl Stats {
    /// The answer of `/metrics/resource`. A summary that fails is told as an error in
    /// the metrics themselves.
    pub async fn resource_metrics(&self, pods: &[PodStatsInput], node: &NodeStatsInput) -> String {
        match self.measure(pods, node, true).await {
            Ok(summary) => resource_text(Some(&summary)),
            Err(error) => {
                tracing::error!(%error, "cannot measure what pods use");
                resource_text(None)
            }
        }
    }
}

fn resource_text(summary: Option<&Summary>) -> String {
    let mut errors =
        Family::new("resource_scrape_error", Kind::Gauge, "[STABLE] 1 if measuring failed, else 0");
    errors.add("", Some(if summary.is_some() { 0.0 } else { 1.0 }), None);
    let mut families = vec![errors];
    if let Some(summary) = summary {
        families.extend(resource_families(summary));
    }
    text::render(families)
}

fn resource_families(summary: &Summary) -> Vec<Family> {
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut node = Trio {
        cpu: counter(
            "node_cpu_usage_seconds_total",
            "[STABLE] CPU time used by the node, in core-seconds",
        ),
        memory: gauge(
            "node_memory_working_set_bytes",
            "[STABLE] Working set of the node, in bytes",
        ),
        swap: gauge("node_swap_usage_bytes", "[ALPHA] Swap used by the node, in bytes"),
    };
    let mut pods = Trio {
        cpu: counter(
            "pod_cpu_usage_seconds_total",
            "[STABLE] CPU time used by the pod, in core-seconds",
        ),
        memory: gauge("pod_memory_working_set_bytes", "[STABLE] Working set of the pod, in bytes"),
        swap: gauge("pod_swap_usage_bytes", "[ALPHA] Swap used by the pod, in bytes"),
    };
    let mut containers = Trio {
        cpu: counter(
            "container_cpu_usage_seconds_total",
            "[STABLE] CPU time used by the container, in core-seconds",
        ),
        memory: gauge(
            "container_memory_working_set_bytes",
            "[STABLE] Working set of the container, in bytes",
        ),
        swap: gauge("container_swap_usage_bytes", "[ALPHA] Swap used by the container, in bytes"),
    };
    let mut limits =
        gauge("container_swap_limit_bytes", "[ALPHA] Swap the container may use, in bytes");
    let mut starts = gauge(
        "container_start_time_seconds",
        "[STABLE] Start of the container, in seconds since the epoch",
    );

    node.add("", summary.node.cpu, summary.node.memory, summary.node.swap);
    for pod in &summary.pods {
        let of = [("namespace", pod.namespace.as_str()), ("pod", pod.name.as_str())];
        pods.add(&text::labels(&of), pod.cpu, pod.memory, pod.swap);
        for container in &pod.containers {
            let labels = text::labels(&[("container", container.name.as_str()), of[0], of[1]]);
            containers.add(&labels, container.cpu, container.memory, container.swap);
            starts.add(&labels, epoch_seconds(container.started), None);
            if let Some(swap) = container.swap
                && let Some(available) = swap.available
            {
                let limit = available.saturating_add(swap.usage.unwrap_or(0));
                limits.add(&labels, Some(limit as f64), swap.time);
            }
        }
    }
    let mut all = vec![limits, starts];
    for Trio { cpu, memory, swap } in [node, pods, containers] {
        all.extend([cpu, memory, swap]);
    }
    all
}

#[cfg(test)]
#[path = "resource_tests.rs"]
mod tests;
