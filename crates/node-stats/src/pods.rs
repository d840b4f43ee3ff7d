//! What pods use: samples of their groups, the runtime's for the rest.
//!
//! Owns how sources are combined. Upstream: pkg/kubelet/stats/cri_stats_provider.go,
//! pkg/kubelet/stats/helper.go.

use std::collections::BTreeMap;

use cri::v1;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::groups::{GroupUsage, Groups};
use crate::input::{PodStatsInput, VolumeStats};
use crate::rates::Sampler;
use crate::runtime;
use crate::samples::{
    ContainerSample, Cpu, Fs, Io, Memory, Network, Swap, add, put, put_usage, time_json,
};

/// A pod.
#[derive(Debug, Clone, Default)]
pub struct PodSample {
    /// Its uid.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// When its sandbox was made.
    pub started: Option<Timestamp>,
    /// Its containers.
    pub containers: Vec<ContainerSample>,
    /// Processor time of all it runs.
    pub cpu: Option<Cpu>,
    /// Memory of all it runs.
    pub memory: Option<Memory>,
    /// Disks.
    pub io: Option<Io>,
    /// Swap.
    pub swap: Option<Swap>,
    /// Its network.
    pub network: Option<Network>,
    /// Its processes.
    pub processes: Option<u64>,
    /// Its volumes.
    pub volumes: Vec<VolumeStats>,
    /// What it takes up on the node's own file system.
    pub ephemeral: Option<Fs>,
}

/// The groups of a pod and what they have used.
#[derive(Debug, Default)]
pub(crate) struct PodGroups {
    pub(crate) usage: GroupUsage,
    /// Of each container that has one, by its id: path, usage.
    pub(crate) containers: BTreeMap<String, (String, GroupUsage)>,
    /// That of its sandbox.
    pub(crate) sandbox: Option<String>,
}

impl PodGroups {
    /// Reads a pod's group and those below it. A group that cannot be read counts as
    /// absent: it may be on its way out.
    pub(crate) fn read(groups: &Groups, pod: &PodStatsInput) -> Self {
        let Some(path) = &pod.cgroup else { return Self::default() };
        let usage = |path: &str| {
            groups.usage(path).unwrap_or_else(|error| {
                tracing::warn!(pod = %pod.uid, %error, "cannot read a control group of a pod");
                GroupUsage::default()
            })
        };
        let mut all = Self { usage: usage(path), ..Self::default() };
        for child in groups.children(path) {
            let name = child.rsplit('/').next().unwrap_or_default();
            match pod.containers.iter().find(|container| is_of(name, container.id.as_str())) {
                Some(container) => {
                    let found = usage(&child);
                    all.containers.insert(container.id.as_str().to_owned(), (child, found));
                }
                None if pod.sandbox.as_ref().is_some_and(|id| is_of(name, id.as_str())) => {
                    all.sandbox = Some(child);
                }
                // A container on its way out, or of no interest.
                None => {}
            }
        }
        all
    }
}

/// Is a directory that of a container? Runtimes name it `<id>` or `<runtime>-<id>.scope`.
fn is_of(directory: &str, id: &str) -> bool {
    let stem = directory.strip_suffix(".scope").unwrap_or(directory);
    let prefix = stem.strip_suffix(id);
    !id.is_empty() && prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
}

/// Fills in the rate of processor time, unless the source told it.
pub(crate) fn rated(cpu: Option<Cpu>, key: &str, sampler: &mut Sampler) -> Option<Cpu> {
    let mut cpu = cpu?;
    if let (None, Some(time), Some(value)) = (cpu.nano_cores, cpu.time, cpu.core_nanos) {
        let nanos = i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
        cpu.nano_cores = sampler.rate(key, nanos, value);
    }
    Some(cpu)
}

/// A container's processor time, memory, swap and pressure: its group's, else the
/// runtime's. `None` if neither knows the container.
pub(crate) fn container(
    name: &str,
    id: &str,
    started: Option<Timestamp>,
    group: Option<&GroupUsage>,
    stats: Option<&v1::ContainerStats>,
    now: Timestamp,
    sampler: &mut Sampler,
) -> Option<ContainerSample> {
    let of_runtime = stats.and_then(|stats| stats.cpu.as_ref()).and_then(runtime::cpu);
    let cpu = match group.and_then(|group| group.cpu(now)) {
        Some(cpu) => rated(Some(cpu), &format!("container {id}"), sampler),
        None => rated(of_runtime, &format!("runtime {id}"), sampler),
    };
    let memory = group
        .and_then(|group| group.memory(now))
        .or_else(|| runtime::memory(stats?.memory.as_ref()?));
    if cpu.is_none() && memory.is_none() && stats.is_none() {
        return None;
    }
    Some(ContainerSample {
        name: name.to_owned(),
        started,
        cpu,
        memory,
        swap: group
            .and_then(|group| group.swap(now))
            .or_else(|| runtime::swap(stats?.swap.as_ref()?)),
        io: group.and_then(|group| group.io(now)).or_else(|| runtime::io(stats?.io.as_ref()?)),
        rootfs: None,
        logs: None,
    })
}

/// A pod's own sums, where neither its group nor the runtime tells them.
pub(crate) fn sum_cpu(containers: &[ContainerSample]) -> Option<Cpu> {
    let mut sum: Option<Cpu> = None;
    for cpu in containers.iter().filter_map(|container| container.cpu) {
        let so_far = sum.get_or_insert_default();
        so_far.time = so_far.time.max(cpu.time);
        so_far.core_nanos = add(so_far.core_nanos, cpu.core_nanos);
        so_far.nano_cores = add(so_far.nano_cores, cpu.nano_cores);
    }
    sum
}

/// As [`sum_cpu`]. What is available is no sum: one container without a limit has all.
pub(crate) fn sum_memory(containers: &[ContainerSample]) -> Option<Memory> {
    let mut sum: Option<Memory> = None;
    for memory in containers.iter().filter_map(|container| container.memory) {
        let so_far = sum.get_or_insert_default();
        so_far.time = so_far.time.max(memory.time);
        so_far.usage = add(so_far.usage, memory.usage);
        so_far.working_set = add(so_far.working_set, memory.working_set);
        so_far.rss = add(so_far.rss, memory.rss);
        so_far.faults = add(so_far.faults, memory.faults);
        so_far.major_faults = add(so_far.major_faults, memory.major_faults);
    }
    let limited = |c: &ContainerSample| c.memory.is_none_or(|memory| memory.available.is_some());
    if let Some(sum) = &mut sum
        && containers.iter().all(limited)
    {
        for memory in containers.iter().filter_map(|container| container.memory) {
            sum.available = add(sum.available, memory.available);
        }
    }
    sum
}

/// As [`sum_cpu`].
pub(crate) fn sum_swap(containers: &[ContainerSample]) -> Option<Swap> {
    let mut sum: Option<Swap> = None;
    for swap in containers.iter().filter_map(|container| container.swap) {
        let so_far = sum.get_or_insert_default();
        so_far.time = so_far.time.max(swap.time);
        so_far.usage = add(so_far.usage, swap.usage);
        so_far.available = add(so_far.available, swap.available);
    }
    sum
}

/// What a pod takes up on the node's own file system: its containers' layers and
/// logs, its volumes on disk, its own files.
pub(crate) fn ephemeral_storage(
    room: &Fs,
    containers: &[ContainerSample],
    volumes: &[VolumeStats],
    own: &[Fs],
) -> Fs {
    let mut sum = Fs { used: None, inodes_used: None, ..*room };
    let layers = containers.iter().flat_map(|container| [&container.rootfs, &container.logs]);
    let volumes = volumes.iter().filter(|volume| volume.ephemeral).map(|volume| &volume.fs);
    for part in layers.flatten().chain(volumes).chain(own) {
        sum.used = add(sum.used, part.used);
        sum.inodes_used = add(sum.inodes_used, part.inodes_used);
        sum.time = sum.time.max(part.time);
    }
    sum
}

impl PodSample {
    /// As the summary says it.
    pub fn json(&self) -> Value {
        let mut map = Map::new();
        let reference = json!({ "name": self.name, "namespace": self.namespace, "uid": self.uid });
        map.insert("podRef".to_owned(), reference);
        map.insert("startTime".to_owned(), time_json(self.started));
        let containers: Vec<Value> = self.containers.iter().map(ContainerSample::json).collect();
        map.insert("containers".to_owned(), containers.into());
        let (cpu, memory) = (self.cpu.as_ref(), self.memory.as_ref());
        put_usage(&mut map, cpu, memory, self.io.as_ref(), self.swap.as_ref());
        put(&mut map, "network", self.network.as_ref().map(Network::json));
        let volumes: Vec<Value> = self.volumes.iter().map(volume_json).collect();
        put(&mut map, "volume", (!volumes.is_empty()).then_some(volumes));
        put(&mut map, "ephemeral-storage", self.ephemeral.as_ref().map(Fs::json));
        let processes = self.processes.map(|count| json!({ "process_count": count }));
        put(&mut map, "process_stats", processes);
        Value::Object(map)
    }
}

fn volume_json(volume: &VolumeStats) -> Value {
    let mut map = volume.fs.map();
    map.insert("name".to_owned(), volume.name.as_str().into());
    if let Some((namespace, name)) = &volume.claim {
        map.insert("pvcRef".to_owned(), json!({ "name": name, "namespace": namespace }));
    }
    let health = volume.abnormal.map(|abnormal| json!({ "abnormal": abnormal }));
    put(&mut map, "volumeHealthStats", health);
    Value::Object(map)
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
