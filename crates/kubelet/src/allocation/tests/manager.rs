//! The records over time, and over lives of the agent.

use std::path::Path;
use std::sync::Arc;

use kubelet_model::{DesiredPod, PodSet, PodUid};

use super::{pod, review, sized};
use crate::allocation::{ACTUATED, ALLOCATED, Allocations, News, ResizeMetrics};
use crate::container_manager::allocatable::Allocatable;
use crate::metrics::Metrics;
use crate::ports::{Fs, RealFs};

const NODE: Option<Allocatable> =
    Some(Allocatable { cpu_milli: 1000, memory_bytes: 1 << 30, storage_bytes: 0 });

fn set(pods: &[DesiredPod]) -> Arc<PodSet> {
    let pods = pods.iter().map(|pod| (pod.uid().clone(), pod.clone())).collect();
    Arc::new(PodSet { pods, sources_ready: true })
}

fn load(dir: &Path) -> Allocations {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    Allocations::load(&fs, dir, ResizeMetrics::default())
}

/// Reviews, and tells what each pod is given and what is new.
fn give(allocations: &Allocations, set: &Arc<PodSet>) -> (Vec<String>, Vec<&'static str>) {
    let (given, news) = review(allocations, set, NODE);
    let cpu = |pod: &DesiredPod| {
        let own = pod.spec().containers[0].resources.clone().unwrap_or_default();
        own.requests.and_then(|list| list.get("cpu").cloned()).map(|q| q.0).unwrap_or_default()
    };
    let told = |news: &News| match news {
        News::Started { deferred_until: None, .. } => "started",
        News::Started { deferred_until: Some(trigger), .. } => *trigger,
        News::Pending { refusal, .. } => refusal.reason.as_str(),
        News::Rejected { .. } => "rejected",
        News::Preempt { .. } => "preempt",
    };
    (given.pods.values().map(cpu).collect(), news.iter().map(told).collect())
}

#[test]
fn a_resize_is_allocated_kept_and_told_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocations = load(dir.path());
    let first = set(&[sized("a", 100, 10)]);
    assert_eq!(give(&allocations, &first), (vec!["100m".to_owned()], vec![]));
    let second = set(&[sized("a", 200, 10)]);
    assert_eq!(give(&allocations, &second), (vec!["200m".to_owned()], vec!["started"]));
    assert_eq!(give(&allocations, &second), (vec!["200m".to_owned()], vec![]));
    assert_eq!(allocations.resize_of(&PodUid::new("a")).allocated, 1);
    // A life later the allocation is known, and the manifest asks for nothing new.
    let allocations = load(dir.path());
    assert_eq!(give(&allocations, &second), (vec!["200m".to_owned()], vec![]));
    assert_eq!(give(&allocations, &first), (vec!["100m".to_owned()], vec!["started"]));
}

#[test]
fn a_deferred_resize_waits_for_room_across_lives() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocations = load(dir.path());
    give(&allocations, &set(&[sized("a", 100, 10), sized("b", 800, 10)]));
    let wish = sized("a", 500, 10);
    let asks = set(&[wish.clone(), sized("b", 800, 10)]);
    let waits = (vec!["100m".to_owned(), "800m".to_owned()], vec!["Deferred"]);
    assert_eq!(give(&allocations, &asks), waits);
    assert_eq!(give(&allocations, &asks).1, Vec::<&str>::new(), "told once");
    assert!(allocations.resize_of(&PodUid::new("a")).pending.is_some());
    let allocations = load(dir.path());
    assert_eq!(give(&allocations, &asks), waits);
    let alone = set(&[wish]);
    assert_eq!(give(&allocations, &alone), (vec!["500m".to_owned()], vec!["pods_removed"]));
    assert!(allocations.resize_of(&PodUid::new("a")).pending.is_none());
}

#[test]
fn a_wish_that_is_taken_back_waits_no_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocations = load(dir.path());
    give(&allocations, &set(&[sized("a", 100, 10)]));
    assert_eq!(give(&allocations, &set(&[sized("a", 5000, 10)])).1, ["Deferred"]);
    assert_eq!(give(&allocations, &set(&[sized("a", 6000, 10)])).1, ["Deferred"], "another wish");
    assert_eq!(give(&allocations, &set(&[sized("a", 100, 10)])), (vec!["100m".to_owned()], vec![]));
    assert!(allocations.resize_of(&PodUid::new("a")).pending.is_none());
}

#[test]
fn a_pod_that_did_not_change_stays_the_same_object() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocations = load(dir.path());
    let (a, b) = (sized("a", 100, 10), sized("b", 100, 10));
    let look = |set: &Arc<PodSet>| review(&allocations, set, NODE).0;
    look(&set(&[a.clone(), b.clone()]));
    let bigger = sized("a", 5000, 10);
    let first = look(&set(&[bigger.clone(), b.clone()]));
    let second = look(&set(&[bigger.clone(), b.clone()]));
    for uid in [a.uid(), b.uid()] {
        assert!(Arc::ptr_eq(first.pods[uid].pod(), second.pods[uid].pod()), "{uid}");
    }
    assert!(Arc::ptr_eq(first.pods[a.uid()].asked(), bigger.pod()), "it still asks for more");
}

#[test]
fn what_is_in_force_outlives_the_agent() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocations = load(dir.path());
    let pod = pod("a", r#"{"requests":{"cpu":"1"}}"#, r#","resources":{"limits":{"cpu":"2"}}"#);
    let uid = PodUid::new("a");
    assert_eq!(allocations.actuated(&uid), None);
    allocations.note_pod(&pod);
    let kept = load(dir.path()).actuated(&uid).expect("a record");
    let sizes = kept.sizes("app").expect("a container");
    assert_eq!((sizes.cpu_request, sizes.cpu_limit), (1000, 2000));
    allocations.remove(&uid);
    assert_eq!(allocations.actuated(&uid), None);
}

#[test]
fn a_torn_file_is_started_without() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in [ALLOCATED, ACTUATED] {
        std::fs::write(dir.path().join(name), "{\"data\":\"{\\\"entr").expect("a file");
    }
    let allocations = load(dir.path());
    let pods = set(&[sized("a", 100, 10)]);
    assert_eq!(give(&allocations, &pods), (vec!["100m".to_owned()], vec![]));
    let text = std::fs::read_to_string(dir.path().join(ALLOCATED)).expect("a good file");
    assert!(text.starts_with("{\"data\":\"{\\\"entries\\\""), "{text}");
}

#[test]
fn pods_that_are_no_more_are_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocations = load(dir.path());
    give(&allocations, &set(&[sized("a", 100, 10), sized("b", 100, 10)]));
    allocations.retain(|uid| uid.as_str() == "b");
    give(&allocations, &set(&[sized("b", 200, 10)]));
    let text = std::fs::read_to_string(dir.path().join(ALLOCATED)).expect("a file");
    assert!(text.contains("\\\"b\\\"") && !text.contains("\\\"a\\\""), "{text}");
}

#[test]
fn resizes_are_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let metrics = Metrics::new();
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let allocations = Allocations::load(&fs, dir.path(), metrics.resizes.clone());
    give(&allocations, &set(&[sized("a", 100, 10), sized("b", 800, 10)]));
    let wish = sized("a", 500, 10);
    give(&allocations, &set(&[wish.clone(), sized("b", 800, 10)]));
    allocations.note_in_progress(&PodUid::new("b"), true);
    let waiting = metrics.text();
    give(&allocations, &set(&[wish, sized("b", 200, 10)]));
    give(&allocations, &set(&[pod("a", "{}", "")]));
    allocations.remove(&PodUid::new("b"));
    allocations.metrics().observe(true, std::time::Duration::from_millis(15));
    let later = metrics.text();
    for (text, line) in [
        (&waiting, r#"kubelet_pod_pending_resizes{reason="deferred"} 1"#),
        (&waiting, "kubelet_pod_in_progress_resizes 1"),
        (&later, r#"kubelet_pod_pending_resizes{reason="deferred"} 0"#),
        (&later, r#"kubelet_pod_pending_resizes{reason="infeasible"} 1"#),
        (&later, "kubelet_pod_in_progress_resizes 0"),
        (&later, r#"kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pod_resized"} 1"#),
        (&later, r#"kubelet_pod_infeasible_resizes_total{reason_detail="qos_class_change"} 1"#),
        (
            &later,
            r#"kubelet_container_requested_resizes_total{resource="cpu",requirement="requests",operation="increase"} 1"#,
        ),
        (
            &later,
            r#"kubelet_container_requested_resizes_total{resource="cpu",requirement="requests",operation="decrease"} 1"#,
        ),
        (
            &later,
            r#"kubelet_container_requested_resizes_total{resource="memory",requirement="requests",operation="remove"} 1"#,
        ),
        (&later, r#"kubelet_pod_resize_duration_milliseconds_bucket{le="50.0",success="true"} 1"#),
    ] {
        assert!(text.contains(line), "{line} is missing from:\n{text}");
    }
}
