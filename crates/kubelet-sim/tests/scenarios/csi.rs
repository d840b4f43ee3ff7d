//! Volumes of a CSI driver: waited for, shared, and undone whatever the driver does.

use std::time::Duration;

use kubelet_sim::{PodTemplate, SimWorld, VolumeSet};

use crate::{SOON, web};

fn with_both(name: &str) -> PodTemplate {
    let volumes = VolumeSet { own: true, shared: true, part: true, ..VolumeSet::default() };
    PodTemplate::steady(name).with_volumes(volumes)
}

/// A node whose driver has registered.
fn node() -> SimWorld {
    let mut node = SimWorld::new(1);
    node.put_storage();
    node.set_driver(true);
    node.start_agent();
    node
}

#[test]
fn a_pod_waits_for_its_driver_and_shares_its_volume() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &with_both("web"));
    node.run_for(Duration::from_secs(300));
    node.set_driver(true);
    node.run_for(Duration::from_secs(300));
    assert_eq!(node.sandboxes("web"), 0, "its claim is missing");
    node.put_storage();
    // No two minutes' pause: what is waited for is followed.
    node.settle(Duration::from_secs(20));
    assert_eq!(node.mounts(), 4, "its own, the shared one, a part of that, and the node's");
    let before = web(&node);
    node.put("other.json", &with_both("other"));
    node.settle(SOON);
    assert_eq!(node.mounts(), 7, "the node has one for both");
    node.set_driver(false);
    node.crash_agent();
    node.start_agent();
    node.run_for(Duration::from_secs(300));
    assert_eq!(web(&node), before, "what runs needs no driver");
    node.delete("other.json");
    node.run_for(Duration::from_secs(300));
    assert_eq!(node.mounts(), 6, "only parts are bound by the agent");
    node.set_driver(true);
    node.settle(Duration::from_secs(20));
    assert_eq!((web(&node), node.mounts()), (before, 4));
    node.crash_agent();
    node.delete("web.json");
    node.start_agent();
    node.settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn a_block_device_is_shared_found_again_and_undone() {
    let with_block = |name: &str| {
        let volumes = VolumeSet { block: true, ..VolumeSet::default() };
        PodTemplate::steady(name).with_volumes(volumes)
    };
    let mut node = node();
    node.put("web.json", &with_block("web"));
    node.settle(Duration::from_secs(20));
    assert_eq!(node.mounts(), 3, "staged, published, and bound for the node");
    let before = web(&node);
    node.put("other.json", &with_block("other"));
    node.settle(SOON);
    assert_eq!(node.mounts(), 5, "staged once");
    node.crash_agent();
    node.delete("other.json");
    node.start_agent();
    node.settle(SOON);
    assert_eq!((web(&node), node.mounts()), (before, 3));
    node.with_faults(|faults| faults.hang = 1.0);
    node.delete("web.json");
    node.run_for(Duration::from_secs(30));
    node.crash_agent();
    node.with_faults(|faults| faults.hang = 0.0);
    node.start_agent();
    node.run_for(Duration::from_secs(400)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn what_a_driver_ends_after_the_agent_died_is_undone() {
    let mut node = node();
    node.run_for(Duration::from_secs(5));
    node.with_faults(|faults| faults.hang = 1.0);
    node.put("web.json", &with_both("web"));
    node.run_for(Duration::from_secs(30));
    node.crash_agent();
    node.with_faults(|faults| faults.hang = 0.0);
    node.delete("web.json");
    node.start_agent();
    node.run_for(Duration::from_secs(400)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn mounts_whose_answer_is_lost_are_undone() {
    let mut node = node();
    node.run_for(Duration::from_secs(5));
    node.with_faults(|faults| faults.lost_answer = 1.0);
    node.put("web.json", &with_both("web"));
    node.run_for(Duration::from_secs(300));
    assert_eq!(node.sandboxes("web"), 0);
    node.delete("web.json");
    node.run_for(Duration::from_secs(30));
    node.with_faults(|faults| faults.lost_answer = 0.0);
    node.run_for(Duration::from_secs(150)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}
