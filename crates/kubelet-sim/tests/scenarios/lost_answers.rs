//! Calls that hang, fail after taking effect, or meet a crash.

use std::time::Duration;

use kubelet_sim::{ContainerTemplate, PodTemplate, Restart, SimWorld, Twist};

use crate::web;

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// Starts a pod whose next `call` goes wrong, and waits until all is well.
fn starts_despite(call: &'static str, twist: Twist) -> SimWorld {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.twist(call, twist);
    node.put("web.json", &PodTemplate::steady("web"));
    node.settle(minutes(10));
    web(&node);
    node
}

fn reset() -> cri::CallErrorKind {
    cri::CallErrorKind::Unreachable("connection reset".into())
}

#[test]
fn sandbox_hangs_and_the_pod_is_deleted() {
    for twist in [
        Twist::HangBefore(minutes(3)),
        Twist::HangInside(minutes(3)),
        Twist::HangAfter(minutes(3)),
        Twist::Vanish,
    ] {
        let mut node = SimWorld::new(1);
        node.start_agent();
        node.twist("RunPodSandbox", twist);
        node.put("web.json", &PodTemplate::steady("web"));
        node.run_for(Duration::from_secs(5));
        node.delete("web.json");
        // The sandbox may appear long after the agent lost interest.
        node.run_for(minutes(4)).settle(minutes(2));
        assert_eq!(node.sandboxes("web"), 0);
    }
}

#[test]
fn a_hung_pod_delays_no_other() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.twist("RunPodSandbox", Twist::HangInside(minutes(5)));
    node.put("a.json", &PodTemplate::steady("stuck"));
    node.run_for(Duration::from_secs(5));
    node.put("web.json", &PodTemplate::steady("web"));
    node.wait_until("web runs", Duration::from_secs(20), |node| !node.running("web").is_empty());
}

#[test]
fn answer_of_run_pod_sandbox_is_lost() {
    let node = starts_despite("RunPodSandbox", Twist::LoseAnswer(reset()));
    assert_eq!(node.sandboxes("web"), 1, "the sandbox that was made is used");
}

#[test]
fn answer_of_create_container_is_lost() {
    starts_despite("CreateContainer", Twist::LoseAnswer(reset()));
}

#[test]
fn answer_of_start_container_is_lost() {
    let node = starts_despite("StartContainer", Twist::LoseAnswer(reset()));
    assert_eq!(web(&node).attempt, 0, "the container that runs is kept");
}

#[test]
fn start_container_takes_effect_after_the_caller_gave_up() {
    starts_despite("StartContainer", Twist::HangBefore(minutes(3)));
}

/// The effect may also come just while the agent tries again.
#[test]
fn start_container_takes_effect_while_it_is_tried_again() {
    for step in 0..60 {
        let mut node = SimWorld::new(step);
        node.with_faults(|faults| faults.latency_max = Duration::from_millis(800));
        node.start_agent();
        let late = minutes(2) + Duration::from_millis(500 * step);
        node.twist("StartContainer", Twist::HangBefore(late));
        node.put("web.json", &PodTemplate::steady("web"));
        node.run_for(minutes(4)).settle(minutes(2));
        web(&node);
    }
}

/// What an edit takes out of a pod must go, though the pod stays.
#[test]
fn container_removed_in_place_ends() {
    let mut template = PodTemplate::steady("web").with_uid("fixed");
    let extra = template.containers[0].program;
    template.containers.push(ContainerTemplate::new("extra", extra));
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &template);
    node.settle(minutes(1));
    let kept = node.running("web").into_iter().find(|c| c.name == "app");
    template.containers.pop();
    node.put("web.json", &template);
    node.settle(minutes(1));
    assert_eq!(Some(web(&node).id), kept.map(|c| c.id));
}

#[test]
fn start_of_a_run_once_pod_is_lost() {
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.twist("StartContainer", Twist::LoseAnswer(reset()));
    node.put("web.json", &PodTemplate::steady("web").restart(Restart::Never));
    node.settle(minutes(10));
    assert_eq!(web(&node).attempt, 0);
}

#[test]
fn stop_hangs_and_is_tried_again() {
    for twist in [Twist::Vanish, Twist::HangBefore(minutes(3)), Twist::HangAfter(minutes(3))] {
        for call in ["StopContainer", "StopPodSandbox", "RemovePodSandbox", "RemoveContainer"] {
            let mut node = starts_despite("none", Twist::Vanish);
            node.twist(call, twist.clone());
            node.delete("web.json");
            node.settle(minutes(15));
            assert_eq!(node.sandboxes("web"), 0, "{call} {twist:?}");
        }
    }
}

#[test]
fn crash_around_every_call_of_a_start() {
    for call in ["RunPodSandbox", "PullImage", "CreateContainer", "StartContainer"] {
        for twist in [Twist::CrashBefore, Twist::CrashAfter] {
            let mut node = SimWorld::new(1);
            node.with_faults(|faults| faults.images_absent = true);
            node.start_agent();
            node.twist(call, twist);
            node.put("web.json", &PodTemplate::steady("web"));
            node.settle(minutes(10));
            web(&node);
        }
    }
}

#[test]
fn crash_between_sandbox_and_container() {
    let node = starts_despite("CreateContainer", Twist::CrashBefore);
    assert_eq!(node.sandboxes("web"), 1, "the sandbox is used after the restart");
}

#[test]
fn crash_around_every_call_of_a_stop() {
    for call in ["StopContainer", "StopPodSandbox", "RemovePodSandbox", "RemoveContainer"] {
        for twist in [Twist::CrashBefore, Twist::CrashAfter] {
            let mut node = starts_despite("none", Twist::Vanish);
            node.twist(call, twist);
            node.delete("web.json");
            node.settle(minutes(10));
            assert_eq!(node.sandboxes("web"), 0);
        }
    }
}
