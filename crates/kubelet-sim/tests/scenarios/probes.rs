//! Probes across restarts, terminations and jumps of the clock.

use std::time::Duration;

use jiff::SignedDuration;
use kubelet_sim::{
    ContainerTemplate, PodTemplate, ProbeRole, ProbeTemplate, Program, SimWorld, Way,
};

use crate::{SOON, expect_untouched, node_with, web};

const TWO_MINUTES: Duration = Duration::from_secs(120);
const WAYS: [Way; 4] = [Way::Exec, Way::Http, Way::Tcp, Way::Grpc];

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn serving(from_ms: u32, until_ms: u32) -> PodTemplate {
    PodTemplate::steady("web").program(Program::Serve { from_ms, until_ms, term_ms: 200 })
}

fn probed(template: PodTemplate, role: ProbeRole, way: Way) -> PodTemplate {
    template.with_app(|app| *app = app.clone().probe(role, way, 1, 2))
}

/// What the agent says of the readiness of `web`; `None` while it says nothing.
fn ready(node: &SimWorld) -> Option<bool> {
    let pod = node.reported().into_iter().find(|pod| pod.name.starts_with("web"))?;
    let app = pod.containers.into_iter().find(|c| c.name == "app" && c.running)?;
    Some(app.ready)
}

#[test]
fn readiness_follows_the_container() {
    for way in WAYS {
        let template = probed(serving(5_000, 40_000), ProbeRole::Readiness, way);
        let mut node = SimWorld::new(1);
        node.start_agent();
        node.put("web.json", &template);
        node.wait_until("the start", SOON, |node| ready(node).is_some());
        assert_eq!(ready(&node), Some(false), "{way:?}: it has not answered yet");
        node.wait_until("readiness", secs(10), |node| ready(node) == Some(true));
        node.wait_until("unreadiness", SOON, |node| ready(node) == Some(false));
        assert_eq!(web(&node).attempt, 0, "{way:?}: it is not restarted for that");
    }
}

#[test]
fn readiness_is_told_while_the_pod_is_being_stopped() {
    for way in WAYS {
        let serves = Program::Serve { from_ms: 0, until_ms: 30_000, term_ms: 20_000 };
        let template = PodTemplate { grace_secs: 60, ..PodTemplate::steady("web").program(serves) };
        let (mut node, _) = node_with(&probed(template, ProbeRole::Readiness, way));
        node.wait_until("readiness", SOON, |node| ready(node) == Some(true));
        node.run_for(secs(20));
        node.delete("web.json");
        node.run_for(secs(2));
        assert_eq!(ready(&node), Some(true), "{way:?}: it answers still");
        // It drains: it answers no more, and ends ten seconds later.
        node.wait_until("unreadiness", secs(14), |node| ready(node) == Some(false));
        assert!(!node.running("web").is_empty(), "{way:?}: it has not ended yet");
    }
}

#[test]
fn readiness_does_not_flap_when_the_agent_restarts() {
    for way in WAYS {
        let template = probed(serving(0, 0), ProbeRole::Readiness, way);
        let template = probed(template, ProbeRole::Startup, way);
        let (mut node, _) = node_with(&template);
        node.wait_until("readiness", SOON, |node| ready(node) == Some(true));
        node.run_for(secs(30));
        let before = web(&node);
        for down in [0, 5, 60] {
            node.crash_agent();
            node.run_for(secs(down));
            node.start_agent();
            for _ in 0..200 {
                node.run_for(Duration::from_millis(50));
                node.expect(ready(&node) != Some(false), "ready all the time");
            }
            assert_eq!(ready(&node), Some(true));
        }
        expect_untouched(&node, &before);
    }
}

#[test]
fn liveness_failure_restarts_the_container() {
    for way in WAYS {
        let template = probed(serving(0, 20_000), ProbeRole::Liveness, way);
        let (mut node, _) = node_with(&template);
        node.run_for(secs(18));
        assert_eq!(web(&node).attempt, 0, "{way:?}: it is well");
        node.wait_until("the restart", secs(15), |node| {
            node.running("web").first().is_some_and(|c| c.attempt == 1)
        });
    }
}

/// One that never starts is restarted by its startup probe, and its liveness
/// has no say before.
#[test]
fn startup_failure_restarts_the_container() {
    let template = probed(serving(600_000, 0), ProbeRole::Startup, Way::Http);
    let (mut node, _) = node_with(&probed(template, ProbeRole::Liveness, Way::Http));
    node.wait_until("the restart", SOON, |node| {
        node.running("web").first().is_some_and(|c| c.attempt >= 3)
    });
}

/// An agent that was away for longer than a start may take cannot know whether it
/// succeeded: it must ask.
#[test]
fn startup_is_asked_for_after_the_agent_was_away() {
    for way in WAYS {
        let mut node = SimWorld::new(1);
        node.start_agent();
        node.put("web.json", &probed(serving(600_000, 0), ProbeRole::Startup, way));
        node.wait_until("the start", SOON, |node| !node.running("web").is_empty());
        node.crash_agent();
        node.run_for(TWO_MINUTES);
        assert_eq!(web(&node).attempt, 0, "{way:?}: nobody looked");
        node.start_agent();
        node.wait_until("the restart", SOON, |node| {
            node.running("web").first().is_some_and(|c| c.attempt >= 1)
        });
        node.run_for(secs(2));
        node.expect(ready(&node) != Some(true), "it never started");
    }
}

#[test]
fn liveness_failure_during_termination_changes_nothing() {
    let slow = Program::Serve { from_ms: 0, until_ms: 30_000, term_ms: 15_000 };
    let mut template =
        probed(PodTemplate::steady("web").program(slow), ProbeRole::Liveness, Way::Tcp);
    template.grace_secs = 20;
    let (mut node, _) = node_with(&template);
    node.run_for(secs(26));
    let before = web(&node);
    node.delete("web.json");
    // It stops answering while it ends, and has its whole grace all the same.
    node.run_for(secs(10));
    expect_untouched(&node, &before);
    node.settle(SOON);
    assert_eq!(node.sandboxes("web"), 0);
}

/// A clock set back must not make new containers look old, nor hold probes.
#[test]
fn clock_set_back_keeps_probes_honest() {
    let template = probed(serving(10_000, 0), ProbeRole::Readiness, Way::Http);
    let template = probed(template, ProbeRole::Startup, Way::Http);
    for back in [20, 3_600] {
        let mut node = SimWorld::new(1);
        node.start_agent();
        node.run_for(secs(60));
        node.jump_wall(SignedDuration::from_secs(-back));
        node.put("web.json", &template.clone().with_app(|app| app.probes[1].1.failures = 30));
        node.wait_until("the start", SOON, |node| ready(node).is_some());
        assert_eq!(ready(&node), Some(false), "it has not answered yet");
        node.wait_until("readiness", secs(20), |node| ready(node) == Some(true));
        node.jump_wall(SignedDuration::from_secs(-back));
        node.crash_agent();
        node.start_agent();
        node.wait_until("readiness", secs(20), |node| ready(node) == Some(true));
        assert_eq!(web(&node).attempt, 0);
    }
}

#[test]
fn a_well_container_survives_probes_that_fail_now_and_then() {
    let sidecar = ContainerTemplate::new("s0", Program::Run { term_ms: 10 }).as_sidecar();
    let template = PodTemplate::steady("web")
        .with_init(sidecar.probe(ProbeRole::Liveness, Way::Tcp, 1, 3))
        .with_app(|app| *app = app.clone().probe(ProbeRole::Liveness, Way::Http, 1, 3));
    let (mut node, _) = node_with(&template);
    node.with_faults(|faults| faults.probe_lost = 0.1);
    // Three in a row are rare but right; the rules judge every stop.
    node.run_for(TWO_MINUTES * 5);
    node.with_faults(|faults| faults.probe_lost = 0.0);
    node.settle(TWO_MINUTES);
}

/// The same with its last probe changed.
fn but(template: PodTemplate, change: impl FnOnce(&mut ProbeTemplate)) -> PodTemplate {
    template.with_app(|app| change(&mut app.probes.last_mut().expect("it has a probe").1))
}

#[test]
fn a_probe_that_begins_late_condemns_late() {
    for way in WAYS {
        let template = probed(serving(600_000, 0), ProbeRole::Liveness, way);
        let (mut node, _) = node_with(&but(template, |probe| probe.delay_secs = 20));
        node.run_for(secs(18));
        assert_eq!(web(&node).attempt, 0, "{way:?}: nobody has asked yet");
        node.wait_until("the restart", secs(12), |node| {
            node.running("web").first().is_some_and(|c| c.attempt == 1)
        });
    }
}

#[test]
fn readiness_may_ask_for_several_successes() {
    let template = probed(serving(0, 0), ProbeRole::Readiness, Way::Http);
    let template = but(template, |probe| (probe.period_secs, probe.successes) = (2, 5));
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &template);
    node.wait_until("the start", SOON, |node| ready(node).is_some());
    for _ in 0..6 {
        node.run_for(secs(1));
        node.expect(ready(&node) == Some(false), "fewer than five answers");
    }
    node.wait_until("readiness", secs(10), |node| ready(node) == Some(true));
    // One that was ready before the agent restarted need not show it again.
    node.run_for(secs(60));
    node.crash_agent();
    node.start_agent();
    for _ in 0..200 {
        node.run_for(Duration::from_millis(50));
        node.expect(ready(&node) != Some(false), "ready all the time");
    }
}

#[test]
fn a_probe_may_have_a_grace_of_its_own() {
    for (own, least, most) in [(Some(3), 2, 6), (None, 15, 25)] {
        let slow = Program::Serve { from_ms: 0, until_ms: 20_000, term_ms: 60_000 };
        let template = PodTemplate { grace_secs: 20, ..PodTemplate::steady("web").program(slow) };
        let template = probed(template, ProbeRole::Liveness, Way::Exec);
        let (mut node, _) = node_with(&but(template, |probe| probe.grace_secs = own));
        node.wait_until("the stop", secs(40), |node| node.calls("StopContainer") == 1);
        node.run_for(secs(least));
        assert_eq!(web(&node).attempt, 0, "{own:?}: it has time left");
        node.wait_until("the kill", secs(most - least), |node| {
            node.running("web").first().is_none_or(|c| c.attempt == 1)
        });
    }
}
