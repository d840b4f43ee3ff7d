//! A runtime that tells what it was told to, and directories like the kernel's.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use cri::{CallError, EventStream, v1};

type Answer<T> = Result<T, CallError>;

/// Answers the calls about usage, and refuses all others.
#[derive(Default)]
pub struct Runtime {
    pub containers: Vec<v1::ContainerStats>,
    pub containers_fail: bool,
    /// `None`: the runtime does not have the call.
    pub sandboxes: Option<Vec<v1::PodSandboxStats>>,
    pub images: Option<v1::ImageFsInfoResponse>,
    pub calls: Mutex<Vec<&'static str>>,
}

fn refused<T>(call: &'static str) -> Answer<T> {
    Err(CallError::unimplemented(call, ""))
}

impl Runtime {
    fn note(&self, call: &'static str) {
        self.calls.lock().expect("no panic before").push(call);
    }
}

#[async_trait]
impl cri::Runtime for Runtime {
    async fn version(&self) -> Answer<v1::VersionResponse> {
        refused("Version")
    }
    async fn status(&self) -> Answer<v1::StatusResponse> {
        refused("Status")
    }
    async fn runtime_config(&self) -> Answer<v1::RuntimeConfigResponse> {
        refused("RuntimeConfig")
    }
    async fn run_pod_sandbox(&self, _: v1::PodSandboxConfig, _: &str) -> Answer<String> {
        refused("RunPodSandbox")
    }
    async fn stop_pod_sandbox(&self, _: &str) -> Answer<()> {
        refused("StopPodSandbox")
    }
    async fn remove_pod_sandbox(&self, _: &str) -> Answer<()> {
        refused("RemovePodSandbox")
    }
    async fn pod_sandbox_status(&self, _: &str) -> Answer<v1::PodSandboxStatus> {
        refused("PodSandboxStatus")
    }
    async fn list_pod_sandbox(
        &self,
        _: Option<v1::PodSandboxFilter>,
    ) -> Answer<Vec<v1::PodSandbox>> {
        refused("ListPodSandbox")
    }
    async fn create_container(
        &self,
        _: &str,
        _: v1::ContainerConfig,
        _: v1::PodSandboxConfig,
    ) -> Answer<String> {
        refused("CreateContainer")
    }
    async fn start_container(&self, _: &str) -> Answer<()> {
        refused("StartContainer")
    }
    async fn stop_container(&self, _: &str, _: Duration) -> Answer<()> {
        refused("StopContainer")
    }
    async fn remove_container(&self, _: &str) -> Answer<()> {
        refused("RemoveContainer")
    }
    async fn list_containers(&self, _: Option<v1::ContainerFilter>) -> Answer<Vec<v1::Container>> {
        refused("ListContainers")
    }
    async fn container_status(&self, _: &str) -> Answer<v1::ContainerStatus> {
        refused("ContainerStatus")
    }
    async fn exec_sync(
        &self,
        _: &str,
        _: Vec<String>,
        _: Option<Duration>,
    ) -> Answer<v1::ExecSyncResponse> {
        refused("ExecSync")
    }
    async fn exec(&self, _: v1::ExecRequest) -> Answer<String> {
        refused("Exec")
    }
    async fn reopen_container_log(&self, _: &str) -> Answer<()> {
        refused("ReopenContainerLog")
    }
    async fn list_container_stats(&self) -> Answer<Vec<v1::ContainerStats>> {
        self.note("ListContainerStats");
        if self.containers_fail {
            return refused("ListContainerStats");
        }
        Ok(self.containers.clone())
    }
    async fn list_pod_sandbox_stats(
        &self,
        _: Option<v1::PodSandboxStatsFilter>,
    ) -> Answer<Vec<v1::PodSandboxStats>> {
        self.note("ListPodSandboxStats");
        self.sandboxes.clone().ok_or_else(|| CallError::unimplemented("ListPodSandboxStats", ""))
    }
    async fn list_images(&self) -> Answer<Vec<v1::Image>> {
        refused("ListImages")
    }
    async fn image_status(&self, _: v1::ImageSpec) -> Answer<Option<v1::Image>> {
        refused("ImageStatus")
    }
    async fn image_fs_info(&self) -> Answer<v1::ImageFsInfoResponse> {
        self.note("ImageFsInfo");
        self.images.clone().ok_or_else(|| CallError::unimplemented("ImageFsInfo", ""))
    }
    async fn pull_image(
        &self,
        _: v1::ImageSpec,
        _: Option<v1::AuthConfig>,
        _: Option<v1::PodSandboxConfig>,
    ) -> Answer<String> {
        refused("PullImage")
    }
    async fn events(&self) -> Answer<EventStream> {
        refused("GetContainerEvents")
    }
}

/// Writes a file and the directories above it.
pub fn write(root: &Path, path: &str, text: &str) -> anyhow::Result<()> {
    let path = root.join(path);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    Ok(std::fs::write(path, text)?)
}

/// `/proc` of a machine with 1 GiB of memory, 1 MiB of swap.
pub fn proc(root: &Path) -> anyhow::Result<()> {
    write(
        root,
        "meminfo",
        "MemTotal: 1048576 kB\nMemFree: 9 kB\nSwapTotal: 1024 kB\nSwapFree: 1000 kB\n",
    )?;
    write(root, "stat", "cpu  1 2 3\nbtime 1600000000\n")?;
    write(root, "loadavg", "0.10 0.20 0.30 2/345 6789\n")?;
    write(root, "sys/kernel/pid_max", "4194304\n")?;
    write(root, "sys/kernel/threads-max", "30000\n")?;
    let dev = |bytes: u64| {
        format!(
            "a|b\nc|d\n    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n  eth0: {bytes} 1 2 0 0 0 0 0 77 1 3 0 0 0 0 0\n"
        )
    };
    write(root, "1/net/dev", &dev(1_000_000))?;
    write(root, "400/net/dev", &dev(4000))
}

/// A group of version 1 in all its trees.
pub fn group_v1(root: &Path, group: &str, cpu: u64, memory: u64, pids: &str) -> anyhow::Result<()> {
    let cpu_dir = format!("cpu,cpuacct/{group}");
    write(root, &format!("{cpu_dir}/cpuacct.usage"), &format!("{cpu}\n"))?;
    write(root, &format!("{cpu_dir}/cpuacct.stat"), "user 3\nsystem 4\n")?;
    write(root, &format!("{cpu_dir}/cpu.shares"), "256\n")?;
    write(root, &format!("{cpu_dir}/cpu.cfs_quota_us"), "50000\n")?;
    write(root, &format!("{cpu_dir}/cpu.cfs_period_us"), "100000\n")?;
    write(
        root,
        &format!("{cpu_dir}/cpu.stat"),
        "nr_periods 7\nnr_throttled 2\nthrottled_time 1500000000\n",
    )?;
    let dir = format!("memory/{group}");
    write(root, &format!("{dir}/memory.usage_in_bytes"), &format!("{memory}\n"))?;
    write(root, &format!("{dir}/memory.limit_in_bytes"), "1000000\n")?;
    write(root, &format!("{dir}/memory.memsw.limit_in_bytes"), "1500000\n")?;
    write(
        root,
        &format!("{dir}/memory.stat"),
        "rss 1\ntotal_cache 11\ntotal_rss 12\ntotal_mapped_file 13\ntotal_swap 14\ntotal_pgfault 15\ntotal_pgmajfault 16\ntotal_inactive_file 1000\ntotal_active_file 17\n",
    )?;
    write(root, &format!("{dir}/cgroup.clone_children"), "0\n")?;
    write(root, &format!("{dir}/cgroup.procs"), pids)
}

/// A group of version 2. The root has no `memory.current`.
pub fn group_v2(
    root: &Path,
    group: &str,
    cpu_us: u64,
    memory: Option<u64>,
    pids: &str,
) -> anyhow::Result<()> {
    let file = |name: &str| format!("{group}/{name}").trim_start_matches('/').to_owned();
    write(
        root,
        &file("cpu.stat"),
        &format!(
            "usage_usec {cpu_us}\nuser_usec 3\nsystem_usec 4\nnr_periods 7\nnr_throttled 2\nthrottled_usec 5\n"
        ),
    )?;
    write(
        root,
        &file("memory.stat"),
        "anon 30000\nfile 20000\nfile_mapped 13\ninactive_file 1000\nactive_file 17\npgfault 15\npgmajfault 16\n",
    )?;
    write(
        root,
        &file("cpu.pressure"),
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    )?;
    if let Some(memory) = memory {
        write(root, &file("memory.current"), &format!("{memory}\n"))?;
        write(root, &file("memory.max"), "max\n")?;
        write(root, &file("memory.min"), "0\n")?;
        write(root, &file("memory.swap.current"), "14\n")?;
        write(root, &file("memory.swap.max"), "100\n")?;
        write(root, &file("cpu.weight"), "100\n")?;
        write(root, &file("cpu.max"), "max 100000\n")?;
    }
    write(root, &file("cgroup.events"), "populated 1\n")?;
    write(root, &file("cgroup.procs"), pids)
}
