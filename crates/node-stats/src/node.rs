//! What the node as a whole uses.
//!
//! Upstream: pkg/kubelet/server/stats/summary.go, summary_sys_containers.go.

use std::path::Path;

use cri::v1;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::disks;
use crate::files::{FileError, Limit};
use crate::groups::{GroupUsage, Groups};
use crate::input::{Roots, SystemGroup};
use crate::machine::{self, MemInfo};
use crate::pods::rated;
use crate::rates::Sampler;
use crate::runtime;
use crate::samples::{
    ContainerSample, Cpu, Fs, Io, Memory, Network, Swap, put, put_usage, time_json, timed,
};

/// The node.
#[derive(Debug, Clone, Default)]
pub struct NodeSample {
    /// Its name.
    pub name: String,
    /// When it was started.
    pub started: Option<Timestamp>,
    /// Groups of the system's.
    pub system: Vec<ContainerSample>,
    /// Processor time.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Disks.
    pub io: Option<Io>,
    /// Swap.
    pub swap: Option<Swap>,
    /// What only the full summary tells.
    pub rest: Option<NodeRest>,
}

/// What only the full summary tells of a node.
#[derive(Debug, Clone, Default)]
pub struct NodeRest {
    /// Its networks.
    pub network: Option<Network>,
    /// Its own file system.
    pub fs: Fs,
    /// Where images are.
    pub image_fs: Option<Fs>,
    /// Where writable layers are.
    pub container_fs: Option<Fs>,
    /// When tasks were counted.
    pub tasks_time: Option<Timestamp>,
    /// Tasks it may have.
    pub tasks_max: Option<u64>,
    /// Tasks it has.
    pub tasks: Option<u64>,
}

/// The root group does not count all of the node: its memory's limit is the node's
/// memory, its swap the node's, and in version 2 it counts what it has only in parts.
pub(crate) fn root_usage(mut usage: GroupUsage, info: &MemInfo) -> GroupUsage {
    if usage.memory.is_none()
        && let (Some(anonymous), Some(cache)) = (usage.anonymous, usage.cache)
    {
        usage.memory = Some(anonymous.saturating_add(cache));
    }
    usage.memory_limit = Some(Limit::At(info.total));
    usage.swap = Some(info.swap_total.saturating_sub(info.swap_free));
    usage.swap_limit = Some(Limit::At(info.swap_total));
    usage
}

/// The node's processor time, memory, swap and pressure.
pub(crate) fn usage(groups: &Groups, proc: &Path) -> Result<GroupUsage, FileError> {
    let mut usage = root_usage(groups.usage("/")?, &machine::mem_info(proc)?);
    let pressure = |name| machine::pressure(&proc.join("pressure").join(name));
    usage.cpu_pressure = usage.cpu_pressure.or(pressure("cpu")?);
    usage.memory_pressure = usage.memory_pressure.or(pressure("memory")?);
    usage.io_pressure = usage.io_pressure.or(pressure("io")?);
    Ok(usage)
}

/// The node's part of the short summary.
pub(crate) fn sample(
    groups: &Groups,
    proc: &Path,
    name: &str,
    system: &[SystemGroup],
    now: Timestamp,
    sampler: &mut Sampler,
) -> Result<NodeSample, FileError> {
    let usage = usage(groups, proc)?;
    let boot = machine::boot_time(proc)?;
    let mut found = Vec::new();
    for group in system {
        match groups.usage(&group.cgroup) {
            Ok(usage) => found.extend(system_sample(groups, group, usage, boot, now, sampler)),
            Err(error) => {
                tracing::warn!(name = group.name, %error, "cannot read a group of the system");
            }
        }
    }
    Ok(NodeSample {
        name: name.to_owned(),
        started: Some(boot),
        system: found,
        cpu: rated(usage.cpu(now), "node", sampler),
        memory: usage.memory(now),
        io: usage.io(now),
        swap: usage.swap(now),
        rest: None,
    })
}

/// A group of the system's; `None` if there is no such group.
fn system_sample(
    groups: &Groups,
    group: &SystemGroup,
    usage: GroupUsage,
    boot: Timestamp,
    now: Timestamp,
    sampler: &mut Sampler,
) -> Option<ContainerSample> {
    let cpu = rated(usage.cpu(now), &format!("system {}", group.name), sampler);
    let memory = usage.memory(now);
    if cpu.is_none() && memory.is_none() {
        return None;
    }
    Some(ContainerSample {
        name: group.name.clone(),
        started: group.started.or_else(|| groups.started(&group.cgroup, Some(boot))),
        cpu,
        memory,
        swap: usage.swap(now),
        io: usage.io(now),
        ..ContainerSample::default()
    })
}

/// What only the full summary tells. `fs` is the node's own file system.
pub(crate) fn rest(
    roots: &Roots,
    fs: Fs,
    image_fs: Option<&v1::ImageFsInfoResponse>,
    now: Timestamp,
) -> Result<NodeRest, FileError> {
    // Upstream knows but one image file system as well.
    let images = image_fs.and_then(|info| info.image_filesystems.first());
    let layers = image_fs.and_then(|info| info.container_filesystems.first()).or(images);
    let network = machine::network_of(&roots.proc, 1, now).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the node's network");
        None
    });
    Ok(NodeRest {
        network,
        fs,
        image_fs: images.map(|usage| runtime_fs(usage, now)),
        container_fs: layers.map(|usage| runtime_fs(usage, now)),
        tasks_time: Some(now),
        tasks_max: machine::pid_max(&roots.proc)?,
        tasks: Some(machine::tasks(&roots.proc)?),
    })
}

/// What the runtime says is used, with the room of the file system it is on, if that
/// is in our sight.
pub(crate) fn runtime_fs(usage: &v1::FilesystemUsage, now: Timestamp) -> Fs {
    let told = runtime::fs(usage);
    let mount = usage.fs_id.as_ref().map(|id| id.mountpoint.as_str()).unwrap_or_default();
    if mount.is_empty() {
        return told;
    }
    match disks::space(Path::new(mount), now) {
        Ok(room) => Fs { time: told.time, ..disks::on(&room, told.used, told.inodes_used) },
        Err(error) => {
            tracing::debug!(mount, %error, "cannot look at a file system of the runtime");
            told
        }
    }
}

impl NodeSample {
    /// As the summary says it.
    pub fn json(&self) -> Value {
        let mut map = Map::new();
        map.insert("nodeName".to_owned(), self.name.as_str().into());
        let system: Vec<Value> = self.system.iter().map(ContainerSample::json).collect();
        put(&mut map, "systemContainers", (!system.is_empty()).then_some(system));
        map.insert("startTime".to_owned(), time_json(self.started));
        let (cpu, memory) = (self.cpu.as_ref(), self.memory.as_ref());
        // As upstream, the short summary does not tell of the node's disks.
        let io = self.io.as_ref().filter(|_| self.rest.is_some());
        put_usage(&mut map, cpu, memory, io, self.swap.as_ref());
        if let Some(rest) = &self.rest {
            rest.fill(&mut map);
        }
        Value::Object(map)
    }
}

impl NodeRest {
    fn fill(&self, map: &mut Map<String, Value>) {
        put(map, "network", self.network.as_ref().map(Network::json));
        map.insert("fs".to_owned(), self.fs.json());
        let mut runtime = Map::new();
        put(&mut runtime, "imageFs", self.image_fs.as_ref().map(Fs::json));
        put(&mut runtime, "containerFs", self.container_fs.as_ref().map(Fs::json));
        map.insert("runtime".to_owned(), json!(runtime));
        let mut tasks = timed(self.tasks_time);
        put(&mut tasks, "maxpid", self.tasks_max);
        put(&mut tasks, "curproc", self.tasks);
        map.insert("rlimit".to_owned(), json!(tasks));
    }
}
