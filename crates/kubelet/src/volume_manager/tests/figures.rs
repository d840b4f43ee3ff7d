//! What is counted of volumes, of a pod that comes and goes.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tonic::Code;

use super::super::Volumes;
use super::bed::Bed;
use super::claims::{gone, told};
use super::csi::Scripted;
use super::{pod, until};

/// What `/metrics` would say of them, help aside.
fn figures(volumes: &Volumes) -> Vec<String> {
    let mut registry = Registry::default();
    volumes.metrics().register(&mut registry);
    registry.register_collector(Box::new(volumes.total()));
    let mut text = String::new();
    encode(&mut text, &registry).expect("text");
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn total(volumes: &Volumes) -> Vec<String> {
    let name = "volume_manager_total_volumes";
    let all = figures(volumes).into_iter().filter_map(|line| Some(line.strip_prefix(name)?.into()));
    all.collect()
}

fn series(plugin: &str, state: &str, count: u32) -> String {
    format!("{{plugin_name=\"{plugin}\",state=\"{state}_state_of_world\"}} {count}")
}

/// How often something was done, and how it ended.
fn count(volumes: &Volumes, plugin: &str, operation: &str, status: &str) -> Option<String> {
    let line = format!(
        "storage_operation_duration_seconds_count{{volume_plugin=\"{plugin}\",\
         operation_name=\"{operation}\",status=\"{status}\",migrated=\"false\"}} "
    );
    figures(volumes).into_iter().find_map(|found| Some(found.strip_prefix(&line)?.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn volumes_are_counted_by_plugin_and_timed() {
    const CSI: &str = "kubernetes.io/csi:d.example";
    const EMPTY: &str = "kubernetes.io/empty-dir";
    let node = Arc::new(Scripted::default());
    node.answers.lock().unwrap().extend([Code::Internal, Code::Ok, Code::Internal]);
    let bed = Bed::with(&node);
    let sources = r#"{"name":"v","emptyDir":{}},{"name":"w","csi":{"driver":"d.example"}}"#;
    let pod = pod("", "", sources);
    let volumes = bed.life(&[&pod]);
    assert_eq!(total(&volumes), [""; 0]);
    volumes.want(&pod);
    until(&volumes, pod.uid(), told("code = Internal")).await;
    let desired = [series(CSI, "desired", 1), series(EMPTY, "desired", 1)];
    let [csi, empty] = desired.clone();
    assert_eq!(total(&volumes), [csi, series(EMPTY, "actual", 1), empty]);
    assert_eq!(count(&volumes, CSI, "volume_mount", "fail-unknown").as_deref(), Some("1"));
    assert_eq!(count(&volumes, EMPTY, "volume_mount", "success").as_deref(), Some("1"));
    let ready = |state: &super::VolumeState| matches!(state, super::VolumeState::Ready(_));
    until(&volumes, pod.uid(), ready).await;
    let [csi, empty] = desired;
    let there = [series(CSI, "actual", 1), series(EMPTY, "actual", 1)];
    let [csi_there, empty_there] = there;
    assert_eq!(total(&volumes), [csi_there.clone(), csi, empty_there.clone(), empty]);
    assert_eq!(count(&volumes, CSI, "volume_mount", "success").as_deref(), Some("1"));
    // From when the pod wanted it: the pause after the failure is part of it.
    let whole = format!(
        "volume_operation_total_seconds_sum{{plugin_name=\"{CSI}\",\
         operation_name=\"overall_volume_mount\"}} "
    );
    let took = figures(&volumes)
        .into_iter()
        .find_map(|line| line.strip_prefix(&whole).and_then(|sum| sum.parse::<f64>().ok()));
    assert!(took.is_some_and(|seconds| (0.5..2.0).contains(&seconds)), "{took:?}");

    // Whoever ends wants nothing, and has what it has until it is undone.
    volumes.keep(pod.uid());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(total(&volumes), [csi_there.clone(), empty_there]);
    volumes.release(pod.uid());
    until(&volumes, pod.uid(), told("code = Internal")).await;
    assert_eq!(total(&volumes), [csi_there], "the driver does not let it go");
    assert_eq!(count(&volumes, CSI, "volume_unmount", "fail-unknown").as_deref(), Some("1"));
    until(&volumes, pod.uid(), gone).await;
    assert_eq!(total(&volumes), [""; 0]);
    assert_eq!(count(&volumes, CSI, "volume_unmount", "success").as_deref(), Some("1"));
    assert_eq!(count(&volumes, EMPTY, "volume_unmount", "success").as_deref(), Some("1"));
}
