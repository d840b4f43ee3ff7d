//! Resizes in place: what is cut short is done again, what fails holds nothing up.

use std::time::Duration;

use cri::CallErrorKind;
use kubelet::container_manager::allocatable::Allocatable;
use kubelet_sim::{ContainerTemplate, PodTemplate, Program, SimWorld, Size, Twist};

use crate::{SOON, expect_untouched, node_with, web};

const UPDATE: &str = "UpdateContainerResources";

/// A pod whose edits are resizes.
fn sized(memory_mib: i64) -> PodTemplate {
    let mut pod = PodTemplate::steady("web").with_uid("fixed");
    pod = pod.with_app(|app| app.size = Some(Size::new(100, memory_mib)));
    pod
}

#[test]
fn a_container_is_resized_without_a_restart() {
    let (mut node, _) = node_with(&sized(32));
    let before = web(&node);
    for memory_mib in [64, 16, 48] {
        node.put("web.json", &sized(memory_mib));
        node.settle(SOON);
        expect_untouched(&node, &before);
        assert_eq!(node.memory_limits("web"), (vec![2 * memory_mib], Some(2 * memory_mib)));
    }
}

#[test]
fn a_policy_restarts_it() {
    let restarting = |cpu_milli: i64| {
        sized(32).with_app(|app| {
            app.size = Some(Size { cpu_restarts: true, ..Size::new(cpu_milli, 32) });
        })
    };
    let (mut node, _) = node_with(&restarting(100));
    let before = web(&node);
    node.put("web.json", &restarting(300));
    node.settle(SOON);
    let after = web(&node);
    assert_ne!(after.id, before.id);
    assert_eq!(after.attempt, before.attempt + 1);
}

/// The allocation is kept, then the agent dies at the first call that puts it in
/// force: before it, or before it hears of it.
#[test]
fn the_agent_crashes_between_allocation_and_actuation() {
    for twist in [Twist::CrashBefore, Twist::CrashAfter] {
        for memory_mib in [16, 64] {
            let (mut node, _) = node_with(&sized(32));
            let before = web(&node);
            node.twist(UPDATE, twist.clone());
            node.put("web.json", &sized(memory_mib));
            node.run_for(SOON);
            node.start_agent();
            node.settle(SOON);
            expect_untouched(&node, &before);
            assert_eq!(node.memory_limits("web"), (vec![2 * memory_mib], Some(2 * memory_mib)));
        }
    }
}

/// The runtime has the new size, nobody has kept that, and the wish is taken back.
#[test]
fn a_wish_is_taken_back_while_the_agent_is_down() {
    for memory_mib in [16, 64] {
        let (mut node, _) = node_with(&sized(32));
        let before = web(&node);
        node.twist(UPDATE, Twist::CrashAfter);
        node.put("web.json", &sized(memory_mib));
        node.wait_until("the update", SOON, |node| node.memory_limits("web").0 != [64]);
        node.crash_agent();
        node.put("web.json", &sized(32));
        node.run_for(Duration::from_secs(30));
        node.start_agent();
        node.settle(SOON);
        expect_untouched(&node, &before);
        assert_eq!(node.memory_limits("web"), (vec![64], Some(64)));
    }
}

#[test]
fn a_refused_update_is_tried_again_and_holds_nothing_up() {
    let with_job = |memory_mib: i64| {
        let mut pod = sized(memory_mib);
        let job = Program::Exit { code: 1, after_ms: 1_000 };
        pod.containers.push(ContainerTemplate::new("job", job));
        pod
    };
    let mut node = SimWorld::new(1);
    node.start_agent();
    node.put("web.json", &with_job(32));
    node.run_for(Duration::from_secs(20));
    let refusal = || Twist::Refuse(CallErrorKind::Unreachable("simulated".to_owned()));
    for _ in 0..6 {
        node.twist(UPDATE, refusal());
    }
    node.put("web.json", &with_job(64));
    let restarts = |node: &SimWorld| {
        let pods = node.reported();
        let job = pods.iter().flat_map(|pod| &pod.containers).find(|c| c.name == "job");
        job.map_or(0, |job| job.restarts)
    };
    let before = restarts(&node);
    node.wait_until("the job to restart though the resize fails", SOON, |node| {
        restarts(node) > before && node.memory_limits("web").0.contains(&64)
    });
    node.wait_until("the resize", SOON * 4, |node| node.memory_limits("web").0.contains(&128));
}

#[test]
fn what_does_not_fit_waits_until_there_is_room() {
    let room = Allocatable { cpu_milli: 10_000, memory_bytes: 100 << 20, storage_bytes: 0 };
    let mut node = SimWorld::new(1).settings(|settings| settings.allocatable = room);
    node.start_agent();
    let other = PodTemplate { name: "other".to_owned(), ..sized(60).with_uid("other") };
    node.put("other.json", &other);
    node.put("web.json", &sized(32));
    node.settle(SOON);
    let before = web(&node);
    node.put("web.json", &sized(64));
    node.run_for(SOON);
    assert_eq!(node.memory_limits("web"), (vec![64], Some(64)), "it runs on as it was");
    expect_untouched(&node, &before);
    // The wish outlives the agent, and so does what was given.
    node.crash_agent();
    node.start_agent();
    node.run_for(SOON);
    assert_eq!(node.memory_limits("web"), (vec![64], Some(64)));
    node.delete("other.json");
    node.settle(SOON);
    assert_eq!(node.memory_limits("web"), (vec![128], Some(128)));
    expect_untouched(&node, &before);
}

#[test]
fn room_that_a_pod_gives_back_goes_to_the_one_that_waits() {
    let room = Allocatable { cpu_milli: 10_000, memory_bytes: 100 << 20, storage_bytes: 0 };
    let mut node = SimWorld::new(1).settings(|settings| settings.allocatable = room);
    node.start_agent();
    let other = |mib: i64| PodTemplate { name: "other".to_owned(), ..sized(mib).with_uid("other") };
    node.put("other.json", &other(60));
    node.put("web.json", &sized(32));
    node.settle(SOON);
    node.put("web.json", &sized(64));
    node.run_for(SOON);
    node.put("other.json", &other(20));
    node.settle(SOON);
    assert_eq!(node.memory_limits("web").0, [128]);
    assert_eq!(node.memory_limits("other").0, [40]);
}

/// A sidecar alone is restarted for it, before what it serves has ended.
#[test]
fn a_policy_restarts_a_sidecar_alone() {
    let with_sidecar = |cpu_milli: i64| {
        let size = Size { cpu_restarts: true, ..Size::new(cpu_milli, 32) };
        let program = Program::Run { term_ms: 100 };
        let mut sidecar = ContainerTemplate::new("s0", program).as_sidecar();
        sidecar.size = Some(size);
        sized(32).with_init(sidecar)
    };
    let running = |node: &SimWorld, name: &str| {
        let mut all = node.running("web").into_iter();
        all.find(|c| c.name == name).map(|c| c.id)
    };
    let (mut node, _) = node_with(&with_sidecar(100));
    let (app, sidecar) = (running(&node, "app"), running(&node, "s0"));
    node.put("web.json", &with_sidecar(300));
    node.settle(SOON);
    assert_eq!(running(&node, "app"), app, "what it serves runs on");
    assert!(running(&node, "s0").is_some_and(|id| Some(id) != sidecar));
}
