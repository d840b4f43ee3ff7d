//! The text of resource metrics, line by line.

use super::*;
use crate::node::NodeSample;
use crate::pods::PodSample;
use crate::samples::ContainerSample;

#[test]
fn a_failure_is_told() {
    let text = resource_text(None);
    assert!(text.ends_with("resource_scrape_error 1\n"), "{text}");
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn series_of_all_kinds() {
    let time = Timestamp::from_millisecond(1_700_000_000_500).ok();
    let cpu = Some(Cpu { time, core_nanos: Some(1_500_000_000), ..Cpu::default() });
    let memory = Some(Memory { time, working_set: Some(4096), ..Memory::default() });
    let swap = Some(Swap { time, available: Some(30), usage: Some(12) });
    let full = ContainerSample {
        name: "app".to_owned(),
        started: Timestamp::from_millisecond(1_600_000_000_250).ok(),
        cpu,
        memory,
        swap,
        ..ContainerSample::default()
    };
    let bare = ContainerSample { name: "bare".to_owned(), ..ContainerSample::default() };
    let pod = PodSample {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        containers: vec![full, bare],
        cpu,
        ..PodSample::default()
    };
    let node = NodeSample { cpu, memory, swap, ..NodeSample::default() };
    let text = resource_text(Some(&Summary { node, pods: vec![pod] }));
    let of_app = "{container=\"app\",namespace=\"shop\",pod=\"web\"}";
    let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        format!("container_cpu_usage_seconds_total{of_app} 1.5 1700000000500"),
        format!("container_memory_working_set_bytes{of_app} 4096 1700000000500"),
        format!("container_start_time_seconds{of_app} 1600000000.25"),
        format!("container_swap_limit_bytes{of_app} 42 1700000000500"),
        format!("container_swap_usage_bytes{of_app} 12 1700000000500"),
        "node_cpu_usage_seconds_total 1.5 1700000000500".to_owned(),
        "node_memory_working_set_bytes 4096 1700000000500".to_owned(),
        "node_swap_usage_bytes 12 1700000000500".to_owned(),
        "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} 1.5 1700000000500".to_owned(),
        "resource_scrape_error 0".to_owned(),
    ];
    assert_eq!(series, expected);
}
