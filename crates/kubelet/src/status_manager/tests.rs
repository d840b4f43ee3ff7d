//! Statuses as tables: facts in, phase, containers and conditions out.

// Plans and statuses are told in one language; a test module has no importable parent.
#[allow(clippy::duplicate_mod)]
#[path = "../pod_plan/tests/dsl.rs"]
mod dsl;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Facts, Stage, generate, is_terminal};
use crate::pod_plan::plan_live;

/// The status after each scene of a story, in which every status is the next
/// one's past. A scene starts with `terminating` or `terminated` if it is.
fn story(scenes: &[&str]) -> PodStatus {
    let mut before = None;
    for (number, text) in (0i64..).zip(scenes) {
        before = Some(status(text, before.as_ref(), number * 10, None));
    }
    before.expect("a story has a scene")
}

fn status(text: &str, before: Option<&PodStatus>, later: i64, problem: Option<&str>) -> PodStatus {
    let (stage, text) = match text.split_once(' ').expect("a scene has words") {
        ("terminating", rest) => (Stage::Terminating, rest),
        ("terminated", rest) => (Stage::Terminated, rest),
        _ => (Stage::Live, text),
    };
    let scene = dsl::scene(text);
    let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
    generate(&Facts {
        pod: &scene.pod,
        seen: &scene.seen,
        waiting: &plan.waiting,
        pod_problem: problem,
        before,
        stage,
        runtime_name: "containerd",
        node_ips: &["192.0.2.1".to_owned(), "2001:db8::1".to_owned(), "192.0.2.9".to_owned()],
        wall: dsl::wall() + jiff::SignedDuration::from_secs(later),
    })
}

/// Phase, then a line per container.
fn render(status: &PodStatus) -> String {
    let mut lines = vec![status.phase.clone().unwrap_or_default()];
    lines.extend(status.container_statuses.iter().flatten().map(container));
    lines.join("\n")
}

fn container(status: &ContainerStatus) -> String {
    let mut text = format!("{} {}", status.name, state(status.state.as_ref()));
    if status.ready {
        text.push_str(" ready");
    }
    if status.started == Some(true) {
        text.push_str(" started");
    }
    if status.restart_count > 0 {
        text.push_str(&format!(" restarts={}", status.restart_count));
    }
    match state(status.last_state.as_ref()).as_str() {
        "" => {}
        last => text.push_str(&format!(" last {last}")),
    }
    text
}

fn state(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return "missing".to_owned() };
    let waiting = state.waiting.as_ref().map(|waiting| {
        ["waiting", waiting.reason.as_deref().unwrap_or_default()].join(" ").trim().to_owned()
    });
    let running = state.running.as_ref().map(|_| "running".to_owned());
    let terminated = state.terminated.as_ref().map(|ended| {
        format!("exited={} {}", ended.exit_code, ended.reason.as_deref().unwrap_or_default())
    });
    [waiting, running, terminated].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

fn conditions(status: &PodStatus) -> String {
    let condition = |condition: &PodCondition| {
        let because: Vec<_> =
            [&condition.reason, &condition.message].into_iter().flatten().cloned().collect();
        format!("{}={} {}", condition.type_, condition.status, because.join(": ")).trim().to_owned()
    };
    let all = status.conditions.as_ref().expect("a status has conditions");
    all.iter().map(condition).collect::<Vec<_>>().join("\n")
}

fn check(text: &str, expected: Expect) {
    check_story(&[text], expected);
}

fn check_story(scenes: &[&str], expected: Expect) {
    expected.assert_eq(&render(&story(scenes)));
}

fn check_conditions(text: &str, expected: Expect) {
    expected.assert_eq(&conditions(&story(&[text])));
}

fn check_phase(text: &str, phase: &str) {
    assert_eq!(story(&[text]).phase.as_deref(), Some(phase), "{text}");
}

#[test]
fn a_pod_that_is_being_made_is_pending() {
    check(
        "web Always: no sandbox",
        expect![[r#"
            Pending
            app waiting ContainerCreating"#]],
    );
    check(
        "web Always: app created",
        expect![[r#"
            Pending
            app waiting"#]],
    );
}

#[test]
fn statuses_are_sorted_by_name_and_only_of_the_spec() {
    check(
        "web Always web,app: web running; other running; app running",
        expect![[r#"
            Running
            app running ready started
            web running ready started"#]],
    );
}

#[test]
fn the_newest_two_instances_make_state_and_last_state() {
    check(
        "web Always: app running restarts=2; app exited=3 restarts=1; app exited=4 restarts=0",
        expect![[r#"
            Running
            app running ready started restarts=2 last exited=3 Error"#]],
    );
    check(
        "web Never: app exited=3 restarts=1; app exited=0 restarts=0",
        expect![[r#"
            Failed
            app exited=3 Error restarts=1 last exited=0 Completed"#]],
    );
}

#[test]
fn last_state_outlives_its_instance_but_not_the_next_restart() {
    let first = "web Always: app running restarts=1; app exited=3 restarts=0";
    check_story(
        &[first, "web Always: app running restarts=1"],
        expect![[r#"
            Running
            app running ready started restarts=1 last exited=3 Error"#]],
    );
    check_story(
        &[first, "web Always: app running restarts=2"],
        expect![[r#"
            Running
            app running ready started restarts=2"#]],
    );
}

#[test]
fn crash_loop_back_off_moves_the_exit_to_last_state() {
    check(
        "web Always: app exited=1 ago=3s restarts=2 crashes=2",
        expect![[r#"
            Running
            app waiting CrashLoopBackOff restarts=2 last exited=1 Error"#]],
    );
    check(
        "terminating web Always: app exited=1 ago=3s restarts=2 crashes=2",
        expect![[r#"
            Running
            app exited=1 Error restarts=2"#]],
    );
    let status = story(&["web Always: app exited=1 ago=3s crashes=2"]);
    let statuses = status.container_statuses.expect("statuses");
    let waiting = statuses[0].state.as_ref().and_then(|s| s.waiting.as_ref()).expect("waiting");
    expect!["back-off 20s restarting failed container=app pod=web_ns(u1)"]
        .assert_eq(waiting.message.as_deref().unwrap_or_default());
}

#[test]
fn a_failed_start_says_why() {
    check(
        "web Always: app failed=ErrImagePull retry=5s",
        expect![[r#"
            Pending
            app waiting ImagePullBackOff"#]],
    );
    check(
        "web Always: app exited=1 restarts=4; app failed=RunContainerError retry=5s",
        expect![[r#"
            Running
            app waiting RunContainerError restarts=4 last exited=1 Error"#]],
    );
}

#[test]
fn an_exit_tells_everything_the_runtime_said() {
    let status = story(&["web Never: app exited=3 ago=3s ran=5s"]);
    let statuses = status.container_statuses.expect("statuses");
    let json = |value: &ContainerStatus| serde_json::to_string_pretty(value).expect("plain data");
    expect![[r#"
        {
          "containerID": "containerd://app-0",
          "image": "registry/app:1",
          "imageID": "sha256:app",
          "lastState": {},
          "name": "app",
          "ready": false,
          "restartCount": 0,
          "started": false,
          "state": {
            "terminated": {
              "containerID": "containerd://app-0",
              "exitCode": 3,
              "finishedAt": "2026-01-02T03:04:02Z",
              "reason": "Error",
              "startedAt": "2026-01-02T03:03:57Z"
            }
          }
        }"#]]
    .assert_eq(&json(&statuses[0]));
}

#[test]
fn a_running_container_that_vanished_is_lost() {
    check_story(
        &["web Always: app running", "web Always:"],
        expect![[r#"
            Running
            app waiting ContainerCreating restarts=1 last exited=137 ContainerStatusUnknown"#]],
    );
    check_story(
        &["web Never: app running", "web Never:"],
        expect![[r#"
            Failed
            app waiting ContainerCreating restarts=1 last exited=137 ContainerStatusUnknown"#]],
    );
    check_story(
        &["web Always: app running", "terminating web Always:"],
        expect![[r#"
            Running
            app waiting ContainerCreating last exited=137 ContainerStatusUnknown"#]],
    );
    let status = story(&["web Always: app running", "web Always:"]);
    let statuses = status.container_statuses.expect("statuses");
    let last = statuses[0].last_state.as_ref().and_then(|s| s.terminated.as_ref()).expect("an end");
    expect!["The container could not be located when the pod was deleted.  The container used to be Running"]
        .assert_eq(last.message.as_deref().unwrap_or_default());
}

#[test]
fn what_was_lost_once_is_not_counted_again() {
    check_story(
        &["web Always: app running", "web Always:", "web Always:"],
        expect![[r#"
            Running
            app waiting ContainerCreating restarts=1 last exited=137 ContainerStatusUnknown"#]],
    );
}

/// Upstream leaves a record that is already there, and the count with it.
#[test]
fn a_lost_container_keeps_the_last_state_it_had() {
    check_story(
        &["web Always: app running restarts=1; app exited=3", "web Always:"],
        expect![[r#"
            Running
            app waiting ContainerCreating restarts=1 last exited=3 Error"#]],
    );
}

#[test]
fn a_container_of_unknown_state_that_ran_has_ended() {
    check_story(
        &["web Always: app running", "web Always: app unknown"],
        expect![[r#"
            Running
            app exited=137 ContainerStatusUnknown restarts=1"#]],
    );
    check(
        "web Always: app unknown",
        expect![[r#"
            Pending
            app waiting"#]],
    );
}

#[test]
fn an_exit_outlives_its_instance() {
    check_story(
        &["web Never: app exited=0 restarts=1", "terminated web Never: no sandbox"],
        expect![[r#"
            Succeeded
            app exited=0 Completed restarts=1"#]],
    );
}

/// A container without a readiness probe is ready as long as it runs.
#[test]
fn what_still_runs_while_the_pod_ends_is_ready() {
    check_story(
        &["web Always: app running", "terminating web Always: app running"],
        expect![[r#"
            Running
            app running ready started"#]],
    );
}

#[test]
fn phases() {
    for (text, phase) in [
        ("web Always: app running", "Running"),
        ("web Always: app exited=0", "Running"),
        ("web Always: app exited=1", "Running"),
        ("web OnFailure: app exited=0", "Succeeded"),
        ("web OnFailure: app exited=1", "Running"),
        ("web Never: app exited=0", "Succeeded"),
        ("web Never: app exited=1", "Failed"),
        ("web Never app,db: app exited=0; db exited=0", "Succeeded"),
        ("web Never app,db: app exited=0; db exited=1", "Failed"),
        ("web Never app,db: app exited=1; db running", "Running"),
        ("web Never app,db: app exited=1", "Pending"),
        ("web Always app,db: app running", "Pending"),
        ("web OnFailure app,db: app exited=0; db exited=1", "Running"),
        ("web OnFailure app,db: app exited=0; db exited=0", "Succeeded"),
        ("web OnFailure app,db: app exited=0; db exited=1 ago=3s crashes=2", "Running"),
        ("terminated web Always: app exited=0", "Running"),
        ("terminated web Never: app exited=137", "Failed"),
    ] {
        check_phase(text, phase);
    }
}

#[test]
fn a_terminal_phase_stays() {
    let status = story(&["web Never: app exited=1", "web Never: app running restarts=1"]);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert!(is_terminal(&status));
    let status = story(&["web Never: app exited=0", "terminated web Never: app exited=1"]);
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert!(!is_terminal(&story(&["web Always: app exited=1"])));
}

#[test]
fn conditions_of_a_ready_pod() {
    check_conditions(
        "web Always: app running",
        expect![[r#"
            PodReadyToStartContainers=True
            Initialized=True
            Ready=True
            ContainersReady=True
            PodScheduled=True"#]],
    );
}

#[test]
fn unready_containers_are_named() {
    check_conditions(
        "web Always app,db,web: no sandbox; db running",
        expect![[r#"
            PodReadyToStartContainers=False
            Initialized=True
            Ready=False ContainersNotReady: containers with unready status: [app web]
            ContainersReady=False ContainersNotReady: containers with unready status: [app web]
            PodScheduled=True"#]],
    );
}

#[test]
fn a_sandbox_without_a_network_is_not_ready_to_start_containers() {
    let ready = |text: &str| conditions(&story(&[text])).lines().next().map(str::to_owned);
    let (yes, no) = ("PodReadyToStartContainers=True", "PodReadyToStartContainers=False");
    assert_eq!(ready("web Always: sandbox 0 ready").as_deref(), Some(yes));
    assert_eq!(ready("web Always: sandbox 0 ready noip").as_deref(), Some(no));
    assert_eq!(ready("web Always: sandbox 0 dead").as_deref(), Some(no));
    assert_eq!(ready("web Always hostnet: sandbox 0 ready").as_deref(), Some(yes));
}

#[test]
fn conditions_of_an_ended_pod() {
    check_conditions(
        "web Never: app exited=0",
        expect![[r#"
            PodReadyToStartContainers=True
            Initialized=True PodCompleted
            Ready=False PodCompleted
            ContainersReady=False PodCompleted
            PodScheduled=True"#]],
    );
    check_conditions(
        "web Never: sandbox 0 dead; app exited=1",
        expect![[r#"
            PodReadyToStartContainers=False
            Initialized=True
            Ready=False PodFailed
            ContainersReady=False PodFailed
            PodScheduled=True"#]],
    );
}

#[test]
fn a_problem_of_the_whole_pod_is_told() {
    let status = status("web Always: no sandbox", None, 0, Some("no network"));
    let first = conditions(&status).lines().next().map(str::to_owned);
    assert_eq!(first.as_deref(), Some("PodReadyToStartContainers=False no network"));
    let statuses = status.container_statuses.expect("statuses");
    let waiting = statuses[0].state.as_ref().and_then(|s| s.waiting.as_ref()).expect("waiting");
    assert_eq!(waiting.message.as_deref(), Some("no network"));
}

/// Seconds after the first scene at which each condition last changed.
fn transitions(scenes: &[&str]) -> Vec<(String, i64)> {
    let all = story(scenes).conditions.expect("a status has conditions");
    let start = dsl::wall().as_second();
    let changed = |c: &PodCondition| {
        let Time(at) = c.last_transition_time.clone().expect("a time");
        assert_eq!(at.subsec_nanosecond(), 0, "times are whole seconds");
        (c.type_.clone(), at.as_second() - start)
    };
    all.iter().map(changed).collect()
}

#[test]
fn transition_times_change_only_with_the_status() {
    let scenes = [
        "web Always: no sandbox",
        "web Always: sandbox 0 ready",
        "web Always: app running",
        "web Always: app running",
    ];
    let expected = [
        ("PodReadyToStartContainers", 10),
        ("Initialized", 0),
        ("Ready", 20),
        ("ContainersReady", 20),
        ("PodScheduled", 0),
    ];
    let expected = expected.map(|(kind, at)| (kind.to_owned(), at));
    assert_eq!(transitions(&scenes), expected);
}

#[test]
fn a_new_reason_alone_is_no_transition() {
    let scenes = ["web Never: app running", "web Never:", "web Never: app exited=1"];
    let ready = transitions(&scenes).into_iter().find(|(kind, _)| kind == "Ready");
    assert_eq!(ready, Some(("Ready".to_owned(), 10)));
}

#[test]
fn the_start_time_is_set_once() {
    let start = |scenes: &[&str]| story(scenes).start_time.map(|Time(at)| at.to_string());
    let first = start(&["web Always: no sandbox"]);
    assert_eq!(first.as_deref(), Some("2026-01-02T03:04:05Z"));
    assert_eq!(start(&["web Always: no sandbox", "web Always: app running"]), first);
}

fn addresses(scenes: &[&str]) -> String {
    let status = story(scenes);
    let pod: Vec<_> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
    let host: Vec<_> = status.host_ips.into_iter().flatten().map(|ip| ip.ip).collect();
    assert_eq!(status.pod_ip.as_ref(), pod.first());
    assert_eq!(status.host_ip.as_ref(), host.first());
    format!("pod {} host {}", pod.join(" "), host.join(" "))
}

#[test]
fn addresses_come_from_the_newest_sandbox_and_the_node() {
    expect!["pod  host 192.0.2.1 2001:db8::1"].assert_eq(&addresses(&["web Always: no sandbox"]));
    expect!["pod 10.0.0.2 host 192.0.2.1 2001:db8::1"]
        .assert_eq(&addresses(&["web Always: sandbox 0 dead; sandbox 1 ready"]));
    expect!["pod 10.0.0.1 host 192.0.2.1 2001:db8::1"]
        .assert_eq(&addresses(&["web Always: sandbox 0 ready", "web Always: no sandbox"]));
}

#[test]
fn a_host_network_pod_has_the_nodes_addresses() {
    let text = addresses(&["web Always hostnet: sandbox 0 ready"]);
    assert!(text.starts_with("pod 192.0.2.1 2001:db8::1"), "{text}");
}
