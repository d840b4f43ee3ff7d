//! Ending a pod: stop everything, then remove everything.

use std::time::Duration;

use expect_test::{Expect, expect};
use kubelet_model::Grace;

use super::dsl::{NOW, Scene, scene};
use super::render;
use crate::pod_plan::{Memory, Termination, plan_end, plan_termination};

fn check_stop(grace: i64, elapsed: u64, text: &str, expected: Expect) {
    let termination = Termination { since: NOW, grace: Grace::from_secs(grace) };
    let now = NOW + Duration::from_secs(elapsed);
    let scene = scene(text);
    let steps = plan_termination(Some(&scene.pod), &scene.seen, termination, now);
    expected.assert_eq(&render::steps(&steps));
}

fn check_end(files_removed: bool, text: &str, expected: Expect) {
    let termination = Termination { since: NOW, grace: Grace::from_secs(30) };
    let Scene { pod, seen, .. } = scene(text);
    let steps = plan_end(Some(&pod), &seen, termination, &Memory::default(), files_removed, NOW);
    expected.assert_eq(&render::steps(&steps));
}

#[test]
fn containers_stop_side_by_side_then_sandboxes() {
    check_stop(
        30,
        0,
        "web Always app,db: sandbox 0 ready; sandbox 1 ready; app running restarts=1; app exited=1; db unknown",
        expect![[r#"
            stop app-1 30s PodTerminating + stop db-0 30s PodTerminating
            stop sandbox s1 + stop sandbox s0"#]],
    );
}

#[test]
fn grace_is_what_is_left_of_it() {
    check_stop(
        30,
        12,
        "web Always: no sandbox; app running",
        expect!["stop app-0 18s PodTerminating"],
    );
    for (grace, elapsed) in [(30, 29), (30, 31), (1, 0), (0, 0)] {
        check_stop(
            grace,
            elapsed,
            "web Always: no sandbox; app running",
            expect!["stop app-0 2s PodTerminating"],
        );
    }
}

#[test]
fn what_is_dead_needs_no_stopping() {
    check_stop(30, 0, "web Always: sandbox 0 dead; app exited=1; app created", expect!["nothing"]);
}

#[test]
fn containers_go_before_sandboxes_and_files_last() {
    check_end(
        false,
        "web Always app,db: sandbox 0 dead; app exited=1; db created",
        expect![[r#"
            remove app-0 + remove db-0
            stop sandbox s0
            remove sandbox s0
            remove files"#]],
    );
    check_end(false, "web Always: no sandbox", expect!["remove files"]);
    check_end(true, "web Always: no sandbox", expect!["nothing"]);
    check_end(
        false,
        "web Always app,db: sandbox 0 dead; sandbox 1 ready; app running; db exited=0",
        expect![[r#"
            stop app-0 30s PodTerminating
            stop sandbox s1
            remove app-0 + remove db-0
            remove sandbox s1
            stop sandbox s0
            remove sandbox s0
            remove files"#]],
    );
}

/// Reverse order: what serves others ends after them.
#[test]
fn sidecars_wait_for_what_they_serve() {
    check_stop(
        30,
        12,
        "web Always app,db init=setup,a+,b+,c+: app running; db exited=0; a running; b exited=1; c running",
        expect![[r#"
            stop a-0 18s PodTerminating after=app after=c + stop app-0 18s PodTerminating + stop c-0 18s PodTerminating after=app
            stop sandbox s0"#]],
    );
    check_stop(
        30,
        0,
        "web Always init=a+,setup eph=debug: a running; setup running; debug running",
        expect![[r#"
            stop a-0 30s PodTerminating + stop debug-0 30s PodTerminating + stop setup-0 30s PodTerminating
            stop sandbox s0"#]],
    );
}

#[test]
fn a_pod_without_a_definition_stops_all_at_once() {
    let termination = Termination { since: NOW, grace: Grace::from_secs(30) };
    let seen = scene("web Always init=a+: app running; a running").seen;
    expect![[r#"
        stop a-0 30s PodTerminating + stop app-0 30s PodTerminating
        stop sandbox s0"#]]
    .assert_eq(&render::steps(&plan_termination(None, &seen, termination, NOW)));
}
