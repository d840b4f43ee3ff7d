//! `activeDeadlineSeconds`: a pod's time is up once, whatever happens meanwhile.

use std::time::Duration;

use jiff::SignedDuration;
use kubelet_sim::{ContainerTemplate, PodTemplate, Program, SimWorld, VolumeSet};

use crate::{SOON, node_with};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn limited(seconds: u32) -> PodTemplate {
    let sidecar = ContainerTemplate::new("s0", Program::Run { term_ms: 100 }).as_sidecar();
    PodTemplate::steady("web").with_deadline(seconds).with_init(sidecar)
}

fn expect_exceeded(node: &SimWorld) {
    let pod = &node.reported()[0];
    assert_eq!((pod.phase.as_str(), pod.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
    assert!(node.running("web").is_empty());
}

#[test]
fn a_pod_ends_when_its_time_is_up() {
    let (mut node, _) = node_with(&limited(60));
    node.run_for(secs(50));
    assert_eq!(node.running("web").len(), 2, "it has time left");
    node.run_for(secs(30)).settle(SOON);
    expect_exceeded(&node);
}

#[test]
fn an_agent_that_comes_back_counts_on() {
    let (mut node, _) = node_with(&limited(60));
    node.run_for(secs(40));
    node.crash_agent();
    node.start_agent();
    node.run_for(secs(10));
    assert_eq!(node.running("web").len(), 2, "it has time left");
    node.run_for(secs(20)).settle(SOON);
    expect_exceeded(&node);
    // What has ended stays so in another life.
    node.crash_agent();
    node.start_agent();
    node.run_for(SOON).settle(SOON);
    expect_exceeded(&node);
}

#[test]
fn time_that_ran_out_while_nobody_looked_is_up() {
    let (mut node, _) = node_with(&limited(60));
    node.crash_agent();
    node.run_for(secs(300));
    assert_eq!(node.running("web").len(), 2);
    node.start_agent();
    node.settle(SOON);
    expect_exceeded(&node);
}

/// As upstream: the wall clock decides, and a pod never gets older by a clock set back.
#[test]
fn a_clock_that_jumps_takes_the_deadline_along() {
    let (mut node, _) = node_with(&limited(600));
    node.run_for(secs(30));
    node.jump_wall(SignedDuration::from_secs(-3_600));
    node.run_for(secs(60));
    assert_eq!(node.running("web").len(), 2);
    node.jump_wall(SignedDuration::from_secs(3_600));
    // Nothing wakes the pod's worker before the next look at the runtime.
    node.run_for(secs(600)).settle(SOON);
    expect_exceeded(&node);
}

#[test]
fn a_pod_that_never_got_its_volumes_fails_too() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.with_faults(|faults| faults.volume_error = 1.0);
    let volumes = VolumeSet { disk: true, ..VolumeSet::default() };
    node.put("web.json", &limited(60).with_volumes(volumes));
    node.run_for(secs(120));
    node.with_faults(|faults| faults.volume_error = 0.0);
    node.run_for(secs(150)).settle(SOON);
    expect_exceeded(&node);
    assert_eq!(node.sandboxes("web"), 0);
}
