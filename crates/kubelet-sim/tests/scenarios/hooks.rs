//! Hooks that are requests and pauses.

use std::time::Duration;

use kubelet_sim::{Hook, HookWay, PodTemplate, SimWorld};

use crate::{SOON, node_with};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn hook(way: HookWay, code: u8, takes_ms: u32) -> Hook {
    Hook { way, code, takes_ms }
}

fn stopping(hook: Hook) -> PodTemplate {
    let mut template = PodTemplate::steady("web").with_app(|app| app.pre_stop = Some(hook));
    template.grace_secs = 10;
    template
}

#[test]
fn a_stop_waits_for_a_request_and_for_a_pause() {
    for way in [HookWay::Http, HookWay::Sleep] {
        let (mut node, _) = node_with(&stopping(hook(way, 0, 5_000)));
        node.delete("web.json");
        node.run_for(secs(4));
        assert_eq!(node.running("web").len(), 1, "{way:?} has time left");
        node.wait_until("the end", secs(4), |node| node.running("web").is_empty());
        node.settle(SOON);
    }
}

#[test]
fn neither_outlasts_the_grace() {
    for way in [HookWay::Http, HookWay::Sleep] {
        let (mut node, _) = node_with(&stopping(hook(way, 0, Hook::HANGS)));
        node.delete("web.json");
        node.run_for(secs(8));
        assert_eq!(node.running("web").len(), 1, "{way:?} has time left");
        // Ten seconds of grace, two more at the least for the signal.
        node.wait_until("the end", secs(6), |node| node.running("web").is_empty());
        node.settle(SOON);
    }
}

/// Only the runtime knows the pod: its hook is in an annotation.
#[test]
fn both_are_known_from_the_runtime() {
    for way in [HookWay::Http, HookWay::Sleep] {
        let (mut node, _) = node_with(&stopping(hook(way, 0, 5_000)));
        node.crash_agent();
        node.delete("web.json");
        node.start_agent();
        node.run_for(secs(4));
        assert_eq!(node.running("web").len(), 1, "{way:?} has time left");
        node.wait_until("the end", secs(6), |node| node.running("web").is_empty());
        node.settle(SOON);
    }
}

#[test]
fn a_request_that_is_not_answered_restarts_its_container() {
    let failing = hook(HookWay::Http, 1, 500);
    let template = PodTemplate::steady("web").with_app(|app| app.post_start = Some(failing));
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &template);
    node.wait_until("some restarts", SOON * 2, |node| {
        node.running("web").first().is_some_and(|c| c.attempt == 3)
    });
    node.delete("web.json");
    node.settle(SOON);
}

#[test]
fn a_pause_after_the_start_holds_back_the_status_only() {
    let pause = hook(HookWay::Sleep, 0, 5_000);
    let template = PodTemplate::steady("web").with_app(|app| app.post_start = Some(pause));
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &template);
    node.run_for(secs(20)).settle(SOON);
    assert_eq!(node.running("web")[0].attempt, 0);
}
