//! Init containers, sidecars and ephemeral containers beside regular ones.

use expect_test::{Expect, expect};
use kubelet_model::{ProbeKind, ProbeResult, WaitReason};

use super::case::Case;
use super::render;

fn check(case: &Case, items: &str, expected: Expect) {
    expected.assert_eq(&render(&case.sees(items)));
}

#[test]
fn init_statuses_keep_the_order_of_the_spec_and_the_others_are_sorted() {
    let case = Case::new("Always z a | web app | y b");
    check(
        &case,
        "z running",
        expect![[r#"
            Pending
            init z running started
            init a waiting PodInitializing
            app waiting PodInitializing
            web waiting PodInitializing
            debug b waiting PodInitializing
            debug y waiting PodInitializing"#]],
    );
}

#[test]
fn lists_that_the_pod_does_not_have_are_left_out() {
    let status = Case::new("Always | app |").sees("app running");
    assert_eq!(status.init_container_statuses, None);
    assert_eq!(status.ephemeral_container_statuses, None);
}

#[test]
fn an_init_container_is_ready_once_it_has_succeeded() {
    let case = Case::new("Always setup next | app |");
    check(
        &case,
        "setup exited=0; next exited=1",
        expect![[r#"
            Pending
            init setup exited=0 Completed ready
            init next exited=1 Error
            app waiting PodInitializing"#]],
    );
}

#[test]
fn what_holds_a_container_back_wins_over_the_default() {
    let case = Case::new("Always setup | app |")
        .waits("setup", WaitReason::CrashLoopBackOff)
        .waits("app", WaitReason::CreateContainerConfigError);
    check(
        &case,
        "setup exited=1",
        expect![[r#"
            Pending
            init setup waiting CrashLoopBackOff last exited=1 Error
            app waiting CreateContainerConfigError"#]],
    );
}

#[test]
fn an_init_container_that_has_succeeded_waits_for_nothing() {
    let case = Case::new("Always setup | app |").waits("setup", WaitReason::ErrImagePull);
    check(
        &case,
        "setup exited=0; app running",
        expect![[r#"
            Running
            init setup exited=0 Completed ready
            app running ready started"#]],
    );
}

#[test]
fn an_init_container_that_is_gone_is_presumed_done_once_others_exist() {
    let case = Case::new("Always setup proxy* | app db |");
    check(
        &case,
        "proxy running; app created",
        expect![[r#"
            Pending
            init setup exited=0 Completed ready
            init proxy running ready started
            app waiting
            db waiting PodInitializing"#]],
    );
    check(
        &case,
        "app exited=1; db running",
        expect![[r#"
            Pending
            init setup exited=0 Completed ready
            init proxy waiting PodInitializing
            app exited=1 Error
            db running ready started"#]],
    );
    check(
        &case,
        "app unknown",
        expect![[r#"
            Pending
            init setup waiting PodInitializing
            init proxy waiting PodInitializing
            app waiting
            db waiting PodInitializing"#]],
    );
    let status = case.sees("app running");
    let setup = &status.init_container_statuses.expect("init statuses")[0];
    let ended = setup.state.as_ref().and_then(|s| s.terminated.as_ref()).expect("an end");
    expect!["Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"]
        .assert_eq(ended.message.as_deref().unwrap_or_default());
}

#[test]
fn a_sidecar_is_started_and_ready_as_regular_containers_are() {
    let case = Case::new("Always proxy* | app |").container(
        "proxy",
        r#"{"startupProbe":{"tcpSocket":{"port":1}},"readinessProbe":{"tcpSocket":{"port":1}}}"#,
    );
    check(
        &case,
        "proxy running",
        expect![[r#"
            Pending
            init proxy running
            app waiting PodInitializing"#]],
    );
    let case = case.probe("proxy-0", ProbeKind::Startup, ProbeResult::Success);
    check(
        &case,
        "proxy running; app running",
        expect![[r#"
            Running
            init proxy running started
            app running ready started"#]],
    );
    let case = case.probe("proxy-0", ProbeKind::Readiness, ProbeResult::Success);
    check(
        &case,
        "proxy running; app running",
        expect![[r#"
            Running
            init proxy running ready started
            app running ready started"#]],
    );
}

#[test]
fn nobody_waits_for_ephemeral_containers() {
    let case = Case::new("Never | app | debug").waits("debug", WaitReason::ErrImagePull);
    let status = case.sees("app running");
    expect![[r#"
        Running
        app running ready started
        debug debug waiting ErrImagePull"#]]
    .assert_eq(&render(&status));
    let debug = status.ephemeral_container_statuses.expect("ephemeral statuses");
    assert_eq!((debug[0].started, debug[0].ready), (None, false));
    check(
        &Case::new("Never | app | debug"),
        "app exited=0; debug running",
        expect![[r#"
            Succeeded
            app exited=0 Completed
            debug debug running"#]],
    );
}

#[test]
fn the_end_of_an_instance_that_was_cleared_away_stays_the_last_state() {
    check(
        &Case::new("Always | app |").then("app exited=3"),
        "app running restarts=1",
        expect![[r#"
            Running
            app running ready started restarts=1 last exited=3 Error"#]],
    );
    let looping = Case::new("Always | app |").waits("app", WaitReason::CrashLoopBackOff);
    let mut case = looping.then("app exited=3");
    case.waiting.clear();
    check(
        &case,
        "app running restarts=1",
        expect![[r#"
            Running
            app running ready started restarts=1 last exited=3 Error"#]],
    );
    check(
        &case,
        "app exited=3",
        expect![[r#"
            Running
            app exited=3 Error"#]],
    );
}

#[test]
fn what_a_pod_waited_for_before_its_start_is_forgotten() {
    let mut case = Case::new("Always | app |");
    let mut queued = case.sees("");
    queued.message = Some("waiting for its turn".to_owned());
    case.before = Some(queued.clone());
    assert_eq!(case.sees("").message, queued.message, "it explains the phase");
    queued.start_time = None;
    case.before = Some(queued);
    assert_eq!(case.sees("").message, None);
}
