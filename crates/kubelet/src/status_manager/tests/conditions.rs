//! Conditions: what holds, why not, since when.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{PodCondition, PodReadinessGate, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::case::Case;
use super::{conditions, dsl, status, story};
use crate::status_manager::Stage;

fn check_conditions(text: &str, expected: Expect) {
    expected.assert_eq(&conditions(&story(&[text])));
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
            PodReadyToStartContainers=False waiting for the sandbox: it is yet to be created
            Initialized=True
            Ready=False ContainersNotReady: containers with unready status: [app web]
            ContainersReady=False ContainersNotReady: containers with unready status: [app web]
            PodScheduled=True"#]],
    );
}

#[test]
fn a_sandbox_without_a_network_is_not_ready_to_start_containers() {
    let ready = |text: &str| {
        let first = conditions(&story(&[text])).lines().next().map(str::to_owned)?;
        first.split_whitespace().next().map(str::to_owned)
    };
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

/// The line of one condition.
fn line(status: &PodStatus, kind: &str) -> String {
    let all = conditions(status);
    let found = all.lines().find(|line| line.starts_with(&format!("{kind}=")));
    found.expect("a condition of that type").to_owned()
}

#[test]
fn a_pod_without_a_sandbox_says_what_it_waits_for() {
    let told = |case: &Case, items: &str| line(&case.sees(items), "PodReadyToStartContainers");
    let case = Case::new("Never | app |");
    for (items, missing) in [
        ("no sandbox", "it is yet to be created"),
        ("sandbox 0 dead", "the last one has stopped, and a new one is yet to be created"),
        (
            "sandbox 0 ready; sandbox 1 ready",
            "more than one is ready, and a single new one will replace them",
        ),
        ("sandbox 0 ready hostnet", "it has the wrong network namespace and will be replaced"),
        ("sandbox 0 ready noip", "it has no network address and will be replaced"),
    ] {
        let expected =
            format!("PodReadyToStartContainers=False waiting for the sandbox: {missing}");
        assert_eq!(told(&case, items), expected, "{items}");
    }
    let no = "PodReadyToStartContainers=False";
    assert_eq!(told(&case, "sandbox 0 dead; app exited=1"), no, "it waits for nothing");
    assert_eq!(told(&case.stage(Stage::Terminating), "no sandbox"), no, "it waits for nothing");
}

#[test]
fn init_containers_that_have_not_finished_are_named() {
    let case = Case::new("Always setup proxy* next | app |");
    let told = |items: &str| line(&case.sees(items), "Initialized");
    let no = "Initialized=False ContainersNotInitialized: containers with incomplete status:";
    assert_eq!(told("no sandbox"), format!("{no} [setup proxy next]"));
    assert_eq!(told("setup exited=0; proxy running"), format!("{no} [next]"));
    assert_eq!(told("setup exited=0; proxy exited=1"), format!("{no} [proxy next]"));
    assert_eq!(told("setup exited=0; proxy running; next exited=0"), "Initialized=True");
    assert_eq!(told("proxy exited=1; app running"), "Initialized=True");
}

#[test]
fn a_pod_that_was_initialized_stays_so() {
    let case = Case::new("Always setup | app |").then("setup exited=0; app running");
    assert_eq!(
        line(&case.sees("sandbox 1 ready; setup running"), "Initialized"),
        "Initialized=True"
    );
}

#[test]
fn sidecars_have_to_be_ready_too() {
    let case = Case::new("Always setup proxy* | web app |");
    let told = |items: &str| line(&case.sees(items), "ContainersReady");
    let no = "ContainersReady=False ContainersNotReady: containers with unready status:";
    assert_eq!(told("setup running"), format!("{no} [proxy web app]"));
    assert_eq!(told("setup exited=0; app running; web running"), format!("{no} [proxy]"));
    assert_eq!(told("proxy running; app running; web running"), "ContainersReady=True");
}

#[test]
fn readiness_gates_hold_back_the_pod_but_not_its_containers() {
    let gate = |name: &str| PodReadinessGate { condition_type: name.to_owned() };
    let case =
        Case::new("Always | app |").spec(|s| s.readiness_gates = Some(vec![gate("a"), gate("b")]));
    let with = |a: &str| {
        let status = ["a", "Ready"].map(|kind| PodCondition {
            type_: kind.to_owned(),
            status: a.to_owned(),
            ..PodCondition::default()
        });
        let conditions = Some(status.to_vec());
        case.clone().pod(|pod| pod.status = Some(PodStatus { conditions, ..PodStatus::default() }))
    };
    let missing = "corresponding condition of pod readiness gate \"b\" does not exist.";
    let status = with("False").sees("app running");
    assert_eq!(
        line(&status, "Ready"),
        format!(
            "Ready=False ReadinessGatesNotReady: the status of pod readiness gate \"a\" is not \"True\", but False, {missing}"
        )
    );
    assert_eq!(line(&status, "ContainersReady"), "ContainersReady=True");
    assert_eq!(line(&status, "a"), "a=False", "conditions of others are passed on");
    let ready = line(&with("True").sees("app running"), "Ready");
    assert_eq!(ready, format!("Ready=False ReadinessGatesNotReady: {missing}"));
    let open = with("True").spec(|s| s.readiness_gates = Some(vec![gate("a")]));
    let all = conditions(&open.sees("app running"));
    assert_eq!(all.matches("\nReady=").count(), 1, "owned conditions are replaced: {all}");
    assert!(all.contains("\nReady=True"), "{all}");
}

#[test]
fn statuses_say_which_version_of_the_pod_they_speak_of() {
    let generations = |generation: Option<i64>| {
        let case = Case::new("Always | app |").pod(|pod| pod.metadata.generation = generation);
        let status = case.sees("app running");
        let conditions = status.conditions.into_iter().flatten();
        let mut all: Vec<_> = conditions.map(|c| c.observed_generation).collect();
        all.push(status.observed_generation);
        all.dedup();
        all
    };
    assert_eq!(generations(Some(7)), [Some(7)]);
    assert_eq!(generations(Some(0)), [None]);
    assert_eq!(generations(None), [None]);
}
