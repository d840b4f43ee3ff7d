//! Machines to measure: directories that mimic control groups and /proc.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cri::v1;
use jiff::Timestamp;
use kubelet_model::{ContainerId, ContainerName, PodUid, SandboxId};
use node_stats::{
    Clock, ContainerInput, Fs, NodeStatsInput, PodStatsInput, Roots, Stats, SystemGroup,
    VolumeStats,
};
use serde_json::{Value, json};

use crate::fake::{self, Runtime};

const NOW: i64 = 1_700_000_000;

pub(crate) struct Machine {
    pub(crate) dir: tempfile::TempDir,
    seconds: Arc<AtomicI64>,
}

impl Machine {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        fake::proc(&dir.path().join("proc"))?;
        std::fs::create_dir(dir.path().join("cgroup"))?;
        Ok(Self { dir, seconds: Arc::new(AtomicI64::new(NOW)) })
    }
    pub(crate) fn cgroup(&self) -> PathBuf {
        self.dir.path().join("cgroup")
    }
    pub(crate) fn stats(&self, runtime: &Arc<Runtime>) -> Stats {
        let roots = Roots {
            cgroup: self.cgroup(),
            proc: self.dir.path().join("proc"),
            node_fs: self.dir.path().to_owned(),
        };
        let seconds = self.seconds.clone();
        let now = move || Timestamp::constant(seconds.load(Ordering::Relaxed), 0);
        let clock: Clock = Arc::new(now);
        Stats::new(runtime.clone(), roots, clock)
    }
    fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

pub(crate) fn pod(cgroup: Option<&str>) -> PodStatsInput {
    PodStatsInput {
        uid: PodUid::new("u1"),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        started: Timestamp::from_second(NOW - 100).ok(),
        sandbox: Some(SandboxId::new("s1")),
        containers: vec![ContainerInput {
            name: ContainerName::new("app"),
            id: ContainerId::new("c1"),
            image: "registry/app:1".to_owned(),
            started: Timestamp::from_second(NOW - 90).ok(),
        }],
        volumes: Vec::new(),
        cgroup: cgroup.map(str::to_owned),
        log_dir: None,
        etc_hosts: None,
    }
}

pub(crate) fn node() -> NodeStatsInput {
    let group = |name: &str, cgroup: &str| SystemGroup {
        name: name.to_owned(),
        cgroup: cgroup.to_owned(),
        started: None,
    };
    let system = vec![group("pods", "/kubepods"), group("runtime", "/none")];
    NodeStatsInput { name: "n1".to_owned(), system }
}

pub(crate) fn count(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

pub(crate) fn told(id: &str, cpu: u64) -> v1::ContainerStats {
    let attributes = v1::ContainerAttributes { id: id.to_owned(), ..Default::default() };
    let at = NOW * 1_000_000_000;
    v1::ContainerStats {
        attributes: Some(attributes),
        cpu: Some(v1::CpuUsage {
            timestamp: at,
            usage_core_nano_seconds: count(cpu),
            ..Default::default()
        }),
        memory: Some(v1::MemoryUsage {
            timestamp: at,
            working_set_bytes: count(77),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn v1_machine() -> anyhow::Result<Machine> {
    let machine = Machine::new()?;
    let root = machine.cgroup();
    fake::group_v1(&root, "", 9_000_000_000, 500_000_000, "1\n")?;
    fake::group_v1(&root, "kubepods", 8_000_000_000, 400_000, "")?;
    fake::group_v1(&root, "kubepods/podu1", 5_000_000_000, 300_000, "")?;
    fake::group_v1(&root, "kubepods/podu1/c1", 4_000_000_000, 200_000, "500\n501\n")?;
    // A container that ended and is not yet cleaned up.
    fake::group_v1(&root, "kubepods/podu1/c0", 1_000_000_000, 50_000, "")?;
    fake::group_v1(&root, "kubepods/podu1/s1", 1_000_000_000, 50_000, "400\n")?;
    Ok(machine)
}

fn at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or(Value::Null)
}

fn check(value: &Value, table: &[(&str, Value)]) {
    for (pointer, expected) in table {
        assert_eq!(&at(value, pointer), expected, "{pointer} of {value:#}");
    }
}

#[tokio::test]
async fn a_full_summary_of_version_1() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let logs = machine.dir.path().join("logs");
    fake::write(&logs, "app/0.log", &"x".repeat(5000))?;
    fake::write(&logs, "other.log", "y")?;
    let mut pod = pod(Some("/kubepods/podu1"));
    pod.log_dir = Some(logs);
    let volume = |name: &str, used, ephemeral, claim| VolumeStats {
        name: name.to_owned(),
        fs: Fs { used: Some(used), inodes_used: Some(3), ..Fs::default() },
        claim,
        abnormal: None,
        ephemeral,
    };
    let claim = Some(("shop".to_owned(), "data".to_owned()));
    pod.volumes = vec![volume("tmp", 1 << 20, true, None), volume("data", 1 << 30, false, claim)];
    let mut container = told("c1", 1);
    let layer = v1::FilesystemUsage {
        timestamp: NOW * 1_000_000_000,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: "/".to_owned() }),
        used_bytes: count(8192),
        inodes_used: count(5),
    };
    container.writable_layer = Some(layer.clone());
    let images = v1::ImageFsInfoResponse {
        image_filesystems: vec![layer],
        container_filesystems: Vec::new(),
    };
    let runtime = Arc::new(Runtime {
        containers: vec![container, told("stranger", 9)],
        images: Some(images),
        ..Runtime::default()
    });
    let stats = machine.stats(&runtime);
    let found = stats.summary(&[pod], &node(), false).await?;
    check(
        &found,
        &[
            ("/node/nodeName", json!("n1")),
            ("/node/startTime", json!("2020-09-13T12:26:40Z")),
            ("/node/cpu/usageCoreNanoSeconds", json!(9_000_000_000u64)),
            ("/node/cpu/usageNanoCores", Value::Null),
            ("/node/memory/usageBytes", json!(500_000_000)),
            ("/node/memory/workingSetBytes", json!(499_999_000)),
            ("/node/memory/availableBytes", json!((1u64 << 30) - 499_999_000)),
            ("/node/swap/swapUsageBytes", json!(24 * 1024)),
            ("/node/swap/swapAvailableBytes", json!(1000 * 1024)),
            ("/node/network/name", json!("eth0")),
            ("/node/network/rxBytes", json!(1_000_000)),
            ("/node/rlimit/maxpid", json!(30_000)),
            ("/node/rlimit/curproc", json!(345)),
            ("/node/runtime/imageFs/usedBytes", json!(8192)),
            ("/node/runtime/containerFs/usedBytes", json!(8192)),
            ("/node/systemContainers/0/name", json!("pods")),
            ("/node/systemContainers/0/cpu/usageCoreNanoSeconds", json!(8_000_000_000u64)),
            ("/node/systemContainers/1", Value::Null),
            ("/pods/0/podRef", json!({ "name": "web", "namespace": "shop", "uid": "u1" })),
            ("/pods/0/startTime", json!("2023-11-14T22:11:40Z")),
            ("/pods/0/cpu/usageCoreNanoSeconds", json!(5_000_000_000u64)),
            ("/pods/0/memory/workingSetBytes", json!(299_000)),
            ("/pods/0/memory/availableBytes", json!(701_000)),
            ("/pods/0/memory/rssBytes", json!(12)),
            ("/pods/0/memory/pageFaults", json!(15)),
            ("/pods/0/memory/majorPageFaults", json!(16)),
            ("/pods/0/swap/swapUsageBytes", json!(14)),
            ("/pods/0/swap/swapAvailableBytes", json!(499_986)),
            ("/pods/0/network/rxBytes", json!(4000)),
            ("/pods/0/network/txErrors", json!(3)),
            ("/pods/0/network/interfaces/1", Value::Null),
            ("/pods/0/process_stats/process_count", json!(2)),
            ("/pods/0/containers/0/name", json!("app")),
            ("/pods/0/containers/0/cpu/usageCoreNanoSeconds", json!(4_000_000_000u64)),
            ("/pods/0/containers/0/rootfs/usedBytes", json!(8192)),
            ("/pods/0/containers/0/logs/inodesUsed", json!(1)),
            ("/pods/0/containers/0/io", Value::Null),
            ("/pods/0/volume/1/pvcRef", json!({ "name": "data", "namespace": "shop" })),
            ("/pods/0/ephemeral-storage/inodesUsed", json!(5 + 1 + 3 + 1)),
            ("/pods/1", Value::Null),
        ],
    );
    let used = at(&found, "/pods/0/ephemeral-storage/usedBytes").as_u64().unwrap_or(0);
    assert!(((1 << 20) + 8192 + 5001..1 << 30).contains(&used), "{used}");
    let calls = runtime.calls.lock().expect("no panic before").clone();
    assert_eq!(calls, ["ListContainerStats", "ImageFsInfo"], "groups told all the rest");
    Ok(())
}

#[tokio::test]
async fn rates_need_two_samples() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let runtime = Arc::new(Runtime { containers: vec![told("c1", 1)], ..Runtime::default() });
    let stats = machine.stats(&runtime);
    let pods = [pod(Some("kubepods/podu1"))];
    let first = stats.summary(&pods, &node(), true).await?;
    assert_eq!(at(&first, "/pods/0/cpu/usageNanoCores"), Value::Null);
    machine.pass(10);
    fake::group_v1(&machine.cgroup(), "kubepods/podu1", 7_000_000_000, 300_000, "")?;
    fake::group_v1(&machine.cgroup(), "kubepods/podu1/c1", 5_000_000_000, 200_000, "")?;
    let second = stats.summary(&pods, &node(), true).await?;
    check(
        &second,
        &[
            ("/pods/0/cpu/usageNanoCores", json!(200_000_000)),
            ("/pods/0/containers/0/cpu/usageNanoCores", json!(100_000_000)),
            ("/node/cpu/usageNanoCores", json!(0)),
            // The short summary leaves these out.
            ("/node/fs", Value::Null),
            ("/node/rlimit", Value::Null),
            ("/pods/0/network", Value::Null),
            ("/pods/0/ephemeral-storage", Value::Null),
            ("/pods/0/containers/0/rootfs", Value::Null),
        ],
    );
    Ok(())
}

#[tokio::test]
async fn a_summary_of_version_2() -> anyhow::Result<()> {
    let machine = Machine::new()?;
    let root = machine.cgroup();
    fake::write(&root, "cgroup.controllers", "cpu memory pids\n")?;
    fake::group_v2(&root, "", 9_000_000, None, "1\n")?;
    let slice = "kubepods.slice/kubepods-podu1.slice";
    fake::group_v2(&root, slice, 5_000_000, Some(60_000), "")?;
    fake::group_v2(
        &root,
        &format!("{slice}/cri-containerd-c1.scope"),
        4_000_000,
        Some(50_000),
        "",
    )?;
    fake::group_v2(&root, &format!("{slice}/cri-containerd-c1.scope/init"), 1, Some(1), "500\n")?;
    fake::group_v2(&root, &format!("{slice}/cri-containerd-s1.scope"), 1, Some(1), "400\n")?;
    let runtime = Arc::new(Runtime::default());
    let stats = machine.stats(&runtime);
    let found = stats.summary(&[pod(Some(slice))], &node(), false).await?;
    check(
        &found,
        &[
            ("/node/cpu/usageCoreNanoSeconds", json!(9_000_000_000u64)),
            ("/node/memory/usageBytes", json!(50_000)),
            ("/node/memory/workingSetBytes", json!(49_000)),
            ("/node/memory/availableBytes", json!((1u64 << 30) - 49_000)),
            ("/node/cpu/psi/some/avg10", json!(1.5)),
            ("/node/runtime", json!({})),
            ("/pods/0/cpu/usageCoreNanoSeconds", json!(5_000_000_000u64)),
            ("/pods/0/memory/workingSetBytes", json!(59_000)),
            ("/pods/0/memory/availableBytes", Value::Null),
            ("/pods/0/swap/swapAvailableBytes", json!(86)),
            ("/pods/0/process_stats/process_count", json!(1)),
            ("/pods/0/network/rxBytes", json!(4000)),
            ("/pods/0/containers/0/memory/workingSetBytes", json!(49_000)),
            ("/pods/0/containers/0/rootfs", Value::Null),
        ],
    );
    Ok(())
}

#[tokio::test]
async fn the_runtime_fills_gaps() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let metadata = v1::PodSandboxMetadata { uid: "u1".to_owned(), ..Default::default() };
    let attributes = v1::PodSandboxAttributes { metadata: Some(metadata), ..Default::default() };
    let eth0 = v1::NetworkInterfaceUsage {
        name: "eth0".to_owned(),
        rx_bytes: count(11),
        ..Default::default()
    };
    let linux = v1::LinuxPodSandboxStats {
        network: Some(v1::NetworkUsage { default_interface: Some(eth0), ..Default::default() }),
        process: Some(v1::ProcessUsage { process_count: count(4), ..Default::default() }),
        ..Default::default()
    };
    let sandbox = v1::PodSandboxStats {
        attributes: Some(attributes),
        linux: Some(linux),
        ..Default::default()
    };
    for sandboxes in [Some(vec![sandbox]), None] {
        let has = sandboxes.is_some();
        let containers = vec![told("c1", 40)];
        let runtime = Arc::new(Runtime { containers, sandboxes, ..Runtime::default() });
        let found = machine.stats(&runtime).summary(&[pod(None)], &node(), false).await?;
        let or_none = |value: Value| if has { value } else { Value::Null };
        check(
            &found,
            &[
                ("/pods/0/cpu/usageCoreNanoSeconds", json!(40)),
                ("/pods/0/memory/workingSetBytes", json!(77)),
                ("/pods/0/memory/rssBytes", Value::Null),
                ("/pods/0/swap", Value::Null),
                ("/pods/0/network/rxBytes", or_none(json!(11))),
                ("/pods/0/network/txBytes", Value::Null),
                ("/pods/0/process_stats/process_count", or_none(json!(4))),
            ],
        );
    }
    Ok(())
}

#[tokio::test]
async fn pods_that_nobody_knows_are_left_out() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let runtime = Arc::new(Runtime::default());
    let found = machine.stats(&runtime).summary(&[pod(Some("/gone"))], &node(), false).await?;
    assert_eq!(found["pods"], json!([]));
    Ok(())
}

#[tokio::test]
async fn failures_are_told() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let runtime = Arc::new(Runtime { containers_fail: true, ..Runtime::default() });
    let stats = machine.stats(&runtime);
    let error = stats.summary(&[], &node(), true).await.expect_err("the runtime fails");
    assert!(error.to_string().starts_with("failed to list pod stats"), "{error}");
    let text = stats.resource_metrics(&[], &node()).await;
    assert!(text.ends_with("resource_scrape_error 1\n"), "{text}");
    std::fs::write(machine.dir.path().join("proc/meminfo"), "nonsense")?;
    let runtime = Arc::new(Runtime::default());
    let error = machine.stats(&runtime).summary(&[], &node(), true).await.expect_err("no memory");
    assert!(error.to_string().contains("meminfo"), "{error}");
    Ok(())
}

#[tokio::test]
async fn resource_metrics_of_version_1() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let runtime = Arc::new(Runtime::default());
    let pods = [pod(Some("/kubepods/podu1"))];
    let text = machine.stats(&runtime).resource_metrics(&pods, &node()).await;
    let of_app = "{container=\"app\",namespace=\"shop\",pod=\"web\"}";
    for line in [
        "node_cpu_usage_seconds_total 9 1700000000000".to_owned(),
        format!("container_cpu_usage_seconds_total{of_app} 4 1700000000000"),
        format!("container_swap_limit_bytes{of_app} 500000 1700000000000"),
        "resource_scrape_error 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    Ok(())
}

/// The kernel's own files, as they are here.
#[tokio::test]
async fn this_machine() -> anyhow::Result<()> {
    let roots = Roots {
        cgroup: PathBuf::from("/sys/fs/cgroup"),
        proc: PathBuf::from("/proc"),
        node_fs: PathBuf::from("/"),
    };
    let clock: Clock = Arc::new(Timestamp::now);
    let stats = Stats::new(Arc::new(Runtime::default()), roots, clock);
    let node = NodeStatsInput { name: "here".to_owned(), system: Vec::new() };
    let found = stats.measure(&[], &node, false).await?;
    let (cpu, memory) = (found.node.cpu.unwrap_or_default(), found.node.memory.unwrap_or_default());
    assert!(cpu.core_nanos > Some(0), "{cpu:?}");
    assert!(memory.working_set > Some(0) && memory.working_set <= memory.usage, "{memory:?}");
    assert!(memory.available > Some(0), "{memory:?}");
    assert!(found.node.started < Some(Timestamp::now()), "{:?}", found.node.started);
    let rest = found.node.rest.unwrap_or_default();
    assert!(rest.tasks > Some(0) && rest.tasks < rest.tasks_max, "{rest:?}");
    assert!(rest.fs.capacity > Some(0), "{rest:?}");
    let text = stats.resource_metrics(&[], &node).await;
    assert!(text.contains("\nnode_cpu_usage_seconds_total "), "{text}");
    Ok(())
}
