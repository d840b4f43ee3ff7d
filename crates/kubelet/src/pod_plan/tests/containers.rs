//! Which containers start, stop, stay or wait.

use expect_test::expect;

use super::{check, check_keeping, dsl};
use crate::pod_plan::plan_live;

#[test]
fn the_policy_decides_what_restarts() {
    check("web Always: app exited=0", expect!["start app restarts=1"]);
    check("web Always: app exited=1", expect!["start app restarts=1"]);
    check("web OnFailure: app exited=0", expect!["nothing"]);
    check("web OnFailure: app exited=1", expect!["start app restarts=1"]);
    check("web Never: app exited=0", expect!["nothing"]);
    check("web Never: app exited=1", expect!["nothing"]);
}

#[test]
fn what_never_ran_starts_under_any_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        check(&format!("web {policy}:"), expect!["start app"]);
        check(
            &format!("web {policy}: app created"),
            expect![[r#"
                remove app-0
                start app restarts=1"#]],
        );
        check(
            &format!("web {policy}: app unknown"),
            expect![[r#"
                stop app-0 30s StateUnknown
                start app restarts=1"#]],
        );
    }
}

#[test]
fn containers_are_independent_and_start_in_order() {
    check(
        "web Always c,a,b: a running",
        expect![[r#"
            start c
            start b"#]],
    );
}

#[test]
fn a_changed_definition_restarts_under_any_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        check(
            &format!("web {policy} grace=7: app running changed restarts=1"),
            expect![[r#"
                stop app-1 7s DefinitionChanged
                start app restarts=2"#]],
        );
    }
    check("web Never: app exited=0 changed", expect!["nothing"]);
}

#[test]
fn nothing_stops_in_less_than_two_seconds() {
    check(
        "web Always grace=0: app running changed",
        expect![[r#"
            stop app-0 2s DefinitionChanged
            start app restarts=1"#]],
    );
    check(
        "web Always grace=1: app unknown",
        expect![[r#"
            stop app-0 2s StateUnknown
            start app restarts=1"#]],
    );
}

/// Two live instances of one name must never be; should it happen, one goes.
#[test]
fn an_older_instance_that_runs_stands_for_the_container() {
    check(
        "web Always: app running restarts=0; app exited=1 restarts=1 ago=60s",
        expect!["nothing"],
    );
    check(
        "web Always: app running restarts=0; app running restarts=1",
        expect![[r#"stop app-0 30s Superseded"#]],
    );
}

#[test]
fn the_first_restart_is_at_once_and_later_ones_wait_longer() {
    check("web Always: app exited=1 ago=0s", expect!["start app restarts=1"]);
    for (crashes, wake) in [(1, 7), (2, 17), (3, 37), (4, 77), (5, 157), (6, 297), (9, 297)] {
        let scene = dsl::scene(&format!("web Always: app exited=1 ago=3s crashes={crashes}"));
        let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
        let wake_at = plan.wake_at.map(|at| at.since(dsl::NOW).as_secs());
        assert_eq!(wake_at, Some(wake), "after {crashes} crashes");
        assert!(plan.steps.is_empty(), "after {crashes} crashes");
    }
}

#[test]
fn crashed_container_waits_out_backoff() {
    check(
        "web Always: app exited=1 ago=3s restarts=2 crashes=2",
        expect![[r#"
            app waits: CrashLoopBackOff
            wake 17s"#]],
    );
    check(
        "web Always: app exited=1 ago=19s restarts=2 crashes=2",
        expect![[r#"
            app waits: CrashLoopBackOff
            wake 1s"#]],
    );
    check("web Always: app exited=1 ago=20s crashes=2", expect!["start app restarts=1"]);
    check(
        "web Always: app exited=0 ago=3s crashes=1",
        expect![[r#"
            app waits: CrashLoopBackOff
            wake 7s"#]],
    );
    check("web OnFailure: app exited=0 ago=3s crashes=2", expect!["nothing"]);
}

#[test]
fn a_long_run_forgets_the_backoff() {
    check(
        "web Always: app exited=1 ago=3s ran=600s crashes=5",
        expect![[r#"
            app waits: CrashLoopBackOff
            wake 157s"#]],
    );
    check("web Always: app exited=1 ago=3s ran=601s crashes=5", expect!["start app restarts=1"]);
}

#[test]
fn an_exit_in_the_wall_clocks_future_counts_from_when_it_was_seen() {
    let mut scene = dsl::scene("web Always: app exited=1 ago=0s crashes=1");
    if let kubelet_model::ContainerState::Exited(exit) = &mut scene.seen.containers[0].state {
        exit.finished_at = dsl::wall() + std::time::Duration::from_secs(3600);
    }
    let mut context = scene.context(1);
    context.now = dsl::NOW + std::time::Duration::from_secs(4);
    let plan = plan_live(&scene.pod, &scene.seen, &context);
    assert_eq!(plan.wake_at, Some(dsl::NOW + std::time::Duration::from_secs(10)));
}

#[test]
fn the_earliest_wake_up_wins() {
    check(
        "web Always app,db: app exited=1 ago=3s crashes=3; db exited=1 ago=3s crashes=2",
        expect![[r#"
            app waits: CrashLoopBackOff
            db waits: CrashLoopBackOff
            wake 17s"#]],
    );
}

#[test]
fn a_failed_start_is_retried_later() {
    check(
        "web Always: app failed=RunContainerError retry=5s",
        expect![[r#"
            app waits: RunContainerError
            wake 5s"#]],
    );
    check(
        "web Always: app failed=ErrImagePull retry=5s",
        expect![[r#"
            app waits: ErrImagePull
            wake 5s"#]],
    );
    check("web Always: app failed=RunContainerError retry=0s", expect!["start app"]);
    check(
        "web Always: app created; app failed=RunContainerError retry=5s",
        expect![[r#"
            app waits: RunContainerError
            wake 5s"#]],
    );
    check("web Never: app exited=1; app failed=RunContainerError retry=5s", expect!["nothing"]);
}

#[test]
fn messages_are_upstreams() {
    for (text, message) in [
        (
            "web Always: app exited=1 crashes=2",
            "back-off 20s restarting failed container=app pod=web_ns(u1)",
        ),
        (
            "web Always: app exited=1 crashes=4",
            "back-off 1m20s restarting failed container=app pod=web_ns(u1)",
        ),
        (
            "web Always: app exited=1 crashes=7",
            "back-off 5m0s restarting failed container=app pod=web_ns(u1)",
        ),
        ("web Always: app failed=CreateContainerError retry=5s", "it said no"),
        ("web Always: app failed=ImagePullBackOff retry=5s", "it said no"),
    ] {
        let scene = dsl::scene(text);
        let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
        let messages: Vec<_> = plan.waiting.values().map(|w| w.message.as_str()).collect();
        assert_eq!(messages, [message], "{text}");
    }
}

#[test]
fn dead_instances_beyond_the_kept_history_are_removed() {
    let text = "web Always: app exited=1 restarts=0; app exited=1 restarts=1; app exited=1 restarts=2; app running restarts=3";
    check_keeping(1, text, expect!["remove app-1 + remove app-0"]);
    check_keeping(0, text, expect!["remove app-1 + remove app-0"]);
    check_keeping(2, text, expect!["remove app-0"]);
    check_keeping(3, text, expect!["nothing"]);
    check("web Always: app created restarts=0; app running restarts=1", expect!["remove app-0"]);
}

#[test]
fn a_running_containers_log_is_linked_once() {
    let mut scene = dsl::scene("web Always: app running; app exited=1");
    scene.memory.linked_logs.clear();
    let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
    expect!["link app-0"].assert_eq(&super::render::steps(&plan.steps));
}

/// A link made after its log's removal would lead nowhere.
#[test]
fn what_a_plan_removes_is_not_linked() {
    let mut scene = dsl::scene("web Always init=a+: sandbox 0 dead; a running; app running");
    scene.memory.linked_logs.clear();
    let plan = plan_live(&scene.pod, &scene.seen, &scene.context(1));
    let steps = super::render::steps(&plan.steps);
    assert!(steps.contains("remove a-0") && !steps.contains("link a-0"), "{steps}");
}
