//! Pods that the node itself ends: eviction, preemption, shutdown.

use std::time::Duration;

use kubelet::pod_workers::{Kill, KillStage};
use kubelet_model::Grace;
use kubelet_sim::{ContainerTemplate, PodTemplate, Program, SimWorld, Twist, VolumeSet};

use crate::{SOON, node_with};

fn kill(reason: &str, seconds: Option<i64>, evict: bool) -> Kill {
    Kill {
        reason: reason.to_owned(),
        message: format!("ended for {reason}"),
        grace: seconds.map(Grace::from_secs),
        disruption: None,
        evict,
    }
}

/// Takes as long as it may.
fn stubborn() -> PodTemplate {
    let sidecar = ContainerTemplate::new("s0", Program::Run { term_ms: 100 }).as_sidecar();
    let mut pod = PodTemplate::steady("web").with_init(sidecar);
    pod.grace_secs = 30;
    pod.containers[0].program = Program::Run { term_ms: 100_000 };
    pod
}

fn expect_failed(node: &SimWorld, reason: &str) {
    let pods = node.reported();
    let pod = pods.iter().find(|pod| pod.name.starts_with("web")).expect("it is reported");
    assert_eq!((pod.phase.as_str(), pod.reason.as_deref()), ("Failed", Some(reason)));
    assert!(node.running("web").is_empty());
}

#[test]
fn a_pod_that_the_node_ends_fails_and_stays_so() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let watch = node.end_pod("web", kill("Terminated", None, false));
    node.settle(SOON);
    assert_eq!(watch.stage(), KillStage::CleanedUp);
    expect_failed(&node, "Terminated");
    assert_eq!(node.sandboxes("web"), 1, "what is left of it explains its end");
    node.run_for(Duration::from_secs(600)).settle(SOON);
    expect_failed(&node, "Terminated");
}

#[test]
fn an_evicted_pod_leaves_nothing_in_the_runtime() {
    let disk = VolumeSet { disk: true, ..VolumeSet::default() };
    let (mut node, _) = node_with(&PodTemplate::steady("web").with_volumes(disk));
    let other = node.put("other.json", &PodTemplate::steady("other"));
    node.settle(SOON);
    let before = node.running("other");
    let watch = node.end_pod("web", kill("Evicted", Some(1), true));
    node.run_for(SOON).settle(SOON);
    assert_eq!(watch.stage(), KillStage::CleanedUp);
    expect_failed(&node, "Evicted");
    assert_eq!((node.sandboxes("web"), node.mounts()), (0, 0));
    assert_eq!(node.running("other"), before, "revision {} is untouched", other.revision);
}

/// A rule of the simulation looks at every grace.
#[test]
fn it_gets_no_more_time_than_the_node_leaves_it() {
    let (mut node, _) = node_with(&stubborn());
    let watch = node.end_pod("web", kill("Evicted", Some(5), true));
    node.run_for(Duration::from_secs(4));
    assert_eq!((watch.stage(), node.running("web").len()), (KillStage::Asked, 2));
    node.run_for(Duration::from_secs(10)).settle(SOON);
    expect_failed(&node, "Evicted");
}

#[test]
fn who_comes_later_makes_it_quicker_and_changes_nothing_else() {
    let (mut node, _) = node_with(&stubborn());
    let first = node.end_pod("web", kill("Preempting", None, false));
    node.run_for(Duration::from_secs(2));
    let second = node.end_pod("web", kill("Evicted", Some(2), true));
    node.run_for(Duration::from_secs(10));
    assert!(first.stage() >= KillStage::Dead && second.stage() >= KillStage::Dead);
    node.settle(SOON);
    expect_failed(&node, "Preempting");
    // It is too late to make it slower, and whoever asks now is told at once.
    let third = node.end_pod("web", kill("Evicted", None, false));
    node.run_for(Duration::from_millis(10));
    assert_eq!(third.stage(), KillStage::CleanedUp);
    expect_failed(&node, "Preempting");
}

/// The runtime hangs while it makes the sandbox, and the node does not wait for it.
#[test]
fn a_pod_that_is_about_to_start_does_not() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.twist("RunPodSandbox", Twist::HangBefore(Duration::from_secs(20)));
    node.put("web.json", &PodTemplate::steady("web"));
    node.run_for(Duration::from_secs(5));
    let watch = node.end_pod("web", kill("Evicted", Some(1), true));
    node.run_for(SOON).settle(SOON);
    assert_eq!(watch.stage(), KillStage::CleanedUp);
    expect_failed(&node, "Evicted");
}

#[test]
fn it_ends_though_the_runtime_is_away_for_a_while() {
    let (mut node, _) = node_with(&stubborn());
    node.set_runtime_down(true);
    let watch = node.end_pod("web", kill("Evicted", Some(1), true));
    node.run_for(SOON);
    assert_eq!(watch.stage(), KillStage::Asked);
    node.set_runtime_down(false);
    node.run_for(Duration::from_secs(240)).settle(SOON);
    expect_failed(&node, "Evicted");
}

/// It is forgotten with its manifest, and another of the same text is another pod.
#[test]
fn a_manifest_that_is_put_again_starts_anew() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    node.end_pod("web", kill("Evicted", Some(1), true));
    node.settle(SOON);
    node.delete("web.json");
    node.run_for(SOON);
    assert!(node.reported().is_empty());
    node.put("web.json", &PodTemplate::steady("web"));
    node.settle(SOON);
    assert_eq!(node.running("web").len(), 1);
}

/// As upstream's: nobody but the agent knows that a static pod was ended.
#[test]
fn a_static_pod_starts_anew_with_the_agent() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    node.end_pod("web", kill("Terminated", None, false));
    node.settle(SOON);
    node.crash_agent();
    node.start_agent();
    node.run_for(SOON).settle(SOON);
    assert_eq!(node.running("web").len(), 1);
}

#[test]
fn a_pod_that_has_succeeded_is_not_failed_for_it() {
    let mut pod = PodTemplate::steady("web");
    pod.restart = kubelet_sim::Restart::Never;
    pod.containers[0].program = Program::Exit { after_ms: 100, code: 0 };
    let (mut node, _) = node_with(&pod);
    node.run_for(SOON);
    let watch = node.end_pod("web", kill("Evicted", Some(1), true));
    node.run_for(SOON).settle(SOON);
    assert_eq!(watch.stage(), KillStage::CleanedUp);
    let pod = &node.reported()[0];
    assert_eq!((pod.phase.as_str(), pod.reason.as_deref()), ("Succeeded", None));
}

#[test]
fn who_is_not_here_has_ended() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let watch = node.end_pod("nobody", kill("Evicted", Some(1), true));
    node.run_for(Duration::from_millis(10));
    assert_eq!(watch.stage(), KillStage::CleanedUp);
}
