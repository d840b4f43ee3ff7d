//! `/metrics/cadvisor`: the series of control groups.
//!
//! Tells of the root, the system's groups, pods, their containers and the networks of
//! their sandboxes. Reads small files and asks the runtime once; starts no programs. Values that nobody knows have no series. Upstream:
//! vendor/github.com/google/cadvisor/lib/metrics/prometheus.go and the labels of
//! pkg/kubelet/server/server.go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cri::v1;
use jiff::Timestamp;

use crate::block::{Device, device_of, disk_names};
use crate::cadvisor_host;
use crate::disks;
use crate::files::{self, FileError, Limit};
use crate::gather::Stats;
use crate::groups::{GroupUsage, Groups};
use crate::input::{NodeStatsInput, PodStatsInput};
use crate::limits::GroupLimits;
use crate::machine;
use crate::node;
use crate::pods::PodGroups;
use crate::resource::{bytes, seconds};
use crate::runtime;
use crate::samples::{Fs, Network};
use crate::text::{self, Family, Kind};
use crate::topology::{self, MachineIds, Processors};

/// Pressure is counted in microseconds.
const MICROS: f64 = 1e6;

/// Whose series these are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Labels<'a> {
    id: &'a str,
    name: &'a str,
    image: &'a str,
    pod: &'a str,
    namespace: &'a str,
    container: &'a str,
}

impl Labels<'_> {
    pub(crate) fn text(&self, extra: &[(&str, &str)]) -> String {
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
pub(crate) struct Series {
    now: Timestamp,
    families: BTreeMap<&'static str, Family>,
}

impl Series {
    pub(crate) fn put(
        &mut self,
        labels: &str,
        name: &'static str,
        help: &'static str,
        value: Option<f64>,
    ) {
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
        let table: [(&'static str, &'static str, Option<f64>); 17] = [
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
            (
                "container_cpu_cfs_burst_periods_total",
                "Periods in which saved CPU time was used",
                throttled(bytes(limits.bursts)),
            ),
            (
                "container_cpu_cfs_burst_seconds_total",
                "Saved CPU time used",
                throttled(seconds(limits.burst_nanos)),
            ),
            ("container_oom_events_total", "Kills for want of memory", bytes(limits.oom_kills)),
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

/// What is read once for all groups of a scrape.
struct Scrape {
    boot: Timestamp,
    disks: BTreeMap<Device, String>,
    /// The kernel's list of mounts.
    mounts: String,
    /// What the runtime says of containers, by id.
    told: BTreeMap<String, v1::ContainerStats>,
}

impl Scrape {
    /// The file system of a path, with its device.
    fn room(&self, path: &str, now: Timestamp) -> Option<(String, Fs)> {
        let device = device_of(&self.mounts, path)?;
        Some((device, disks::space(Path::new(path), now).ok()?))
    }
}

impl Stats {
    /// The answer of `/metrics/cadvisor`.
    pub async fn cadvisor_metrics(
        &self,
        pods: &[PodStatsInput],
        node: &NodeStatsInput,
        ids: &MachineIds,
    ) -> String {
        let mut told = BTreeMap::new();
        match self.runtime.list_container_stats().await {
            Ok(all) => {
                for stats in all {
                    if let Some(attributes) = &stats.attributes {
                        told.insert(attributes.id.clone(), stats);
                    }
                }
            }
            // What containers take up on disks is all that is missing then.
            Err(error) => tracing::debug!(%error, "the runtime does not tell about containers"),
        }
        let mut series = Series { now: self.now(), families: BTreeMap::new() };
        let failed = match self.groups_into(&mut series, pods, node, told) {
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
        families.extend(self.machine(ids));
        text::render(families)
    }

    fn machine(&self, ids: &MachineIds) -> Vec<Family> {
        let proc = &self.roots.proc;
        let processors = self.processors.get_or_init(|| {
            topology::processors(proc).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot list the processors");
                Processors::default()
            })
        });
        let memory = machine::mem_info(proc);
        if let Err(error) = &memory {
            tracing::error!(%error, "cannot read the machine's memory");
        }
        cadvisor_host::machine(ids, processors, memory.ok().as_ref())
    }

    fn groups_into(
        &self,
        series: &mut Series,
        pods: &[PodStatsInput],
        node: &NodeStatsInput,
        told: BTreeMap<String, v1::ContainerStats>,
    ) -> Result<(), FileError> {
        let groups = Groups::detect(&self.roots.cgroup)?;
        let proc = &self.roots.proc;
        let boot = machine::boot_time(proc)?;
        let mounts = files::read_if_any(&proc.join("self/mountinfo"))?.unwrap_or_default();
        let scrape = Scrape { boot, disks: disk_names(proc)?, mounts, told };
        let root = Labels { id: "/", ..Labels::default() };
        series.usage(root, &node::usage(&groups, proc)?);
        let info = machine::mem_info(proc)?;
        let limits = GroupLimits {
            memory: Some(Limit::At(info.total)),
            swap: Some(Limit::At(info.swap_total)),
            ..groups.limits("/")?
        };
        series.limits(root, &limits);
        series.disk_io(root, &groups.disk_io("/")?, &scrape.disks);
        self.node_fs_into(series, root, &scrape);
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
            series.disk_io(whose, &groups.disk_io(&group.cgroup)?, &scrape.disks);
            series.started(
                whose,
                group.started.or_else(|| groups.started(&group.cgroup, Some(boot))),
            );
        }
        for pod in pods {
            // A pod may go while it is looked at: the others still count.
            if let Err(error) = self.pod_into(series, &groups, pod, &scrape) {
                tracing::warn!(pod = %pod.uid, %error, "cannot measure a pod's control groups");
            }
        }
        Ok(())
    }

    /// The file systems of the node's own files and of writable layers, each once.
    fn node_fs_into(&self, series: &mut Series, root: Labels<'_>, scrape: &Scrape) {
        let own = self.roots.node_fs.to_string_lossy().into_owned();
        let mut paths = BTreeSet::from([own.as_str()]);
        paths.extend(scrape.told.values().filter_map(layer_mount));
        let mut seen = BTreeSet::new();
        for path in paths {
            if let Some((device, fs)) = scrape.room(path, series.now)
                && seen.insert(device.clone())
            {
                series.file_system(root, &device, &fs);
            }
        }
    }

    fn pod_into(
        &self,
        series: &mut Series,
        groups: &Groups,
        pod: &PodStatsInput,
        scrape: &Scrape,
    ) -> Result<(), FileError> {
        let (proc, boot) = (&self.roots.proc, scrape.boot);
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
        series.disk_io(whose, &groups.disk_io(path)?, &scrape.disks);
        series.started(whose, groups.started(path, Some(boot)));
        if let Some(sandbox) = &found.sandbox {
            let id = absolute(sandbox);
            let whose = Labels { id: &id, name: container_id(&id), ..whose };
            series.usage(whose, &groups.usage(sandbox)?);
            let pids = groups.processes(sandbox)?;
            series.processes(whose, &pids);
            let network = pids.first().map(|pid| machine::network_of(proc, *pid, series.now));
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
            series.disk_io(whose, &groups.disk_io(path)?, &scrape.disks);
            series.started(whose, container.started.or_else(|| groups.started(path, Some(boot))));
            let pids = groups.processes(path)?;
            series.processes(whose, &pids);
            if let Some(pid) = pids.first() {
                series.open_files(whose, cadvisor_host::open_files(proc, *pid)?);
            }
            layer_into(series, whose, scrape, container.id.as_str());
        }
        Ok(())
    }
}

/// The writable layer of a container, as far as the runtime tells.
fn layer_into(series: &mut Series, whose: Labels<'_>, scrape: &Scrape, id: &str) {
    let Some(stats) = scrape.told.get(id) else { return };
    let (Some(mount), Some(layer)) = (layer_mount(stats), &stats.writable_layer) else { return };
    let used = runtime::fs(layer).used;
    if let (Some((device, room)), Some(_)) = (scrape.room(mount, series.now), used) {
        series.file_system(whose, &device, &Fs { used, ..room });
    }
}

/// Where the file system of a container's writable layer is mounted.
fn layer_mount(stats: &v1::ContainerStats) -> Option<&str> {
    let id = stats.writable_layer.as_ref()?.fs_id.as_ref()?;
    Some(id.mountpoint.as_str()).filter(|mount| !mount.is_empty())
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
