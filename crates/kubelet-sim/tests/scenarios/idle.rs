//! What a node at rest does about volumes: nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_sim::{PodTemplate, SimWorld, VolumeSet};

use crate::SOON;

const HOUR: Duration = Duration::from_secs(3_600);

/// A node at rest with two pods that have volumes of every kind.
fn node_with_all() -> SimWorld {
    let mut node = SimWorld::new(1);
    node.put_config(Some(1));
    node.put_storage();
    node.put_disks();
    node.set_driver(true);
    node.start_agent();
    for name in ["one", "two"] {
        let file = format!("{name}.json");
        node.put(&file, &PodTemplate::steady(name).with_volumes(VolumeSet::all()));
    }
    node.run_for(SOON).settle(SOON);
    assert_eq!((node.running("one").len(), node.running("two").len()), (1, 1));
    node
}

/// What is asked for while time passes.
fn calls_in(node: &mut SimWorld, time: Duration) -> BTreeMap<String, u64> {
    let before = node.volume_calls();
    node.run_for(time);
    let mut calls = node.volume_calls();
    calls.retain(|call, count| {
        *count -= before.get(call).copied().unwrap_or_default();
        *count > 0
    });
    calls
}

#[test]
fn volumes_at_rest_cost_nothing() {
    let mut node = node_with_all();
    assert!(!node.volume_calls().is_empty(), "calls are counted");
    assert_eq!(calls_in(&mut node, HOUR), BTreeMap::new());
    node.crash_agent();
    node.start_agent();
    let again = calls_in(&mut node, SOON);
    assert!(!again.is_empty(), "another life looks at what there is");
    node.settle(SOON);
    assert_eq!(calls_in(&mut node, HOUR), BTreeMap::new());
}

/// Only what may grow too large is looked at, and nothing else of its node.
#[test]
fn a_volume_with_a_limit_is_measured_alone() {
    let mut node = node_with_all();
    let volumes = VolumeSet { limited: true, ..VolumeSet::default() };
    node.put("three.json", &PodTemplate::steady("three").with_volumes(volumes));
    node.settle(SOON);
    let calls = calls_in(&mut node, HOUR);
    let is_look = |call: &String| {
        call.starts_with("measure") && call.ends_with("kubernetes.io~empty-dir/limited")
    };
    assert!(calls.keys().all(is_look), "{calls:?}");
    // Every ten seconds; of a pod, not once for every volume on the node.
    let looks: u64 = calls.values().sum();
    assert!((60..=800).contains(&looks), "{calls:?}");
    node.delete("three.json");
    node.run_for(SOON).settle(SOON);
    assert_eq!(calls_in(&mut node, HOUR), BTreeMap::new(), "nothing has a limit any more");
}
