//! `/metrics/cadvisor` of machines that are directories.

use std::sync::Arc;

use cri::v1;
use node_stats::MachineIds;

use crate::fake::{self, Runtime};
use crate::machines::{Machine, count, node, pod, told, v1_machine};

fn ids() -> MachineIds {
    MachineIds {
        machine_id: "m1".to_owned(),
        system_uuid: "u1".to_owned(),
        boot_id: "b1".to_owned(),
        kernel: "6.1".to_owned(),
        os: "Linux".to_owned(),
    }
}

#[tokio::test]
async fn cadvisor_metrics_of_version_1() -> anyhow::Result<()> {
    let machine = v1_machine()?;
    let at = machine.dir.path().to_owned();
    fake::write(
        &at,
        "cgroup/blkio/kubepods/podu1/c1/blkio.throttle.io_service_bytes_recursive",
        "8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\nTotal 12288\n",
    )?;
    fake::write(&at, "cgroup/memory/kubepods/podu1/c1/memory.oom_control", "oom_kill 2\n")?;
    fake::write(&at, "proc/diskstats", "   8       0 sda 1 2 3\n")?;
    fake::write(&at, "proc/cpuinfo", "processor : 0\nphysical id : 0\ncore id : 0\n")?;
    fake::write(&at, "proc/500/limits", "Max open files  1024  4096  files\n")?;
    fake::write(&at, "proc/self/mountinfo", "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n")?;
    let layer = v1::FilesystemUsage {
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: at.display().to_string() }),
        used_bytes: count(12_345),
        ..Default::default()
    };
    let stats = v1::ContainerStats { writable_layer: Some(layer), ..told("c1", 1) };
    let runtime = Arc::new(Runtime { containers: vec![stats], ..Runtime::default() });
    let pods = [pod(Some("/kubepods/podu1"))];
    let text = machine.stats(&runtime).cadvisor_metrics(&pods, &node(), &ids()).await;
    let of = |container: &str, extra: &str, id: &str, image: &str, name: &str, rest: &str| {
        format!(
            "{{container=\"{container}\",{extra}id=\"{id}\",image=\"{image}\",{rest}name=\"{name}\",namespace=\"shop\",pod=\"web\"}}"
        )
    };
    let app = |extra: &str| of("app", extra, "/kubepods/podu1/c1", "registry/app:1", "c1", "");
    let sandbox = of("", "", "/kubepods/podu1/s1", "", "s1", "interface=\"eth0\",");
    let root = "{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"}";
    let time = "1700000000000";
    for line in [
        format!("container_cpu_usage_seconds_total{} 4 {time}", app("cpu=\"total\",")),
        format!("container_cpu_user_seconds_total{} 0.03 {time}", app("")),
        format!("container_cpu_cfs_throttled_seconds_total{} 1.5 {time}", app("")),
        format!("container_memory_working_set_bytes{} 199000 {time}", app("")),
        format!("container_spec_cpu_quota{} 50000", app("")),
        format!("container_spec_cpu_shares{} 256", app("")),
        format!("container_spec_memory_limit_bytes{} 1000000", app("")),
        format!("container_spec_memory_limit_bytes{root} 1073741824"),
        format!("container_start_time_seconds{} 1699999910", app("")),
        format!("container_start_time_seconds{root} 1600000000"),
        format!("container_last_seen{} 1700000000 {time}", app("")),
        format!("container_processes{} 2 {time}", app("")),
        format!("container_network_receive_bytes_total{sandbox} 4000 {time}"),
        format!("container_fs_reads_bytes_total{} 4096 {time}", app("device=\"/dev/sda\",")),
        format!("container_fs_writes_bytes_total{} 8192 {time}", app("device=\"/dev/sda\",")),
        format!("container_fs_usage_bytes{} 12345 {time}", app("device=\"/dev/sda1\",")),
        format!("container_oom_events_total{} 2 {time}", app("")),
        "machine_cpu_cores{boot_id=\"b1\",machine_id=\"m1\",system_uuid=\"u1\"} 1".to_owned(),
        "machine_memory_bytes{boot_id=\"b1\",machine_id=\"m1\",system_uuid=\"u1\"} 1073741824"
            .to_owned(),
        "machine_scrape_error 0".to_owned(),
        "container_scrape_error 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains("container_pressure"), "version 1 has none");
    let limits = |line: &&str| line.starts_with("container_ulimits_soft");
    let ulimit = text.lines().find(limits).unwrap_or_default();
    assert!(ulimit.contains("ulimit=\"max_open_files\"") && ulimit.contains(" 1024 "), "{ulimit}");
    let room = |line: &&str| line.starts_with("container_fs_limit_bytes{container=\"\"");
    assert!(text.lines().any(|line| room(&line)), "{text}");
    // What was not counted has no series: reads were not, and other groups have no disks.
    assert!(!text.contains("container_fs_reads_total"), "{text}");
    assert_eq!(text.matches("\ncontainer_oom_events_total{").count(), 1, "{text}");
    std::fs::remove_file(machine.dir.path().join("proc/stat"))?;
    let text = machine.stats(&runtime).cadvisor_metrics(&pods, &node(), &ids()).await;
    assert!(text.contains("container_scrape_error 1\n"), "{text}");
    Ok(())
}

#[tokio::test]
async fn cadvisor_metrics_of_version_2() -> anyhow::Result<()> {
    let machine = Machine::new()?;
    let root = machine.cgroup();
    fake::write(&root, "cgroup.controllers", "cpu memory pids\n")?;
    fake::group_v2(&root, "", 9_000_000, None, "1\n")?;
    fake::group_v2(&root, "pod", 5_000_000, Some(60_000), "")?;
    fake::group_v2(&root, "pod/cri-containerd-c1.scope", 4_000_000, Some(50_000), "")?;
    let runtime = Arc::new(Runtime::default());
    let text = machine.stats(&runtime).cadvisor_metrics(&[pod(Some("pod"))], &node(), &ids()).await;
    let of = "{container=\"app\",id=\"/pod/cri-containerd-c1.scope\",image=\"registry/app:1\",\
              name=\"c1\",namespace=\"shop\",pod=\"web\"}";
    for line in [
        format!("container_spec_memory_limit_bytes{of} 0"),
        format!("container_spec_cpu_shares{of} 2597"),
        format!("container_spec_cpu_period{of} 100000"),
        format!("container_pressure_cpu_waiting_seconds_total{of} 0.000009 1700000000000"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    for absent in ["container_spec_cpu_quota", "container_cpu_cfs_"] {
        assert!(!text.contains(absent), "{absent} without a quota");
    }
    for absent in ["container_fs_", "container_oom_", "machine_cpu_", "container_ulimits"] {
        assert!(!text.contains(absent), "{absent} though the machine does not tell");
    }
    Ok(())
}
