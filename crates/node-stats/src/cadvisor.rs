//! `/metrics/cadvisor`: the core series of control groups.
//!
//! Tells of the root, the system's groups, pods, their containers and the networks of
//! their sandboxes. Values that nobody knows have no series. Upstream:
//! vendor/github.com/google/cadvisor/lib/metrics/prometheus.go and the labels of
//! pkg/kubelet/server/server.go.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::files::{FileError, Limit};
use crate::gather::Stats;
use crate::groups::{GroupUsage, Groups};
use crate::input::{NodeStatsInput, PodStatsInput};
use crate::limits::GroupLimits;
use crate::machine;
use crate::node;
use crate::pods::PodGroups;
use crate::resource::{bytes, seconds};
use crate::samples::Network;
use crate::text::{self, Family, Kind};

/// Pressure is counted in microseconds.
const MICROS: f64 = 1e6;

/// Whose series these are.
#[derive(Debug, Clone, Copy, Default)]
struct Labels<'a> {
    id: &'a str,
    name: &'a str,
    image: &'a str,
    pod: &'a str,
    namespace: &'a str,
    container: &'a str,
}

impl Labels<'_> {
    fn text(&self, extra: &[(&str, &str)]) -> String {
        let mut pairs = vec![
            ("container", self.container),
            ("id", self.id),
            ("image", self.image),
            ("name", self.name),
            ("namespace", self.namespace),
            ("pod", self.pod),
        ];
        pairs.extend_from_slice(extra);
        pairs.sort_unstable_by_key(|pair| pair.0);
        text::labels(&pairs)
    }
}

/// The series so far.
struct Series {
    now: Timestamp,
    families: BTreeMap<&'static str, Family>,
}

impl Series {
    fn put(&mut self, labels: &str, name: &'static str, help: &'static str, value: Option<f64>) {
        // Limits and starts are no samples and have no time, as upstream.
        let timeless = name.starts_with("container_spec_") || name.ends_with("_start_time_seconds");
        let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
        let family = self.families.entry(name).or_insert_with(|| Family::new(name, kind, help));
        family.add(labels, value, (!timeless).then_some(self.now));
    }

    fn usage(&mut self, whose: Labels<'_>, usage: &GroupUsage) {
        let labels = &whose.text(&[]);
        let total = whose.text(&[("cpu", "total")]);
        let seen = Some(self.now.as_second() as f64);
        self.put(labels, "container_last_seen", "When the container was last measured", seen);
        let used = seconds(usage.cpu_nanos.filter(|nanos| *nanos > 0));
        self.put(&total, "container_cpu_usage_seconds_total", "CPU time used", used);
        let time = seconds(usage.user_nanos);
        self.put(labels, "container_cpu_user_seconds_total", "CPU time outside the kernel", time);
        let time = seconds(usage.system_nanos);
        self.put(labels, "container_cpu_system_seconds_total", "CPU time in the kernel", time);
        let table: [(&'static str, &'static str, Option<u64>); 8] = [
            ("container_memory_usage_bytes", "Memory charged", usage.memory),
            ("container_memory_working_set_bytes", "Memory in active use", usage.working_set()),
            ("container_memory_rss", "Anonymous memory", usage.anonymous),
            ("container_memory_cache", "Page cache", usage.cache),
            ("container_memory_mapped_file", "Mapped files", usage.mapped_file),
            ("container_memory_swap", "Swap in use", usage.swap),
            ("container_memory_total_active_file_bytes", "Active file pages", usage.active_file),
            (
                "container_memory_total_inactive_file_bytes",
                "Inactive file pages",
                usage.inactive_file,
            ),
        ];
        for (name, help, value) in table {
            self.put(labels, name, help, bytes(value));
        }
        for (failure, value) in [("pgfault", usage.faults), ("pgmajfault", usage.major_faults)] {
            for scope in ["container", "hierarchy"] {
                let labels = whose.text(&[("failure_type", failure), ("scope", scope)]);
                self.put(&labels, "container_memory_failures_total", "Page faults", bytes(value));
            }
        }
        self.pressure(labels, usage);
    }

    fn pressure(&mut self, labels: &str, usage: &GroupUsage) {
        let table = [
            (
                "container_pressure_cpu_stalled_seconds_total",
                "container_pressure_cpu_waiting_seconds_total",
                usage.cpu_pressure,
            ),
            (
                "container_pressure_memory_stalled_seconds_total",
                "container_pressure_memory_waiting_seconds_total",
                usage.memory_pressure,
            ),
            (
                "container_pressure_io_stalled_seconds_total",
                "container_pressure_io_waiting_seconds_total",
                usage.io_pressure,
            ),
        ];
        for (stalled, waiting, pressure) in table {
            let full = pressure.map(|pressure| pressure.full.total as f64 / MICROS);
            self.put(labels, stalled, "Time in which nothing could run for want of it", full);
            let some = pressure.map(|pressure| pressure.some.total as f64 / MICROS);
            self.put(labels, waiting, "Time in which something waited for it", some);
        }
    }

    fn limits(&mut self, whose: Labels<'_>, limits: &GroupLimits) {
        let labels = &whose.text(&[]);
        // As upstream, 0 stands for no limit of memory.
        let or_zero = |limit: Option<Limit>| {
            limit.map(|limit| if let Limit::At(bytes) = limit { bytes as f64 } else { 0.0 })
        };
        let quota = match limits.cpu_quota {
            Some(Limit::At(quota)) => Some(quota as f64),
            Some(Limit::None) | None => None,
        };
        let throttled = |value| if quota.is_some() { value } else { None };
        let table: [(&'static str, &'static str, Option<f64>); 14] = [
            ("container_spec_cpu_period", "Period of the CPU quota", bytes(limits.cpu_period)),
            ("container_spec_cpu_quota", "CPU quota", quota),
            ("container_spec_cpu_shares", "CPU shares", bytes(limits.cpu_shares)),
            ("container_spec_memory_limit_bytes", "Limit of memory", or_zero(limits.memory)),
            ("container_spec_memory_swap_limit_bytes", "Limit of swap", or_zero(limits.swap)),
            (
                "container_spec_memory_reservation_limit_bytes",
                "Memory set aside",
                or_zero(limits.reservation),
            ),
            (
                "container_cpu_cfs_periods_total",
                "Periods of the CPU quota",
                throttled(bytes(limits.periods)),
            ),
            (
                "container_cpu_cfs_throttled_periods_total",
                "Periods held back",
                throttled(bytes(limits.throttled_periods)),
            ),
            (
                "container_cpu_cfs_throttled_seconds_total",
                "Time held back",
                throttled(seconds(limits.throttled_nanos)),
            ),
            ("container_memory_max_usage_bytes", "Most memory charged", bytes(limits.memory_peak)),
            ("container_memory_failcnt", "Memory refused", bytes(limits.memory_failures)),
            ("container_memory_kernel_usage", "Memory of the kernel", bytes(limits.kernel_memory)),
            ("container_threads", "Tasks", bytes(limits.tasks)),
            ("container_threads_max", "Limit of tasks, 0 for none", or_zero(limits.tasks_max)),
        ];
        for (name, help, value) in table {
            self.put(labels, name, help, value);
        }
    }

    fn network(&mut self, whose: Labels<'_>, network: &Network) {
        for one in &network.interfaces {
            let labels = &whose.text(&[("interface", &one.name)]);
            let table: [(&'static str, &'static str, Option<u64>); 8] = [
                ("container_network_receive_bytes_total", "Bytes received", one.rx_bytes),
                ("container_network_receive_errors_total", "Errors in receiving", one.rx_errors),
                ("container_network_receive_packets_total", "Packets received", one.rx_packets),
                (
                    "container_network_receive_packets_dropped_total",
                    "Packets not taken in",
                    one.rx_dropped,
                ),
                ("container_network_transmit_bytes_total", "Bytes sent", one.tx_bytes),
                ("container_network_transmit_errors_total", "Errors in sending", one.tx_errors),
                ("container_network_transmit_packets_total", "Packets sent", one.tx_packets),
                (
                    "container_network_transmit_packets_dropped_total",
                    "Packets not sent",
                    one.tx_dropped,
                ),
            ];
            for (name, help, value) in table {
                self.put(labels, name, help, bytes(value));
            }
        }
    }

    fn started(&mut self, whose: Labels<'_>, time: Option<Timestamp>) {
        let value = time.map(|time| time.as_second() as f64);
        let help = "Start of the container, in seconds since the epoch";
        self.put(&whose.text(&[]), "container_start_time_seconds", help, value);
    }

    fn processes(&mut self, whose: Labels<'_>, pids: &[i32]) {
        let labels = whose.text(&[]);
        self.put(&labels, "container_processes", "Processes", Some(pids.len() as f64));
    }
}

impl Stats {
    /// The answer of `/metrics/cadvisor`.
    pub fn cadvisor_metrics(&self, pods: &[PodStatsInput], node: &NodeStatsInput) -> String {
        let mut series = Series { now: self.now(), families: BTreeMap::new() };
        let failed = match self.groups_into(&mut series, pods, node) {
            Ok(()) => 0.0,
            Err(error) => {
                tracing::error!(%error, "cannot measure control groups");
                1.0
            }
        };
        let mut errors =
            Family::new("container_scrape_error", Kind::Gauge, "1 if measuring failed, else 0");
        errors.add("", Some(failed), None);
        let mut families: Vec<Family> = series.families.into_values().collect();
        families.push(errors);
        text::render(families)
    }

    fn groups_into(
        &self,
        series: &mut Series,
        pods: &[PodStatsInput],
        node: &NodeStatsInput,
    ) -> Result<(), FileError> {
        let groups = Groups::detect(&self.roots.cgroup)?;
        let proc = &self.roots.proc;
        let boot = machine::boot_time(proc)?;
        let root = Labels { id: "/", ..Labels::default() };
        series.usage(root, &node::usage(&groups, proc)?);
        let info = machine::mem_info(proc)?;
        let limits = GroupLimits {
            memory: Some(Limit::At(info.total)),
            swap: Some(Limit::At(info.swap_total)),
            ..groups.limits("/")?
        };
        series.limits(root, &limits);
        series.started(root, Some(boot));
        if let Some(network) = machine::network_of(proc, 1, series.now)? {
            series.network(root, &network);
        }
        for group in &node.system {
            let usage = groups.usage(&group.cgroup)?;
            if usage.cpu_nanos.is_none() && usage.memory.is_none() {
                continue;
            }
            let id = absolute(&group.cgroup);
            let whose = Labels { id: &id, ..Labels::default() };
            series.usage(whose, &usage);
            series.limits(whose, &groups.limits(&group.cgroup)?);
            series.started(
                whose,
                group.started.or_else(|| groups.started(&group.cgroup, Some(boot))),
            );
        }
        for pod in pods {
            // A pod may go while it is looked at: the others still count.
            if let Err(error) = self.pod_into(series, &groups, pod, boot) {
                tracing::warn!(pod = %pod.uid, %error, "cannot measure a pod's control groups");
            }
        }
        Ok(())
    }

    fn pod_into(
        &self,
        series: &mut Series,
        groups: &Groups,
        pod: &PodStatsInput,
        boot: Timestamp,
    ) -> Result<(), FileError> {
        let Some(path) = &pod.cgroup else { return Ok(()) };
        let found = PodGroups::read(groups, pod);
        if found.usage.cpu_nanos.is_none() && found.usage.memory.is_none() {
            return Ok(());
        }
        let id = absolute(path);
        let (name, namespace) = (pod.name.as_str(), pod.namespace.as_str());
        let whose = Labels { id: &id, pod: name, namespace, ..Labels::default() };
        series.usage(whose, &found.usage);
        series.limits(whose, &groups.limits(path)?);
        series.started(whose, groups.started(path, Some(boot)));
        if let Some(sandbox) = &found.sandbox {
            let id = absolute(sandbox);
            let whose = Labels { id: &id, name: container_id(&id), ..whose };
            series.usage(whose, &groups.usage(sandbox)?);
            let pids = groups.processes(sandbox)?;
            series.processes(whose, &pids);
            let network =
                pids.first().map(|pid| machine::network_of(&self.roots.proc, *pid, series.now));
            if let Some(network) = network.transpose()?.flatten() {
                series.network(whose, &network);
            }
        }
        for container in &pod.containers {
            let Some((path, usage)) = found.containers.get(container.id.as_str()) else { continue };
            let id = absolute(path);
            let whose = Labels {
                id: &id,
                name: container.id.as_str(),
                image: &container.image,
                container: container.name.as_str(),
                ..whose
            };
            series.usage(whose, usage);
            series.limits(whose, &groups.limits(path)?);
            series.started(whose, container.started.or_else(|| groups.started(path, Some(boot))));
            series.processes(whose, &groups.processes(path)?);
        }
        Ok(())
    }
}

/// The group's path as upstream writes it.
fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// The runtime's id in the name of a group: `<id>` or `<runtime>-<id>.scope`.
fn container_id(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.strip_suffix(".scope") {
        Some(stem) => stem.rsplit('-').next().unwrap_or_default(),
        None => name,
    }
}
