//! Regular containers: states, last states, counts.

use expect_test::expect;
use k8s_openapi::api::core::v1::ContainerStatus;

use super::{check, check_story, story};

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
            app waiting ErrImagePull"#]],
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
