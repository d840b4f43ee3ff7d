//! Statuses as tables: facts in, phase, containers and conditions out.

mod addresses;
mod case;
mod conditions;
mod containers;
mod details;
// Plans and statuses are told in one language; a test module has no importable parent.
#[allow(clippy::duplicate_mod)]
#[path = "../../pod_plan/tests/dsl.rs"]
mod dsl;
mod endings;
mod kinds;
mod phases;
mod probes;
mod resources;
mod restart_all;
mod transitions;

use expect_test::Expect;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, PodStatus};

use self::case::Case;
use super::Stage;
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
    let mut case = Case::of(scene.pod.clone()).stage(stage);
    case.waiting = plan_live(&scene.pod, &scene.seen, &scene.context(1)).waiting;
    case.problem = problem.map(str::to_owned);
    case.before = before.cloned();
    case.wall += jiff::SignedDuration::from_secs(later);
    case.generate(&scene.seen)
}

/// Phase, then a line per container: init, regular, ephemeral.
fn render(status: &PodStatus) -> String {
    let mut lines = vec![status.phase.clone().unwrap_or_default()];
    let init = status.init_container_statuses.iter().flatten();
    lines.extend(init.map(|status| format!("init {}", container(status))));
    lines.extend(status.container_statuses.iter().flatten().map(container));
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    lines.extend(ephemeral.map(|status| format!("debug {}", container(status))));
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
