//! Reads all sources and combines them.
//!
//! Owns the samples that rates are made of. Upstream: pkg/kubelet/server/stats.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use cri::{CallError, v1};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::disks;
use crate::files::FileError;
use crate::groups::Groups;
use crate::input::{ContainerInput, NodeStatsInput, PodStatsInput, Roots};
use crate::machine;
use crate::node::{self, NodeSample};
use crate::pods::{self, PodGroups, PodSample};
use crate::rates::Sampler;
use crate::runtime;
use crate::samples::{ContainerSample, Cpu, Fs, Memory, Network};
use crate::topology::Processors;

/// The time of day, from whoever owns it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Why there is no summary.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// The runtime does not tell.
    #[error("failed to list pod stats: {0}")]
    Runtime(#[from] CallError),
    /// The kernel does not tell.
    #[error("failed to get root cgroup stats: {0}")]
    Kernel(#[from] FileError),
    /// A file system of the runtime's cannot be looked at.
    #[error("failed to look at the file system that the runtime names: {path}: {source}")]
    ImageFs {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The node's own file system cannot be looked at.
    #[error("failed to get rootFs stats: {path}: {source}")]
    NodeFs {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What the node and its pods use.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// The node.
    pub node: NodeSample,
    /// Its pods.
    pub pods: Vec<PodSample>,
}

impl Summary {
    /// As `/stats/summary` answers.
    pub fn json(&self) -> Value {
        let pods: Vec<Value> = self.pods.iter().map(PodSample::json).collect();
        json!({ "node": self.node.json(), "pods": pods })
    }
}

/// Measures the node and its pods when asked.
pub struct Stats {
    pub(crate) runtime: Arc<dyn cri::Runtime>,
    pub(crate) roots: Roots,
    clock: Clock,
    sampler: Mutex<Sampler>,
    /// Processors do not change; listing them is dear on large machines.
    pub(crate) processors: OnceLock<Processors>,
}

/// What the runtime said, found by id.
#[derive(Default)]
struct Told {
    containers: BTreeMap<String, v1::ContainerStats>,
    /// By the pod's uid.
    sandboxes: BTreeMap<String, v1::LinuxPodSandboxStats>,
}

/// What is known of one pod before rates.
struct Seen<'a> {
    pod: &'a PodStatsInput,
    groups: PodGroups,
    network: Option<Network>,
    processes: Option<u64>,
}

impl Stats {
    /// Measures through `runtime` and below `roots`.
    pub fn new(runtime: Arc<dyn cri::Runtime>, roots: Roots, clock: Clock) -> Self {
        Self { runtime, roots, clock, sampler: Mutex::default(), processors: OnceLock::new() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The answer of `/stats/summary`.
    pub async fn summary(
        &self,
        pods: &[PodStatsInput],
        node: &NodeStatsInput,
        only_cpu_and_memory: bool,
    ) -> Result<Value, StatsError> {
        Ok(self.measure(pods, node, only_cpu_and_memory).await?.json())
    }

    /// The summary as samples, for those who decide by it.
    pub async fn measure(
        &self,
        pods: &[PodStatsInput],
        node: &NodeStatsInput,
        only_cpu_and_memory: bool,
    ) -> Result<Summary, StatsError> {
        let full = !only_cpu_and_memory;
        let groups = Groups::detect(&self.roots.cgroup)?;
        let mut told = self.containers().await?;
        let image_fs = if full { self.image_fs().await } else { None };
        let now = self.now();
        let mut seen: Vec<Seen<'_>> =
            pods.iter().map(|pod| self.look_at(&groups, pod, full, now)).collect();
        if seen.iter().any(|seen| seen.lacks(full)) {
            told.sandboxes = self.sandboxes().await;
        }
        let node_fs = if full { Some(self.node_fs(now)?) } else { None };

        let mut sampler = self.sampler();
        let mut found = Vec::new();
        for seen in &mut seen {
            let sample = seen.sample(&told, now, &mut sampler);
            let sample = sample.map(|sample| match &node_fs {
                Some(room) => with_storage(sample, seen.pod, &told, room, now),
                None => sample,
            });
            found.extend(sample);
        }
        let (name, system) = (&node.name, &node.system);
        let mut node = node::sample(&groups, &self.roots.proc, name, system, now, &mut sampler)?;
        sampler.forget(i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX));
        drop(sampler);
        if let Some(fs) = node_fs {
            node.rest = Some(node::rest(&self.roots, fs, image_fs.as_ref(), now)?);
        }
        Ok(Summary { node, pods: found })
    }

    /// What pods take up on disks, and nothing else of them, not even the room there is.
    /// The runtime is asked for the layers of containers only where `with_layers`.
    pub async fn storage(
        &self,
        pods: &[PodStatsInput],
        with_layers: bool,
    ) -> Result<Vec<PodSample>, StatsError> {
        let told = if with_layers { self.containers().await? } else { Told::default() };
        let now = self.now();
        let room = Fs { time: Some(now), ..Fs::default() };
        let sample = |pod: &PodStatsInput| {
            let container = |container: &ContainerInput| ContainerSample {
                name: container.name.as_str().to_owned(),
                started: container.started,
                ..ContainerSample::default()
            };
            let sample = PodSample {
                uid: pod.uid.as_str().to_owned(),
                name: pod.name.clone(),
                namespace: pod.namespace.clone(),
                started: pod.started,
                containers: pod.containers.iter().map(container).collect(),
                ..PodSample::default()
            };
            with_storage(sample, pod, &told, &room, now)
        };
        Ok(pods.iter().map(sample).collect())
    }

    /// Do images, or the layers of containers, lie on another file system than the
    /// node's own files?
    pub async fn has_own_image_fs(&self) -> Result<bool, StatsError> {
        let info = self.runtime.image_fs_info().await?;
        let device = |path: &Path| {
            let found = path.metadata().map(|found| found.dev());
            found.map_err(|source| StatsError::ImageFs { path: path.to_owned(), source })
        };
        let own = device(&self.roots.node_fs)?;
        let all = info.image_filesystems.iter().chain(&info.container_filesystems);
        for fs in all.filter_map(|usage| usage.fs_id.as_ref()) {
            if device(Path::new(&fs.mountpoint))? != own {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn containers(&self) -> Result<Told, StatsError> {
        let mut told = Told::default();
        for stats in self.runtime.list_container_stats().await? {
            if let Some(attributes) = &stats.attributes {
                told.containers.insert(attributes.id.clone(), stats);
            }
        }
        Ok(told)
    }

    fn sampler(&self) -> MutexGuard<'_, Sampler> {
        self.sampler.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn node_fs(&self, now: Timestamp) -> Result<Fs, StatsError> {
        let path = &self.roots.node_fs;
        disks::space(path, now).map_err(|source| StatsError::NodeFs { path: path.clone(), source })
    }

    /// A runtime that cannot tell takes only its own part from the summary.
    async fn image_fs(&self) -> Option<v1::ImageFsInfoResponse> {
        match self.runtime.image_fs_info().await {
            Ok(info) => Some(info),
            Err(error) => {
                tracing::warn!(%error, "the runtime does not tell about its file systems");
                None
            }
        }
    }

    /// Only fills gaps, so that a runtime without the call is none the worse.
    async fn sandboxes(&self) -> BTreeMap<String, v1::LinuxPodSandboxStats> {
        let mut all = BTreeMap::new();
        match self.runtime.list_pod_sandbox_stats(None).await {
            Ok(stats) => {
                for one in stats {
                    let uid = one.attributes.and_then(|attributes| attributes.metadata);
                    if let (Some(metadata), Some(linux)) = (uid, one.linux) {
                        all.insert(metadata.uid, linux);
                    }
                }
            }
            Err(error) if error.is_unimplemented() => {
                tracing::debug!(%error, "the runtime does not tell about sandboxes");
            }
            Err(error) => tracing::warn!(%error, "the runtime does not tell about sandboxes"),
        }
        all
    }

    fn look_at<'a>(
        &self,
        groups: &Groups,
        pod: &'a PodStatsInput,
        full: bool,
        now: Timestamp,
    ) -> Seen<'a> {
        let mut seen =
            Seen { pod, groups: PodGroups::read(groups, pod), network: None, processes: None };
        if !full {
            return seen;
        }
        let processes = |path: &str| {
            groups.processes(path).unwrap_or_else(|error| {
                tracing::warn!(pod = %pod.uid, %error, "cannot list the processes of a pod");
                Vec::new()
            })
        };
        // Processes of the sandbox never leave the pod's network; those of
        // containers may.
        let mut pid =
            seen.groups.sandbox.as_deref().and_then(|path| processes(path).first().copied());
        for (path, _) in seen.groups.containers.values() {
            let pids = processes(path);
            pid = pid.or(pids.first().copied());
            seen.processes = Some(seen.processes.unwrap_or(0).saturating_add(pids.len() as u64));
        }
        if let Some(pid) = pid {
            seen.network =
                machine::network_of(&self.roots.proc, pid, now).unwrap_or_else(|error| {
                    tracing::warn!(pod = %pod.uid, %error, "cannot read the network of a pod");
                    None
                });
        }
        seen
    }
}

impl Seen<'_> {
    /// Could the runtime fill a gap?
    fn lacks(&self, full: bool) -> bool {
        let usage = &self.groups.usage;
        let gap = usage.cpu_nanos.is_none() || usage.memory.is_none();
        gap || (full && self.network.is_none())
    }

    /// `None` if nobody knows anything of the pod.
    fn sample(&mut self, told: &Told, now: Timestamp, sampler: &mut Sampler) -> Option<PodSample> {
        let pod = self.pod;
        let mut containers = Vec::new();
        for ContainerInput { name, id, started, .. } in &pod.containers {
            let group = self.groups.containers.get(id.as_str()).map(|(_, usage)| usage);
            let stats = told.containers.get(id.as_str());
            let (name, id) = (name.as_str(), id.as_str());
            containers.extend(pods::container(name, id, *started, group, stats, now, sampler));
        }
        let sandbox = told.sandboxes.get(pod.uid.as_str());
        let usage = &self.groups.usage;
        let key = format!("pod {}", pod.uid);
        let cpu: Option<Cpu> = match usage.cpu(now) {
            Some(cpu) => pods::rated(Some(cpu), &key, sampler),
            None => {
                let told = sandbox.and_then(|sandbox| runtime::cpu(sandbox.cpu.as_ref()?));
                let told = pods::rated(told, &format!("sandbox {}", pod.uid), sampler);
                told.or_else(|| pods::sum_cpu(&containers))
            }
        };
        let memory: Option<Memory> = usage
            .memory(now)
            .or_else(|| runtime::memory(sandbox?.memory.as_ref()?))
            .or_else(|| pods::sum_memory(&containers));
        if containers.is_empty() && cpu.is_none() && memory.is_none() {
            return None;
        }
        Some(PodSample {
            uid: pod.uid.as_str().to_owned(),
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            started: pod.started,
            cpu,
            memory,
            io: usage.io(now).or_else(|| runtime::io(sandbox?.io.as_ref()?)),
            swap: usage.swap(now).or_else(|| pods::sum_swap(&containers)),
            network: self
                .network
                .take()
                .or_else(|| sandbox?.network.as_ref().map(runtime::network)),
            processes: self.processes.or_else(|| runtime::processes(sandbox?.process.as_ref()?)),
            containers,
            ..PodSample::default()
        })
    }
}

/// Adds what the pod takes up on disks.
fn with_storage(
    mut sample: PodSample,
    pod: &PodStatsInput,
    told: &Told,
    room: &Fs,
    now: Timestamp,
) -> PodSample {
    let files_in = |dir: PathBuf| match disks::files_in(&dir) {
        Ok(found) => found.map(|(bytes, inodes)| disks::on(room, bytes, inodes)),
        Err(error) => {
            tracing::warn!(pod = %pod.uid, dir = %dir.display(), %error, "cannot measure logs");
            None
        }
    };
    for container in &mut sample.containers {
        let input = pod.containers.iter().find(|input| input.name.as_str() == container.name);
        let stats = input.and_then(|input| told.containers.get(input.id.as_str()));
        let layer = stats.and_then(|stats| stats.writable_layer.as_ref());
        container.rootfs = layer.map(|usage| node::runtime_fs(usage, now));
        container.logs = pod.log_dir.as_ref().and_then(|dir| files_in(dir.join(&container.name)));
    }
    let mut own: Vec<Fs> = pod.log_dir.clone().and_then(files_in).into_iter().collect();
    if let Some(path) = &pod.etc_hosts {
        match disks::file(path) {
            Ok(None) => {}
            Ok(Some((bytes, inodes))) => own.push(disks::on(room, Some(bytes), Some(inodes))),
            Err(error) => tracing::warn!(pod = %pod.uid, %error, "cannot measure /etc/hosts"),
        }
    }
    sample.ephemeral = Some(pods::ephemeral_storage(room, &sample.containers, &pod.volumes, &own));
    sample.volumes = pod.volumes.clone();
    sample
}
