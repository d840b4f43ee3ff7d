//! Init containers, sidecars, hooks and rules, with something going wrong.

use std::time::Duration;

use kubelet_sim::{
    ContainerTemplate, Hook, HookWay, LiveContainer, OwnRestart, PodTemplate, ProbeRole, Program,
    Restart, SimWorld, Twist, Way,
};

use crate::{SOON, node_with};

const TWO_MINUTES: Duration = Duration::from_secs(120);
const STEADY: Program = Program::Run { term_ms: 200 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn init(name: &str, secs: u32) -> ContainerTemplate {
    ContainerTemplate::new(name, Program::Exit { code: 0, after_ms: secs * 1_000 })
}

fn sidecar(name: &str) -> ContainerTemplate {
    ContainerTemplate::new(name, STEADY).as_sidecar()
}

fn running(node: &SimWorld, name: &str) -> Option<LiveContainer> {
    node.running("web").into_iter().find(|c| c.name == name)
}

fn start(template: &PodTemplate) -> SimWorld {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", template);
    node
}

fn wait_for(node: &mut SimWorld, name: &str) -> LiveContainer {
    node.wait_until(name, TWO_MINUTES, |node| running(node, name).is_some());
    running(node, name).expect("it was waited for")
}

#[test]
fn agent_restarts_while_init_runs() {
    let template = PodTemplate::steady("web").with_init(init("i0", 5)).with_init(init("i1", 5));
    for down in [0, 1, 30] {
        let mut node = start(&template);
        let first = wait_for(&mut node, "i0");
        node.crash_agent();
        node.run_for(secs(down));
        node.start_agent();
        if down < 5 {
            node.run_for(secs(1));
            assert_eq!(running(&node, "i0"), Some(first), "it runs on");
        }
        assert_eq!(wait_for(&mut node, "i1").attempt, 0);
        assert_eq!(wait_for(&mut node, "app").attempt, 0);
        node.settle(SOON);
        assert_eq!(node.sandboxes("web"), 1);
    }
}

#[test]
fn sandbox_dies_while_init_runs() {
    let template = PodTemplate::steady("web").with_init(init("i0", 3)).with_init(init("i1", 30));
    let mut node = start(&template);
    wait_for(&mut node, "i1");
    node.kill_sandbox("web");
    let again = wait_for(&mut node, "i0");
    assert_eq!(again.attempt, 1, "the pod begins anew");
    assert!(running(&node, "i1").is_none(), "the old one is gone");
    wait_for(&mut node, "app");
    node.settle(TWO_MINUTES);
}

#[test]
fn flaky_init_is_tried_again() {
    let flaky = ContainerTemplate::new("i0", Program::Flaky { fails: 2, after_ms: 500 });
    for (restart, runs) in
        [(Restart::Always, true), (Restart::OnFailure, true), (Restart::Never, false)]
    {
        let template = PodTemplate::steady("web").restart(restart).with_init(flaky.clone());
        let mut node = start(&template);
        node.run_for(TWO_MINUTES).settle(SOON);
        assert_eq!(running(&node, "app").is_some(), runs, "{restart:?}");
        let phase = if runs { "Running" } else { "Failed" };
        assert_eq!(node.reported()[0].phase, phase);
    }
}

#[test]
fn sidecar_crashes_before_initialisation() {
    let template = PodTemplate::steady("web").with_init(sidecar("s0")).with_init(init("i1", 20));
    let mut node = start(&template);
    wait_for(&mut node, "i1");
    let victim = running(&node, "s0").expect("it started first");
    node.kill(&victim.id);
    node.wait_until("the sidecar's return", SOON, |node| running(node, "s0").is_some());
    assert_eq!(running(&node, "i1").map(|c| c.attempt), Some(0), "what has begun goes on");
    assert_eq!(wait_for(&mut node, "app").attempt, 0);
    node.settle(SOON);
}

#[test]
fn sidecar_crashes_after_initialisation() {
    let template = PodTemplate::steady("web").with_init(init("i0", 1)).with_init(sidecar("s1"));
    let (mut node, _) = node_with(&template);
    let app = wait_for(&mut node, "app");
    for attempt in 1..4 {
        let victim = wait_for(&mut node, "s1");
        node.kill(&victim.id);
        node.wait_until("the sidecar's return", SOON, |node| {
            running(node, "s1").is_some_and(|c| c.attempt == attempt)
        });
        assert_eq!(running(&node, "app").as_ref(), Some(&app), "it does not notice");
    }
    node.settle(SOON);
}

#[test]
fn sidecar_holds_others_until_it_has_started() {
    let slow = Program::Serve { from_ms: 15_000, until_ms: 0, term_ms: 100 };
    let probed =
        ContainerTemplate::new("s0", slow).as_sidecar().probe(ProbeRole::Startup, Way::Tcp, 1, 30);
    let mut node = start(&PodTemplate::steady("web").with_init(probed));
    wait_for(&mut node, "s0");
    node.run_for(secs(12));
    assert!(running(&node, "app").is_none(), "its sidecar has not started");
    wait_for(&mut node, "app");
    node.settle(SOON);
}

/// With no regular container left to show that the pod was initialised, one that
/// ended waits until its sidecar is back.
#[test]
fn the_last_container_that_ended_waits_for_its_sidecar() {
    let crashing = |secs: u32| Program::Exit { code: 1, after_ms: secs * 1_000 };
    let template = PodTemplate::steady("web")
        .program(crashing(3))
        .with_init(ContainerTemplate::new("s0", crashing(4)).as_sidecar());
    let mut node = start(&template);
    let mut sidecar_ran = false;
    let mut attempts = Vec::new();
    for _ in 0..6_000 {
        node.run_for(Duration::from_millis(100));
        let sidecar_runs = running(&node, "s0").is_some();
        let attempt = running(&node, "app").map(|app| app.attempt);
        if let Some(attempt) = attempt.filter(|attempt| !attempts.contains(attempt)) {
            node.expect(sidecar_ran || sidecar_runs, "app starts beside its sidecar only");
            attempts.push(attempt);
        }
        sidecar_ran = sidecar_runs;
    }
    assert!(attempts.len() > 5, "both come back again and again: {attempts:?}");
    node.settle(SOON);
}

/// The rules see to the order; here it is that all end at all.
#[test]
fn sidecars_end_last_even_if_stops_fail() {
    let reset = || cri::CallErrorKind::Unreachable("connection reset".into());
    for twist in [None, Some(Twist::Refuse(reset())), Some(Twist::LoseAnswer(reset()))] {
        let template = PodTemplate::steady("web")
            .program(Program::Run { term_ms: 2_000 })
            .with_init(sidecar("s0"))
            .with_init(sidecar("s1"));
        let (mut node, _) = node_with(&template);
        node.delete("web.json");
        if let Some(twist) = twist {
            node.twist("StopContainer", twist);
        }
        node.run_for(secs(1));
        assert!(running(&node, "s0").is_some() && running(&node, "s1").is_some());
        node.settle(TWO_MINUTES);
        assert_eq!(node.sandboxes("web"), 0);
    }
}

#[test]
fn finished_pod_takes_its_sidecars_along() {
    let done = Program::Exit { code: 0, after_ms: 3_000 };
    let template =
        PodTemplate::steady("web").restart(Restart::Never).program(done).with_init(sidecar("s0"));
    let (mut node, _) = node_with(&template);
    node.wait_until("the end", SOON, |node| node.running("web").is_empty());
    node.settle(SOON);
    assert_eq!(node.reported()[0].phase, "Succeeded");
}

#[test]
fn pre_stop_that_hangs_is_cut_off() {
    let hook = Hook { code: 0, way: HookWay::Exec, takes_ms: Hook::HANGS };
    let template = PodTemplate::steady("web").with_app(|app| app.pre_stop = Some(hook));
    let (mut node, _) = node_with(&template);
    node.delete("web.json");
    node.run_for(secs(3));
    assert!(running(&node, "app").is_some(), "its hook has time left");
    // Five seconds of grace, two more at the least for the signal.
    node.wait_until("the end", secs(6), |node| node.running("web").is_empty());
    node.settle(SOON);
}

#[test]
fn pre_stop_that_hangs_meets_an_agent_restart() {
    let hook = Hook { code: 0, way: HookWay::Exec, takes_ms: Hook::HANGS };
    let template = PodTemplate::steady("web").with_app(|app| app.pre_stop = Some(hook));
    let (mut node, _) = node_with(&template);
    node.delete("web.json");
    node.run_for(secs(3));
    node.crash_agent();
    node.start_agent();
    // Only the runtime knows the pod now; what it keeps of it must do.
    node.settle(SOON);
    assert_eq!(node.sandboxes("web"), 0);
}

#[test]
fn post_start_that_fails_restarts_its_container() {
    let hook = Hook { code: 1, way: HookWay::Exec, takes_ms: 500 };
    let template = PodTemplate::steady("web").with_app(|app| app.post_start = Some(hook));
    let mut node = start(&template);
    node.wait_until("some restarts", TWO_MINUTES, |node| {
        running(node, "app").is_some_and(|c| c.attempt == 3)
    });
    node.delete("web.json");
    node.settle(SOON);
}

#[test]
fn post_start_that_hangs_gives_way_to_a_deletion() {
    let hook = Hook { code: 0, way: HookWay::Exec, takes_ms: Hook::HANGS };
    let template = PodTemplate::steady("web").with_app(|app| app.post_start = Some(hook));
    let mut node = start(&template);
    wait_for(&mut node, "app");
    node.run_for(secs(10));
    node.delete("web.json");
    node.settle(SOON);
    assert_eq!(node.sandboxes("web"), 0);
}

fn restart_all(code: u8) -> PodTemplate {
    let rule = OwnRestart { policy: Restart::Never, code, all: true };
    PodTemplate::steady("web")
        .with_init(init("i0", 1))
        .with_init(sidecar("s1"))
        .program(Program::Flaky { fails: 1, after_ms: 5_000 })
        .restart(Restart::Never)
        .with_app(|app| app.own_restart = Some(rule))
}

#[test]
fn restart_all_begins_anew() {
    let mut node = start(&restart_all(1));
    wait_for(&mut node, "app");
    node.wait_until("the second init", SOON, |node| {
        running(node, "i0").is_some_and(|c| c.attempt == 1)
    });
    node.run_for(SOON).settle(SOON);
    assert_eq!(node.reported()[0].phase, "Succeeded", "the second time it works");
    assert!(node.running("web").is_empty());
}

#[test]
fn restart_all_meets_an_agent_crash() {
    for call in ["StopContainer", "RemoveContainer", "CreateContainer", "StartContainer"] {
        for twist in [Twist::CrashBefore, Twist::CrashAfter] {
            let mut node = start(&restart_all(1));
            wait_for(&mut node, "app");
            node.twist(call, twist.clone());
            node.run_for(TWO_MINUTES).settle(TWO_MINUTES);
            assert_eq!(node.reported()[0].phase, "Succeeded", "{call} {twist:?}");
        }
    }
}

#[test]
fn restart_all_meets_a_crash_at_each_removal() {
    for skipped in 0..3 {
        let mut node = start(&restart_all(1));
        wait_for(&mut node, "app");
        for _ in 0..skipped {
            node.twist("RemoveContainer", Twist::HangInside(secs(1)));
        }
        node.twist("RemoveContainer", Twist::CrashAfter);
        node.run_for(TWO_MINUTES).settle(TWO_MINUTES);
        assert_eq!(node.reported()[0].phase, "Succeeded", "after {skipped} removals");
    }
}

#[test]
fn a_crash_leaves_no_control_group_behind() {
    for call in ["StopPodSandbox", "RemoveContainer", "RemovePodSandbox"] {
        let (mut node, _) = node_with(&PodTemplate::steady("web"));
        node.twist(call, Twist::CrashAfter);
        node.delete("web.json");
        node.run_for(TWO_MINUTES).settle(SOON);
    }
}
