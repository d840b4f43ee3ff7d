//! Whether the sandbox will do, and what its replacement takes along.

use expect_test::expect;

use super::check;

#[test]
fn a_new_pod_gets_a_sandbox_and_its_containers() {
    check(
        "web Always app,db: no sandbox",
        expect![[r#"
            create sandbox 0
            start app
            start db"#]],
    );
}

#[test]
fn a_usable_sandbox_stays() {
    check("web Always: app running", expect!["nothing"]);
    check("web Always: sandbox 3 ready; app running", expect!["nothing"]);
    check("web Always hostnet: sandbox 0 ready; app running", expect!["nothing"]);
    check("web Always: sandbox 0 ready", expect!["start app"]);
}

/// A sandbox that died by itself still holds its network until it is stopped.
#[test]
fn a_sandbox_that_died_is_stopped_and_replaced() {
    check(
        "web Always: sandbox 4 dead; app exited=1 restarts=2 ago=60s",
        expect![[r#"
            stop sandbox s4
            create sandbox 5
            start app restarts=3"#]],
    );
    check(
        "web Always: sandbox 0 ready; sandbox 1 dead",
        expect![[r#"
            stop sandbox s1 + stop sandbox s0
            create sandbox 2
            start app"#]],
    );
}

#[test]
fn two_ready_sandboxes_are_replaced_by_one() {
    check(
        "web Always: sandbox 0 ready; sandbox 1 ready",
        expect![[r#"
            stop sandbox s1 + stop sandbox s0
            create sandbox 2
            start app"#]],
    );
}

#[test]
fn a_sandbox_without_an_address_is_replaced_unless_it_needs_none() {
    check(
        "web Always: sandbox 0 ready noip",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start app"#]],
    );
    check("web Always hostnet: sandbox 0 ready hostnet noip; app running", expect!["nothing"]);
}

#[test]
fn a_sandbox_in_the_wrong_network_is_replaced() {
    check(
        "web Always: sandbox 0 ready hostnet",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start app"#]],
    );
}

/// What ran is stopped with its sandbox and starts in the new one at once,
/// whatever its exit code: it did not end by itself.
#[test]
fn running_containers_move_to_the_new_sandbox() {
    for policy in ["Always", "OnFailure"] {
        check(
            &format!("web {policy}: sandbox 0 ready noip; app running"),
            expect![[r#"
                stop app-0 30s SandboxChanged
                stop sandbox s0
                create sandbox 1
                start app restarts=1"#]],
        );
    }
}

#[test]
fn a_container_of_unknown_state_is_stopped_with_its_sandbox() {
    check(
        "web Always: sandbox 0 ready noip; app unknown",
        expect![[r#"
            stop app-0 30s SandboxChanged
            stop sandbox s0
            create sandbox 1
            start app restarts=1"#]],
    );
}

#[test]
fn nothing_stops_in_less_than_two_seconds() {
    check(
        "web Never grace=0: sandbox 0 ready noip; app running",
        expect![[r#"
            stop app-0 2s SandboxChanged
            stop sandbox s0"#]],
    );
}

#[test]
fn never_gets_a_second_sandbox_only_if_nothing_was_ever_made() {
    check("web Never: sandbox 0 dead; app exited=1", expect!["cut off"]);
    check("web Never app,db: sandbox 0 dead; app exited=0", expect!["cut off"]);
    check(
        "web Never: sandbox 0 ready noip",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start app"#]],
    );
}

#[test]
fn on_failure_leaves_what_succeeded() {
    check("web OnFailure: sandbox 0 dead; app exited=0", expect!["nothing"]);
    check(
        "web OnFailure app,db: sandbox 0 ready noip; app exited=0 ago=60s; db exited=2 ago=60s",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start db restarts=1"#]],
    );
    check(
        "web OnFailure app,db: sandbox 0 ready noip; app exited=0 ago=60s",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start db"#]],
    );
}

#[test]
fn back_off_holds_the_container_not_the_sandbox() {
    check(
        "web Always app,db: sandbox 0 ready noip; app exited=1 ago=3s crashes=2; db exited=1 ago=3s",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start db restarts=1
            app waits: CrashLoopBackOff
            wake 17s"#]],
    );
}

#[test]
fn stopped_sandboxes_without_containers_are_removed() {
    check(
        "web Always: sandbox 0 dead; sandbox 1 ready; app running in=1",
        expect![[r#"
            stop sandbox s0
            remove sandbox s0"#]],
    );
    check(
        "web Always: sandbox 0 dead; sandbox 1 ready; app exited=1 in=0; app running restarts=1 in=1",
        expect!["nothing"],
    );
    check(
        "web Always: sandbox 0 dead; sandbox 1 ready; app exited=1 in=0; app exited=1 restarts=1 in=1; app running restarts=2 in=1",
        expect![[r#"
            remove app-0
            stop sandbox s0
            remove sandbox s0"#]],
    );
}

#[test]
fn absurd_numbers_do_not_overflow() {
    check(
        "web Always: sandbox 4294967295 ready noip",
        expect![[r#"
            stop sandbox s4294967295
            create sandbox 4294967295
            start app"#]],
    );
    check(
        "web Always: app exited=1 ago=60s restarts=4294967295",
        expect!["start app restarts=4294967295"],
    );
}
