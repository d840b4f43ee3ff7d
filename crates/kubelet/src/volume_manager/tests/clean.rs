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
use super::bed::Bed;
use super::csi::Scripted;
use super::{pod, until};
use crate::ports::RealVolumeHost;

struct Bench {
    volumes: Volumes,
    host: RealVolumeHost,
    node: Arc<Scripted>,
    pod: DesiredPod,
    dir: PathBuf,
    _bed: Bed,
}

/// A pod with a volume of a driver.
fn bench() -> Bench {
    let (host, node) = (RealVolumeHost::default(), Arc::new(Scripted::default()));
    let mut bed = Bed::with(&node);
    bed.ports.volumes = Arc::new(host.clone());
    let pod = pod("", "", r#"{"name":"v","csi":{"driver":"d.example"}}"#);
    let (volumes, dir) = (bed.life(&[&pod]), bed.root().join("pods/u1"));
    Bench { volumes, host, node, pod, dir, _bed: bed }
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
