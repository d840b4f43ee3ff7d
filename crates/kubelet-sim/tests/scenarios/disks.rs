//! Disks and devices, of the node and of other machines, and files of a Secret: whatever
//! the agent was doing when it died, they are made, and undone after the last pod.

use std::time::Duration;

use kubelet_sim::{PodTemplate, SimWorld, VolumeSet};

use crate::SOON;

/// Each kind, how many mounts it has for one pod and for two, and how many disks of other
/// machines are attached for it.
fn kinds() -> [(&'static str, VolumeSet, [usize; 2], usize); 6] {
    let none = VolumeSet::default();
    [
        ("secret", VolumeSet { secret: true, ..none }, [1, 2], 0),
        ("local", VolumeSet { local: true, ..none }, [2, 3], 0),
        ("local-raw", VolumeSet { local_raw: true, ..none }, [1, 2], 0),
        ("remote-raw", VolumeSet { remote_raw: true, ..none }, [1, 2], 1),
        ("fc", VolumeSet { fc: true, ..none }, [2, 3], 1),
        ("both ways", VolumeSet { remote_raw: true, iscsi: [true, false], ..none }, [3, 5], 1),
    ]
}

fn node() -> SimWorld {
    let mut node = SimWorld::new(1);
    node.put_config(Some(1));
    node.put_disks();
    node.start_agent();
    node
}

fn put(node: &mut SimWorld, name: &str, volumes: VolumeSet) {
    node.put(&format!("{name}.json"), &PodTemplate::steady(name).with_volumes(volumes));
}

#[test]
fn pods_share_disks_and_the_last_one_lets_go() {
    for (kind, volumes, mounts, attached) in kinds() {
        let mut node = node();
        put(&mut node, "one", volumes);
        node.settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (mounts[0], attached), "{kind}");
        put(&mut node, "two", volumes);
        node.settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (mounts[1], attached), "{kind}");
        node.crash_agent();
        node.delete("one.json");
        node.start_agent();
        node.run_for(Duration::from_secs(30)).settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (mounts[0], attached), "{kind}");
        assert_eq!(node.running("two").len(), 1, "{kind}");
        node.delete("two.json");
        node.settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (0, 0), "{kind}");
    }
}

/// One way to have a disk goes, and the other stays.
#[test]
fn a_disk_that_is_had_in_two_ways() {
    let raw = VolumeSet { remote_raw: true, ..VolumeSet::default() };
    let mounted = VolumeSet { iscsi: [true, false], ..VolumeSet::default() };
    for (first, second, left) in [(raw, mounted, 2), (mounted, raw, 1)] {
        let mut node = node();
        put(&mut node, "one", first);
        put(&mut node, "two", second);
        node.run_for(Duration::from_secs(30)).settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (3, 1));
        node.delete("one.json");
        node.run_for(Duration::from_secs(30)).settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (left, 1));
        assert_eq!(node.running("two").len(), 1);
        node.delete("two.json");
        node.settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (0, 0));
    }
}

/// Pauses after which the agent dies: no work takes longer than five milliseconds.
fn pauses() -> impl Iterator<Item = Duration> {
    (0..30).map(|step| Duration::from_millis(step * 4))
}

#[test]
fn an_agent_that_dies_while_a_volume_is_made() {
    for (kind, volumes, mounts, attached) in kinds() {
        for pause in pauses() {
            let mut node = node();
            node.run_for(Duration::from_secs(5));
            put(&mut node, "one", volumes);
            node.run_for(pause);
            node.crash_agent();
            node.start_agent();
            node.run_for(Duration::from_secs(30)).settle(SOON);
            let is = (node.mounts(), node.attached_disks());
            assert_eq!(is, (mounts[0], attached), "{kind}, after {pause:?}");
            node.delete("one.json");
            node.settle(SOON);
            assert_eq!((node.mounts(), node.attached_disks()), (0, 0), "{kind}, {pause:?}");

            // The pod goes while the agent is down.
            put(&mut node, "one", volumes);
            node.run_for(pause);
            node.crash_agent();
            node.delete("one.json");
            node.start_agent();
            node.run_for(Duration::from_secs(30)).settle(SOON);
            assert_eq!((node.mounts(), node.attached_disks()), (0, 0), "{kind}, {pause:?}");
        }
    }
}

#[test]
fn an_agent_that_dies_while_a_volume_is_undone() {
    for (kind, volumes, mounts, attached) in kinds() {
        let mut node = node();
        put(&mut node, "other", volumes);
        for pause in pauses() {
            put(&mut node, "one", volumes);
            node.run_for(Duration::from_secs(5)).settle(SOON);
            node.delete("one.json");
            // Its container takes a while to stop.
            node.wait_until("the pod to end", SOON, |node| node.running("one").is_empty());
            node.run_for(pause);
            node.crash_agent();
            node.start_agent();
            node.run_for(Duration::from_secs(30)).settle(SOON);
            let is = (node.mounts(), node.attached_disks(), node.running("other").len());
            assert_eq!(is, (mounts[0], attached, 1), "{kind}, after {pause:?}");
        }
        node.delete("other.json");
        node.settle(SOON);
        assert_eq!((node.mounts(), node.attached_disks()), (0, 0), "{kind}");
    }
}
