//! Volumes: before anything starts, across restarts, and gone in the end.

use std::time::Duration;

use kubelet_sim::{PodTemplate, Program, Restart, SimWorld, VolumeSet};

use crate::{SOON, node_with, web};

fn with_all() -> PodTemplate {
    let mut all = VolumeSet { disk: true, memory: true, host: true, ..VolumeSet::default() };
    (all.given, all.part) = (true, true);
    PodTemplate::steady("web").with_volumes(all)
}

#[test]
fn volumes_are_there_and_gone_with_the_pod() {
    let (mut node, _) = node_with(&with_all());
    assert_eq!(node.mounts(), 2, "memory, and the part");
    node.kill(&web(&node).id);
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!(node.mounts(), 2, "a new instance has the same");
    node.delete("web.json");
    node.settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn a_new_agent_finds_what_an_old_one_mounted() {
    let (mut node, _) = node_with(&with_all());
    let before = web(&node);
    node.crash_agent();
    node.start_agent();
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!((web(&node), node.mounts()), (before, 2));
    node.crash_agent();
    node.delete("web.json");
    node.start_agent();
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn nothing_starts_while_volumes_fail() {
    let (mut node, _) = node_with(&PodTemplate::steady("other"));
    node.with_faults(|faults| faults.volume_error = 1.0);
    node.put("vol.json", &with_all());
    node.run_for(Duration::from_secs(300));
    assert_eq!(node.sandboxes("web"), 0);
    node.with_faults(|faults| faults.volume_error = 0.0);
    // The longest pause between two tries, and a little.
    node.run_for(Duration::from_secs(150)).settle(SOON);
    assert_eq!(node.running("web").len(), 1);
}

#[test]
fn a_pod_that_ended_keeps_no_mount() {
    let done = with_all().program(Program::Exit { code: 0, after_ms: 500 }).restart(Restart::Never);
    let (mut node, _) = node_with(&done);
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn work_that_hangs_holds_up_its_own_pod_only() {
    let (mut node, _) = node_with(&PodTemplate::steady("other"));
    node.with_faults(|faults| faults.hang = 1.0);
    node.put("vol.json", &with_all());
    node.run_for(Duration::from_secs(5));
    node.with_faults(|faults| faults.hang = 0.0);
    node.put("third.json", &PodTemplate::steady("third"));
    node.wait_until("the third pod to run", SOON, |node| node.running("third").len() == 1);
    node.delete("vol.json");
    node.run_for(Duration::from_secs(400)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}

#[test]
fn files_of_a_config_map_follow_it() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    let volumes = VolumeSet { config: true, ..VolumeSet::default() };
    node.put("web.json", &PodTemplate::steady("web").with_volumes(volumes));
    node.run_for(Duration::from_secs(300));
    assert_eq!(node.sandboxes("web"), 0, "its ConfigMap is missing");
    node.put_config(Some(1));
    // No two minutes' pause: what is waited for is followed.
    node.settle(Duration::from_secs(20));
    let before = web(&node);
    node.put_config(Some(2));
    node.settle(Duration::from_secs(20));
    node.put_config(None);
    node.run_for(Duration::from_secs(60));
    node.crash_agent();
    node.start_agent();
    node.run_for(Duration::from_secs(60));
    assert_eq!(web(&node), before, "what runs needs nothing new");
    node.put_config(Some(3));
    node.settle(Duration::from_secs(20));
    assert_eq!(web(&node), before);
    node.delete("web.json");
    node.settle(SOON);
}

/// Whatever the agent was doing when it died: no session ends while a pod has a disk of
/// it, and none outlives the last one.
#[test]
fn disks_of_other_machines_are_let_go_after_the_last_pod() {
    let (mut node, _) = node_with(&PodTemplate::steady("other"));
    let set = |iscsi| VolumeSet { nfs: true, iscsi, ..VolumeSet::default() };
    node.put("one.json", &PodTemplate::steady("one").with_volumes(set([true, true])));
    node.put("two.json", &PodTemplate::steady("two").with_volumes(set([true, false])));
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!(node.mounts(), 7, "two exports, two disks, three of them for pods");
    node.crash_agent();
    node.delete("one.json");
    node.start_agent();
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!((node.running("two").len(), node.mounts()), (1, 3), "an export and a disk");
    node.crash_agent();
    node.delete("two.json");
    node.start_agent();
    node.run_for(Duration::from_secs(30)).settle(SOON);
    assert_eq!(node.mounts(), 0);
}

const LONG: Duration = Duration::from_secs(100);

/// A node whose agent dies while the kernel is busy with some work on the volumes of a
/// pod `web`.
fn killed_while(work: &'static str, act: fn(&mut SimWorld)) -> SimWorld {
    let (mut node, _) = node_with(&PodTemplate::steady("other"));
    if work == "unmount" {
        node.put("vol.json", &with_all());
        node.run_for(Duration::from_secs(30)).settle(SOON);
    }
    node.hang_next(work, LONG);
    act(&mut node);
    node.run_for(Duration::from_secs(5));
    node.crash_agent();
    node
}

/// The kernel ends what a dead agent asked for: before another comes, or in its time.
#[test]
fn a_mount_that_ends_after_its_agent() {
    let mount = |node: &mut SimWorld| drop(node.put("vol.json", &with_all()));
    for down in [Duration::ZERO, Duration::from_secs(50), LONG * 2] {
        let mut node = killed_while("mount tmpfs", mount);
        assert_eq!(node.mounts(), 0, "it is under way");
        node.run_for(down);
        node.start_agent();
        node.wait_until("the pod to run", SOON, |node| node.running("web").len() == 1);
        let before = web(&node);
        node.run_for(LONG).settle(SOON);
        assert_eq!((web(&node), node.mounts()), (before, 2), "after {down:?}");
        node.delete("vol.json");
        node.run_for(Duration::from_secs(30)).settle(SOON);
        assert_eq!(node.mounts(), 0);

        let mut node = killed_while("mount tmpfs", mount);
        node.delete("vol.json");
        node.run_for(down);
        node.start_agent();
        node.run_for(LONG).settle(LONG * 2);
        assert_eq!(node.mounts(), 0, "deleted meanwhile, after {down:?}");
    }
}

#[test]
fn an_unmount_that_ends_after_its_agent() {
    for down in [Duration::ZERO, Duration::from_secs(50), LONG * 2] {
        let mut node = killed_while("unmount", |node| node.delete("vol.json"));
        assert!(node.mounts() > 0, "it is under way");
        node.run_for(down);
        node.start_agent();
        node.run_for(LONG).settle(LONG * 2);
        assert_eq!((node.mounts(), node.running("other").len()), (0, 1), "after {down:?}");
    }
}

/// Somebody else has something mounted in volumes when their pod goes: nothing of it is
/// lost, whatever becomes of the agent, and the pod goes once it is unmounted.
#[test]
fn a_foreign_mount_at_cleanup() {
    let mut volumes = VolumeSet { disk: true, memory: true, config: true, ..VolumeSet::default() };
    volumes.part = true;
    let (mut node, _) = node_with(&PodTemplate::steady("other"));
    node.put_config(Some(1));
    node.put("vol.json", &PodTemplate::steady("web").with_volumes(volumes));
    node.settle(SOON);
    let foreign = node.mount_foreign();
    assert_eq!(foreign, 3);
    node.delete("vol.json");
    for _ in 0..3 {
        node.run_for(Duration::from_secs(300));
        assert!(node.running("web").is_empty());
        assert_eq!(node.volume_dirs(), foreign, "what holds a mount stays");
        assert!(node.mounts() >= foreign, "and so does the mount");
        node.crash_agent();
        node.start_agent();
    }
    node.run_for(Duration::from_secs(300));
    node.unmount_foreign();
    // The longest pause between two tries, and a little.
    node.run_for(Duration::from_secs(150)).settle(SOON);
    assert_eq!((node.mounts(), node.volume_dirs(), node.running("other").len()), (0, 0, 1));
}
