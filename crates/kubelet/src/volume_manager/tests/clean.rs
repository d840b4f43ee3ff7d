//! Cleaning up after pods: never while they may come back, and never without end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubelet_model::DesiredPod;
use tokio::time::sleep;
use tonic::Code;

use super::super::clean::CleanError;
use super::super::{VolumeState, Volumes};
use super::csi::Scripted;
use super::{pod, ports, until};
use crate::events::Recorder;
use crate::object_cache::Objects;
use crate::plugin_manager::Drivers;
use crate::pod_sources::PodSetReader;
use crate::ports::{CsiNode, RealVolumeHost};
use crate::progress::ProgressBoard;
use crate::settings::Settings;

struct Bench {
    volumes: Volumes,
    host: RealVolumeHost,
    node: Arc<Scripted>,
    pod: DesiredPod,
    dir: PathBuf,
    _temp: tempfile::TempDir,
}

/// A pod with a volume of a driver.
fn bench() -> Bench {
    let temp = tempfile::tempdir().expect("a directory");
    let mut settings = Settings::for_node("n");
    settings.root_dir = temp.path().to_owned();
    let host = RealVolumeHost::default();
    let mut ports = ports();
    ports.volumes = Arc::new(host.clone());
    let recorder = Recorder::new(Arc::clone(&ports.clock));
    let (progress, none) = (ProgressBoard::default(), Objects::default());
    let node = Arc::new(Scripted::default());
    let drivers = Drivers::holding("d.example", Arc::clone(&node) as Arc<dyn CsiNode>);
    let pod = pod("", "", r#"{"name":"v","csi":{"driver":"d.example"}}"#);
    let (_, desired) = PodSetReader::for_test(&[&pod]);
    let settings = Arc::new(settings);
    let volumes = Volumes::new(&ports, &settings, &recorder, &progress, &none, &desired, &drivers);
    let dir = temp.path().join("pods/u1");
    Bench { volumes, host, node, pod, dir, _temp: temp }
}

fn is_ready(state: &VolumeState) -> bool {
    matches!(state, VolumeState::Ready(_))
}

#[tokio::test]
async fn a_pod_that_comes_back_is_not_cleaned_up_after() {
    let Bench { volumes, host, node, pod, dir, .. } = &bench();
    let uid = pod.uid();
    volumes.want(pod);
    until(volumes, uid, is_ready).await;
    let needed = volumes.clean(uid, false).await;
    assert_eq!(needed, Err(CleanError::Needed(uid.clone())));
    node.answers.lock().unwrap().push_back(Code::Internal);
    volumes.release(uid);
    let told = |state: &VolumeState| matches!(state, VolumeState::Waiting { problems, .. } if !problems.is_empty());
    until(volumes, uid, told).await;

    // It has seen that nobody needs them, and looks for mounts.
    let held = host.hold(dir);
    let other = volumes.clone();
    let asked = uid.clone();
    #[allow(clippy::disallowed_methods, reason = "a caller of its own")]
    let cleaning = tokio::spawn(async move { other.clean(&asked, false).await });
    while !node.calls().iter().filter(|call| *call == "unpublish").count().eq(&2) {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_millis(300)).await;
    volumes.want(pod);
    assert_ne!(volumes.state(uid), Some(VolumeState::Gone), "the pod could come back");
    assert_eq!(node.calls(), ["publish", "unpublish", "unpublish"]);
    drop(held);
    assert_eq!(cleaning.await.expect("no panic"), Ok(vec![]));
    until(volumes, uid, |state| *state == VolumeState::Gone).await;
    assert_eq!(volumes.clean(uid, false).await, Err(CleanError::Unknown(uid.clone())));
    volumes.want(pod);
    until(volumes, uid, is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_never_answers_is_named() {
    let Bench { volumes, node, pod, dir, .. } = &bench();
    let uid = pod.uid();
    node.mute.store(true, Ordering::Relaxed);
    volumes.want(pod);
    while node.noted().is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    volumes.release(uid);
    let error = volumes.clean(uid, false).await.expect_err("it is busy").to_string();
    let path = dir.join("volumes/kubernetes.io~csi/v/mount");
    let expected = format!(
        "something is still being mounted after 30 s: CSI driver d.example has not answered \
         about {}. Nothing was unmounted; try again later",
        path.display()
    );
    assert_eq!(error, expected);
}
