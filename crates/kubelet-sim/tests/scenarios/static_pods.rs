//! Races of static pods: same name, old and new, restarts in between.

use std::time::Duration;

use kubelet_sim::{PodTemplate, Program, SimWorld};

use crate::{SOON, expect_untouched, node_with, web};

/// Takes three seconds to end, so that there is time to race with it.
fn slow() -> PodTemplate {
    PodTemplate::steady("web").program(Program::Run { term_ms: 3_000 })
}

fn half_a_second() -> Duration {
    Duration::from_millis(500)
}

#[test]
fn deleted_and_recreated_while_the_old_one_terminates() {
    let (mut node, old) = node_with(&slow());
    node.delete("web.json");
    node.run_for(half_a_second());
    assert_eq!(web(&node).revision, old.revision, "the old one is still ending");
    let new = node.put("web.json", &slow());
    node.settle(SOON);
    assert_eq!(web(&node).revision, new.revision);
}

#[test]
fn deleted_and_recreated_from_the_same_text() {
    for template in [slow(), slow().with_uid("fixed")] {
        let (mut node, pod) = node_with(&template);
        let old = web(&node);
        node.delete("web.json");
        node.run_for(half_a_second());
        node.put("web.json", &pod);
        node.run_for(Duration::from_secs(10)).settle(SOON);
        let new = web(&node);
        assert_eq!(new.uid, old.uid, "the same text has the same uid");
        assert_ne!(new.id, old.id, "what was told to end has ended");
    }
}

#[test]
fn updated_while_the_old_one_terminates() {
    let (mut node, first) = node_with(&slow());
    node.put("web.json", &slow());
    node.run_for(half_a_second());
    assert_eq!(web(&node).revision, first.revision, "the first is still ending");
    let third = node.put("web.json", &slow());
    node.settle(SOON);
    assert_eq!(web(&node).revision, third.revision);
}

#[test]
fn updated_in_place_while_terminating() {
    let template = slow().with_uid("fixed");
    let (mut node, _) = node_with(&template);
    node.delete("web.json");
    node.run_for(half_a_second());
    let changed = template.clone().program(Program::Run { term_ms: 100 });
    node.put("web.json", &template);
    node.run_for(half_a_second());
    node.put("web.json", &changed);
    node.settle(SOON);
}

#[test]
fn metadata_changed_in_place_restarts_nothing() {
    let template = slow().with_uid("fixed");
    let (mut node, _) = node_with(&template);
    let before = web(&node);
    let next = node.put("web.json", &template);
    node.run_for(SOON).settle(SOON);
    assert_eq!(web(&node).id, before.id);
    assert_eq!(node.reported()[0].revision, next.revision);
}

#[test]
fn agent_restarts_between_delete_and_recreate() {
    let (mut node, old) = node_with(&slow());
    node.delete("web.json");
    node.run_for(half_a_second());
    node.crash_agent();
    let new = node.put("web.json", &slow());
    assert_eq!(web(&node).revision, old.revision, "nobody ended it meanwhile");
    node.start_agent();
    node.settle(SOON);
    assert_eq!(web(&node).revision, new.revision);
}

#[test]
fn agent_restarts_while_the_same_text_terminates() {
    let (mut node, pod) = node_with(&slow());
    node.delete("web.json");
    node.run_for(half_a_second());
    node.crash_agent();
    node.put("web.json", &pod);
    node.run_for(Duration::from_secs(5));
    node.start_agent();
    node.settle(SOON);
}

#[test]
fn same_name_from_two_sources() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    let from_file = node.put("web.json", &PodTemplate::steady("web"));
    node.settle(SOON);
    let from_url = node.serve(&[PodTemplate::steady("web")]).remove(0);
    node.run_for(SOON).settle(SOON);
    assert_eq!(web(&node).revision, from_file.revision, "the first stays");
    node.delete("web.json");
    node.settle(SOON);
    assert_eq!(web(&node).revision, from_url.revision, "the other takes over");
}

#[test]
fn same_name_from_two_sources_survives_restarts() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &PodTemplate::steady("web"));
    node.settle(SOON);
    node.serve(&[PodTemplate::steady("web")]);
    node.run_for(SOON).settle(SOON);
    let before = web(&node);
    for _ in 0..3 {
        node.crash_agent();
        node.start_agent();
        node.run_for(SOON).settle(SOON);
        expect_untouched(&node, &before);
    }
}

#[test]
fn same_name_in_two_files() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    node.put("zzz.json", &PodTemplate::steady("web"));
    node.run_for(SOON).settle(SOON);
    let kept = web(&node).revision;
    node.delete("zzz.json");
    node.run_for(SOON).settle(SOON);
    assert!(web(&node).revision <= kept);
    node.delete("web.json");
    node.wait_until("everything gone", SOON, |node| node.sandboxes("web") == 0);
    node.settle(SOON);
}

#[test]
fn garbage_leaves_the_last_good_pod_alone() {
    let (mut node, pod) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    node.spoil("web.json");
    node.run_for(Duration::from_secs(300));
    expect_untouched(&node, &before);
    node.put("web.json", &pod);
    node.settle(SOON);
    expect_untouched(&node, &before);
}

#[test]
fn garbage_over_a_restart_leaves_the_last_good_pod_alone() {
    let (mut node, pod) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    node.spoil("web.json");
    node.run_for(SOON);
    node.crash_agent();
    node.start_agent();
    node.run_for(Duration::from_secs(300));
    expect_untouched(&node, &before);
    node.put("web.json", &pod);
    node.settle(SOON);
    expect_untouched(&node, &before);
}
