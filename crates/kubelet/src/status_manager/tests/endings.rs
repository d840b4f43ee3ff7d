//! Pods that the agent ends, pods that are over, and their last words.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::PodStatus;
use kubelet_model::ContainerState;

use super::case::Case;
use super::{conditions, dsl, render};
use crate::status_manager::Stage;

const DEADLINE: (&str, &str) =
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");

fn outcome(status: &PodStatus) -> String {
    let words = [&status.phase, &status.reason, &status.message];
    words.into_iter().flatten().cloned().collect::<Vec<_>>().join(": ")
}

fn check(status: &PodStatus, expected: Expect) {
    expected.assert_eq(&render(status));
}

#[test]
fn a_pod_that_the_agent_ends_has_failed_and_says_why() {
    let case = Case::new("Always | app |").ended(DEADLINE.0, DEADLINE.1);
    let expected =
        "Failed: DeadlineExceeded: Pod was active on the node longer than the specified deadline";
    assert_eq!(outcome(&case.sees("app running")), expected);
    assert!(conditions(&case.sees("app running")).contains("Ready=False PodFailed"));
    let mut later = case.then("app running");
    later.ended = None;
    assert_eq!(outcome(&later.sees("app exited=137")), expected, "it is told to the end");
}

/// Beside what others say, and in place of what they said of the same.
#[test]
fn a_pod_that_the_node_ends_for_its_own_sake_has_a_condition_for_it() {
    let mut case = Case::new("Always | app |").ended("Terminated", "the node goes");
    let told = |status: &PodStatus| {
        let mut all = status.conditions.iter().flatten();
        let found = all.find(|c| c.type_ == "DisruptionTarget")?;
        let words = [&found.reason, &found.message];
        let words: Vec<_> = words.into_iter().flatten().map(String::as_str).collect();
        Some(format!("{}: {}", found.status, words.join(": ")))
    };
    assert_eq!(told(&case.sees("app running")), None, "nobody asked for one");
    if let Some(ended) = &mut case.ended {
        ended.disruption = Some("the node goes".to_owned());
    }
    let expected = Some("True: TerminationByKubelet: the node goes".to_owned());
    assert_eq!(told(&case.sees("app running")), expected);
    let ended = case.ended.clone();
    let later = case.then("app running");
    assert_eq!(told(&later.sees("app exited=137")), expected, "as long as the reason is told");
    let over = Case::new("Never | app |").then("app exited=0");
    let over = Case { ended, ..over };
    assert_eq!(told(&over.sees("app exited=0")), None, "it succeeded before");
}

#[test]
fn a_pod_that_is_over_is_not_ended_again() {
    let case = Case::new("Never | app |").then("app exited=0").ended(DEADLINE.0, DEADLINE.1);
    assert_eq!(outcome(&case.sees("app exited=0")), "Succeeded");
}

#[test]
fn an_ended_pod_leaves_no_container_without_an_end() {
    let pod = |text| Case::new(text).stage(Stage::Terminated);
    check(
        &pod("Always | app db |").sees("app created; no sandbox"),
        expect![[r#"
            Pending
            app exited=137 ContainerStatusUnknown
            db exited=137 ContainerStatusUnknown"#]],
    );
    check(
        &pod("Always setup next | app |").sees("setup exited=1"),
        expect![[r#"
            Pending
            init setup exited=1 Error
            init next waiting PodInitializing
            app waiting PodInitializing"#]],
    );
    check(
        &pod("Always setup next | app |").sees("no sandbox"),
        expect![[r#"
            Pending
            init setup exited=137 ContainerStatusUnknown
            init next waiting PodInitializing
            app waiting PodInitializing"#]],
    );
    check(
        &pod("Always proxy* setup | app |").sees("setup exited=0"),
        expect![[r#"
            Pending
            init proxy exited=137 ContainerStatusUnknown
            init setup exited=0 Completed ready
            app exited=137 ContainerStatusUnknown"#]],
    );
}

#[test]
fn a_pod_that_is_removed_before_it_ran_has_neither_run_nor_failed() {
    for (pod, seen, phase) in [
        ("Never | app |", "no sandbox", "Pending"),
        ("Always | app |", "app created", "Pending"),
        ("Never setup | app |", "setup exited=0", "Pending"),
        ("Never | app db |", "app exited=0", "Pending"),
        ("Always | app |", "app exited=0", "Running"),
    ] {
        let case = Case::new(pod).stage(Stage::Terminated).then(seen);
        assert_eq!(outcome(&case.sees(seen)), phase, "{pod}: {seen}");
        assert_eq!(outcome(&case.sees("no sandbox")), phase, "{pod}: {seen}, then nothing");
    }
    let lost = Case::new("Never | app |").then("app running").stage(Stage::Terminated);
    let lost = lost.then("no sandbox");
    assert_eq!(outcome(&lost.sees("no sandbox")), "Failed");
}

/// Bytes of each message that the status carries, of exits that said `text`.
fn message_bytes(case: &Case, items: &str, text: &str) -> Vec<usize> {
    let mut seen = dsl::scene(&format!("web Always: {items}")).seen;
    for container in &mut seen.containers {
        if let ContainerState::Exited(exit) = &mut container.state {
            exit.message = text.to_owned();
        }
    }
    let status = case.generate(&seen);
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let states = all.flat_map(|status| [&status.state, &status.last_state]).flatten();
    let ends = states.filter_map(|state| state.terminated.as_ref());
    ends.map(|ended| ended.message.as_ref().map_or(0, String::len)).collect()
}

#[test]
fn the_containers_of_a_pod_share_the_room_for_last_words() {
    let long = "x".repeat(20_000);
    let one = Case::new("Never | app |");
    assert_eq!(message_bytes(&one, "app exited=1", &long), [12_288]);
    assert_eq!(message_bytes(&one, "app exited=1 restarts=1; app exited=1", "short"), [5, 5]);
    let five = Case::new("Never a b | app db | debug");
    let items = "a exited=0; b exited=0; app exited=1 restarts=1; app exited=1; db exited=1";
    assert_eq!(message_bytes(&five, items, &long), [2457; 5]);
    // 2457 is no multiple of 2: the last character would be cut in half.
    assert_eq!(message_bytes(&five, items, &"é".repeat(2000)), [2456; 5]);
}
