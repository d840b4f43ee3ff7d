//! What control groups have used, in either of the kernel's versions.
//!
//! Reads files below the mount; never writes. Upstream:
//! vendor/github.com/google/cadvisor/lib/container/libcontainer/handler.go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::files::{self, FileError, Limit};
use crate::machine;
use crate::samples::{Cpu, Io, Memory, Pressure, Swap};

/// Groups looked at below one: runtimes make a few per container.
const SUBTREE_MAX: usize = 512;
/// Directories listed in one group.
const CHILDREN_MAX: usize = 10_000;
/// Microseconds in nanoseconds.
const MICRO: u64 = 1000;
/// Version 1 counts user and system time in hundredths of a second.
const TICK_NANOS: u64 = 10_000_000;

/// The control groups of a machine.
#[derive(Debug, Clone)]
pub struct Groups {
    root: PathBuf,
    /// Version 1: where each controller is mounted. Version 2: nothing.
    v1: Option<BTreeMap<String, PathBuf>>,
}

/// What a group has used. What its machine does not count stays absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupUsage {
    /// Processor time.
    pub cpu_nanos: Option<u64>,
    /// Of that, outside the kernel.
    pub user_nanos: Option<u64>,
    /// Of that, in the kernel.
    pub system_nanos: Option<u64>,
    /// Memory charged.
    pub memory: Option<u64>,
    /// File pages not used lately.
    pub inactive_file: Option<u64>,
    /// File pages used lately.
    pub active_file: Option<u64>,
    /// Anonymous memory.
    pub anonymous: Option<u64>,
    /// File pages.
    pub cache: Option<u64>,
    /// File pages mapped by processes.
    pub mapped_file: Option<u64>,
    /// Page faults.
    pub faults: Option<u64>,
    /// Page faults that needed a disk.
    pub major_faults: Option<u64>,
    /// Limit of memory.
    pub memory_limit: Option<Limit>,
    /// Bytes swapped out.
    pub swap: Option<u64>,
    /// Limit of that.
    pub swap_limit: Option<Limit>,
    /// Waiting for the processor.
    pub cpu_pressure: Option<Pressure>,
    /// Waiting for memory.
    pub memory_pressure: Option<Pressure>,
    /// Waiting for disks.
    pub io_pressure: Option<Pressure>,
}

impl GroupUsage {
    /// Memory that cannot be taken back at once.
    pub fn working_set(&self) -> Option<u64> {
        Some(self.memory?.saturating_sub(self.inactive_file.unwrap_or(0)))
    }

    /// Processor time, without a rate.
    pub fn cpu(&self, now: Timestamp) -> Option<Cpu> {
        let core_nanos = Some(self.cpu_nanos?);
        Some(Cpu { time: Some(now), nano_cores: None, core_nanos, pressure: self.cpu_pressure })
    }

    /// Memory.
    pub fn memory(&self, now: Timestamp) -> Option<Memory> {
        let working_set = self.working_set()?;
        Some(Memory {
            time: Some(now),
            available: self.memory_limit.and_then(|limit| limit.left(working_set)),
            usage: self.memory,
            working_set: Some(working_set),
            rss: self.anonymous,
            faults: self.faults,
            major_faults: self.major_faults,
            pressure: self.memory_pressure,
        })
    }

    /// Swap.
    pub fn swap(&self, now: Timestamp) -> Option<Swap> {
        let usage = self.swap?;
        let available = self.swap_limit.and_then(|limit| limit.left(usage));
        Some(Swap { time: Some(now), available, usage: Some(usage) })
    }

    /// Disks.
    pub fn io(&self, now: Timestamp) -> Option<Io> {
        Some(Io { time: Some(now), pressure: Some(self.io_pressure?) })
    }
}

impl Groups {
    /// Looks at what is mounted below `root`.
    pub fn detect(root: &Path) -> Result<Self, FileError> {
        let root = root.to_owned();
        if root.join("cgroup.controllers").exists() {
            return Ok(Self { root, v1: None });
        }
        let read = |source| FileError::Read { path: root.clone(), source };
        let mut mounts = BTreeMap::new();
        for entry in std::fs::read_dir(&root).map_err(read)?.take(CHILDREN_MAX) {
            let entry = entry.map_err(read)?;
            // One mount may be of several controllers: `cpu,cpuacct`.
            for name in entry.file_name().to_string_lossy().split(',') {
                mounts.insert(name.to_owned(), entry.path());
            }
        }
        if !mounts.contains_key("memory") && !mounts.contains_key("cpuacct") {
            return Err(FileError::unexpected(&root, "the mounts of control groups"));
        }
        Ok(Self { root, v1: Some(mounts) })
    }

    /// A group's directory of one controller; `None` if the machine lacks it.
    pub(crate) fn dir(&self, controller: &str, group: &str) -> Option<PathBuf> {
        let mount = match &self.v1 {
            Some(mounts) => mounts.get(controller)?,
            None => &self.root,
        };
        Some(mount.join(group.trim_start_matches('/')))
    }

    /// Is the machine's one tree for all controllers?
    pub fn is_unified(&self) -> bool {
        self.v1.is_none()
    }

    /// Reads a group; nothing known if there is no such group.
    pub fn usage(&self, group: &str) -> Result<GroupUsage, FileError> {
        if self.is_unified() { self.usage_v2(group) } else { self.usage_v1(group) }
    }

    fn usage_v1(&self, group: &str) -> Result<GroupUsage, FileError> {
        let mut usage = GroupUsage::default();
        if let Some(dir) = self.dir("cpuacct", group) {
            usage.cpu_nanos = files::number(&dir.join("cpuacct.usage"))?;
            usage.user_nanos = files::number(&dir.join("cpuacct.usage_user"))?;
            usage.system_nanos = files::number(&dir.join("cpuacct.usage_sys"))?;
            if usage.user_nanos.is_none() {
                let text = files::read_if_any(&dir.join("cpuacct.stat"))?.unwrap_or_default();
                let nanos = |key| files::keyed(&text, key)?.checked_mul(TICK_NANOS);
                (usage.user_nanos, usage.system_nanos) = (nanos("user"), nanos("system"));
            }
        }
        let Some(dir) = self.dir("memory", group) else { return Ok(usage) };
        usage.memory = files::number(&dir.join("memory.usage_in_bytes"))?;
        usage.memory_limit = files::limit(&dir.join("memory.limit_in_bytes"))?;
        if let Some(text) = files::read_if_any(&dir.join("memory.stat"))? {
            usage.inactive_file = files::keyed(&text, "total_inactive_file");
            usage.active_file = files::keyed(&text, "total_active_file");
            usage.anonymous = files::keyed(&text, "total_rss");
            usage.cache = files::keyed(&text, "total_cache");
            usage.mapped_file = files::keyed(&text, "total_mapped_file");
            usage.faults = files::keyed(&text, "total_pgfault");
            usage.major_faults = files::keyed(&text, "total_pgmajfault");
            usage.swap = files::keyed(&text, "total_swap");
        }
        // The limit is of memory and swap together.
        let both = files::limit(&dir.join("memory.memsw.limit_in_bytes"))?;
        usage.swap_limit = match (both, usage.memory_limit) {
            (Some(Limit::At(both)), Some(Limit::At(memory))) => {
                Some(Limit::At(both.saturating_sub(memory)))
            }
            (both, _) => both.map(|_| Limit::None),
        };
        Ok(usage)
    }

    fn usage_v2(&self, group: &str) -> Result<GroupUsage, FileError> {
        let dir = self.root.join(group.trim_start_matches('/'));
        let mut usage = GroupUsage::default();
        if let Some(text) = files::read_if_any(&dir.join("cpu.stat"))? {
            let nanos = |key| files::keyed(&text, key)?.checked_mul(MICRO);
            usage.cpu_nanos = nanos("usage_usec");
            usage.user_nanos = nanos("user_usec");
            usage.system_nanos = nanos("system_usec");
        }
        if let Some(text) = files::read_if_any(&dir.join("memory.stat"))? {
            usage.inactive_file = files::keyed(&text, "inactive_file");
            usage.active_file = files::keyed(&text, "active_file");
            usage.anonymous = files::keyed(&text, "anon");
            usage.cache = files::keyed(&text, "file");
            usage.mapped_file = files::keyed(&text, "file_mapped");
            usage.faults = files::keyed(&text, "pgfault");
            usage.major_faults = files::keyed(&text, "pgmajfault");
        }
        usage.memory = files::number(&dir.join("memory.current"))?;
        usage.memory_limit = files::limit(&dir.join("memory.max"))?;
        usage.swap = files::number(&dir.join("memory.swap.current"))?;
        usage.swap_limit = files::limit(&dir.join("memory.swap.max"))?;
        usage.cpu_pressure = machine::pressure(&dir.join("cpu.pressure"))?;
        usage.memory_pressure = machine::pressure(&dir.join("memory.pressure"))?;
        usage.io_pressure = machine::pressure(&dir.join("io.pressure"))?;
        Ok(usage)
    }

    /// The tree whose directories are walked.
    fn tree(&self, group: &str) -> Option<PathBuf> {
        self.dir("memory", group).or_else(|| self.dir("cpuacct", group))
    }

    /// Paths of the groups right below one, sorted. None if there is no such group.
    pub fn children(&self, group: &str) -> Vec<String> {
        let Some(dir) = self.tree(group) else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        let mut all = Vec::new();
        for entry in entries.take(CHILDREN_MAX).filter_map(Result::ok) {
            let name = entry.file_name();
            if let (Some(name), Ok(true)) = (name.to_str(), entry.file_type().map(|t| t.is_dir())) {
                all.push(format!("{}/{name}", group.trim_end_matches('/')));
            }
        }
        all.sort();
        all
    }

    /// Processes in a group and below it.
    pub fn processes(&self, group: &str) -> Result<Vec<i32>, FileError> {
        let mut groups = vec![group.to_owned()];
        let (mut next, mut pids) = (0, Vec::new());
        while let Some(here) = groups.get(next).cloned() {
            next += 1;
            let Some(dir) = self.tree(&here) else { break };
            let text = files::read_if_any(&dir.join("cgroup.procs"))?.unwrap_or_default();
            // 0 stands for a process outside our view.
            pids.extend(
                text.lines().filter_map(|line| line.parse().ok()).filter(|pid: &i32| *pid > 0),
            );
            let room = SUBTREE_MAX.saturating_sub(groups.len());
            groups.extend(self.children(&here).into_iter().take(room));
        }
        Ok(pids)
    }

    /// When a group was made, as far as its directory tells; not before `boot`.
    pub fn started(&self, group: &str, boot: Option<Timestamp>) -> Option<Timestamp> {
        let dir = self.tree(group)?;
        // The directory's own time changes whenever a group is made in it.
        let steady = if self.is_unified() { "cgroup.events" } else { "cgroup.clone_children" };
        let times = [dir.clone(), dir.join(steady)].into_iter().filter_map(|path| {
            Timestamp::try_from(std::fs::metadata(path).ok()?.modified().ok()?).ok()
        });
        times.min().max(boot.filter(|_| dir.exists()))
    }
}
