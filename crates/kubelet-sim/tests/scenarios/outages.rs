//! The runtime, its events, the agent or the clock fails; pods must not notice.

use std::time::Duration;

use jiff::SignedDuration;
use kubelet_sim::{ContainerTemplate, OwnRestart, PodTemplate, Program, Restart, SimWorld};

use crate::{SOON, expect_untouched, node_with, web};

const TWO_MINUTES: Duration = Duration::from_secs(120);

#[test]
fn runtime_restarts_and_pods_are_untouched() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    node.set_runtime_down(true);
    node.run_for(TWO_MINUTES);
    node.set_runtime_down(false);
    node.run_for(TWO_MINUTES).settle(SOON);
    expect_untouched(&node, &before);
}

#[test]
fn agent_restarts_and_pods_are_untouched() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    for pause in [0, 1, 30, 600] {
        node.crash_agent();
        node.run_for(Duration::from_secs(pause));
        node.start_agent();
        node.run_for(SOON).settle(SOON);
        expect_untouched(&node, &before);
    }
}

#[test]
fn agent_restarts_while_the_runtime_is_down() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    let before = web(&node);
    node.crash_agent();
    node.set_runtime_down(true);
    node.start_agent();
    node.run_for(TWO_MINUTES);
    node.set_runtime_down(false);
    node.settle(TWO_MINUTES);
    expect_untouched(&node, &before);
}

#[test]
fn unreadable_url_at_start_stops_nothing() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.serve(&[PodTemplate::steady("web")]);
    node.settle(SOON);
    let before = web(&node);
    node.crash_agent();
    node.with_faults(|faults| faults.http_error = 1.0);
    node.start_agent();
    node.run_for(TWO_MINUTES * 3);
    expect_untouched(&node, &before);
    node.with_faults(|faults| faults.http_error = 0.0);
    node.settle(TWO_MINUTES);
    expect_untouched(&node, &before);
}

#[test]
fn container_dies_while_the_agent_is_down() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    node.crash_agent();
    let victim = web(&node);
    node.kill(&victim.id);
    node.run_for(SOON);
    node.start_agent();
    node.settle(TWO_MINUTES);
    assert_eq!(web(&node).attempt, 1);
}

#[test]
fn run_once_pod_ends_while_the_agent_is_down() {
    let done_soon = Program::Exit { code: 0, after_ms: 20_000 };
    let template = PodTemplate::steady("web").program(done_soon).restart(Restart::Never);
    let (mut node, _) = node_with(&template);
    node.crash_agent();
    node.run_for(SOON);
    node.start_agent();
    node.settle(TWO_MINUTES);
    assert_eq!(node.reported()[0].phase, "Succeeded");
    node.run_for(TWO_MINUTES).settle(SOON);
}

#[test]
fn lost_events_are_made_up_for() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    node.with_faults(|faults| faults.event_lost = 1.0);
    let victim = web(&node);
    node.kill(&victim.id);
    node.wait_until("restart", TWO_MINUTES, |node| !node.running("web").is_empty());
    node.settle(SOON);
}

#[test]
fn broken_event_stream_is_opened_again() {
    let (mut node, _) = node_with(&PodTemplate::steady("web"));
    node.break_event_streams();
    let victim = web(&node);
    node.kill(&victim.id);
    node.wait_until("restart", TWO_MINUTES, |node| !node.running("web").is_empty());
    node.settle(SOON);
}

#[test]
fn lost_file_notifications_are_made_up_for() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.run_for(SOON);
    node.with_faults(|faults| faults.watch_lost = 1.0);
    node.put("web.json", &PodTemplate::steady("web"));
    node.settle(SOON);
}

#[test]
fn clock_jumps_do_not_stretch_the_back_off() {
    let crashing = Program::Exit { code: 1, after_ms: 1_000 };
    for hours in [-1, 1, -48, 48] {
        let (mut node, _) = node_with(&PodTemplate::steady("web").program(crashing));
        let attempt = |node: &SimWorld| node.running("web").first().map(|c| c.attempt);
        node.wait_until("a few restarts", TWO_MINUTES * 2, |node| attempt(node) == Some(3));
        node.wait_until("the crash", SOON, |node| node.running("web").is_empty());
        node.jump_wall(SignedDuration::from_hours(hours));
        // The longest back-off here is forty seconds.
        node.wait_until("the next restart", SOON, |node| attempt(node) == Some(4));
        node.wait_until("the one after", SOON * 2, |node| attempt(node) == Some(5));
    }
}

#[test]
fn dead_sandbox_is_replaced_and_finished_work_is_not_redone() {
    let done = Program::Exit { code: 0, after_ms: 1_000 };
    let mut template = PodTemplate::steady("web").restart(Restart::OnFailure);
    template.containers.push(ContainerTemplate::new("once", done));
    let (mut node, _) = node_with(&template);
    node.wait_until("once is done", SOON, |node| node.running("web").len() == 1);
    node.settle(SOON);
    node.kill_sandbox("web");
    node.run_for(SOON).settle(TWO_MINUTES);
    assert_eq!(web(&node).name, "app");
}

/// Seed 4773: it was running for ever, and another pod of its name waited as long.
#[test]
fn a_pod_that_never_restarts_fails_with_its_sandbox_and_makes_way() {
    let own = OwnRestart { policy: Restart::Always, code: 9, all: false };
    let template = PodTemplate::steady("web")
        .restart(Restart::Never)
        .with_app(|app| app.own_restart = Some(own));
    let (mut node, _) = node_with(&template);
    node.kill_sandbox("web");
    node.run_for(SOON).settle(TWO_MINUTES);
    let lost = |node: &SimWorld| {
        let pod = node.reported()[0].clone();
        (pod.phase, pod.reason) == ("Failed".to_owned(), Some("SandboxLost".to_owned()))
    };
    assert!(lost(&node), "{:?}", node.reported());
    node.crash_agent();
    node.start_agent();
    node.run_for(SOON).settle(TWO_MINUTES);
    assert!(lost(&node), "{:?}", node.reported());
    let next = node.put("web.json", &PodTemplate::steady("web"));
    node.run_for(SOON).settle(TWO_MINUTES);
    assert_eq!(web(&node).revision, next.revision);
}

/// As with containers, containerd tells of the end before it records it. The minute's
/// listing would find it, too.
#[test]
fn a_sandbox_whose_end_is_recorded_late_is_replaced_at_once() {
    for lag in [1, 30, 400] {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        node.run_for(TWO_MINUTES).settle(SOON);
        node.kill_sandbox_recorded_after("web", Duration::from_millis(lag));
        node.run_for(Duration::from_secs(15));
        assert_eq!(web(&node).attempt, 1, "recorded after {lag} ms");
    }
}
