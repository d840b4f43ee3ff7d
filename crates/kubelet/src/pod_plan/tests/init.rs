//! Init containers run one after the other, to their end, before anything else.

use expect_test::expect;

use super::{check, check_keeping};

#[test]
fn a_new_pod_begins_with_its_first_init_container() {
    check(
        "web Always init=a,b: no sandbox",
        expect![[r#"
            create sandbox 0
            start a"#]],
    );
    check("web Always init=a,b:", expect!["start a"]);
}

#[test]
fn each_waits_for_the_one_before_it() {
    check("web Always init=a,b: a running", expect!["nothing"]);
    check("web Always init=a,b: a exited=0", expect!["start b"]);
    check("web Always init=a,b: a exited=0; b running", expect!["nothing"]);
    check(
        "web Always app,db init=a,b: a exited=0; b exited=0",
        expect![[r#"
        start app
        start db"#]],
    );
}

/// Those that ended long ago may have been removed.
#[test]
fn the_last_trace_tells_how_far_it_came() {
    check("web Always init=a,b: b exited=0", expect!["start app"]);
    check("web Always init=a,b,c: b exited=0", expect!["start c"]);
    check("web Always init=a,b: app running", expect!["nothing"]);
    check("web Always init=a,b: app running; a exited=1; b exited=1", expect!["nothing"]);
    check(
        "web Always init=a,b: app created",
        expect![[r#"
        remove app-0
        start app restarts=1"#]],
    );
}

/// After a reboot all that is left has ended, in an earlier sandbox.
#[test]
fn an_ended_regular_container_does_not_show_that_the_pod_was_initialised() {
    check(
        "web Always init=a: sandbox 0 dead; sandbox 1 ready; app exited=137 in=0",
        expect!["start a"],
    );
    check(
        "web Always init=a: sandbox 0 dead; sandbox 1 ready; app created in=0",
        expect!["start a"],
    );
    check("web Always init=a: a exited=0; app exited=1 ago=60s", expect!["start app restarts=1"]);
}

#[test]
fn one_that_failed_runs_again_or_ends_the_pod() {
    for policy in ["Always", "OnFailure"] {
        check(&format!("web {policy} init=a,b: a exited=1"), expect!["start a restarts=1"]);
        check(
            &format!("web {policy} init=a,b: a exited=1 ago=3s crashes=2"),
            expect![[r#"
                a waits: CrashLoopBackOff
                wake 17s"#]],
        );
    }
    check("web Always init=a: a exited=0 oom", expect!["start a restarts=1"]);
    check("web Never init=a,b: a exited=1", expect!["nothing"]);
    check(
        "web Never init=s+,a eph=debug: s running; a exited=1",
        expect!["stop s-0 30s PodTerminating"],
    );
}

#[test]
fn its_own_policy_and_rules_come_before_the_pods() {
    check("web Always init=a policy=a/Never: a exited=1", expect!["nothing"]);
    check("web Never init=a policy=a/OnFailure: a exited=1", expect!["start a restarts=1"]);
    let rule = "web Always init=a,b policy=a/Never rule=a/In/42/Restart";
    check(&format!("{rule}: a exited=42"), expect!["start a restarts=1"]);
    check(&format!("{rule}: a exited=43"), expect!["nothing"]);
    check(&format!("{rule}: a exited=0"), expect!["start b"]);
}

#[test]
fn one_that_never_ran_or_is_lost_starts_again() {
    for policy in ["Always", "OnFailure"] {
        check(
            &format!("web {policy} init=a,b: a unknown"),
            expect![[r#"
                stop a-0 30s StateUnknown
                start a restarts=1"#]],
        );
    }
    check("web Never init=a,b: a unknown", expect!["stop a-0 30s PodTerminating"]);
    check(
        "web Never init=a,b: a created",
        expect![[r#"
            remove a-0
            start a restarts=1"#]],
    );
}

/// A call that was under way when the agent died may take effect after the next
/// agent has done the work (seed 324 of a simulation).
#[test]
fn one_made_after_another_succeeded_is_not_run() {
    check(
        "web Never init=a,b: a exited=0 restarts=0; a created restarts=1",
        expect![[r#"
            remove a-1
            start b"#]],
    );
    check(
        "web Always init=a: a exited=1 restarts=0 ago=60s; a created restarts=1",
        expect![[r#"
            remove a-1
            start a restarts=2"#]],
    );
}

#[test]
fn a_failed_start_holds_the_whole_pod() {
    check(
        "web Always init=a,b: a exited=0; b failed=ErrImagePull retry=5s",
        expect![[r#"
            b waits: ErrImagePull
            wake 5s"#]],
    );
    check(
        "web Always init=a: no sandbox; a failed=RunContainerError retry=5s",
        expect![[r#"
            create sandbox 0
            a waits: RunContainerError
            wake 5s"#]],
    );
}

/// A changed image of one that runs or has run changes nothing.
#[test]
fn a_changed_definition_is_for_the_next_pod() {
    check("web Always init=a: a running changed", expect!["nothing"]);
    check("web Always init=a: a exited=0 changed", expect!["start app"]);
}

#[test]
fn a_new_sandbox_starts_over_without_traces_of_the_old() {
    check(
        "web Always init=a,s+: sandbox 0 ready noip; a exited=0 ago=60s; s running; app running",
        expect![[r#"
            stop app-0 30s SandboxChanged + stop s-0 30s SandboxChanged after=app
            stop sandbox s0
            remove a-0 + remove s-0
            create sandbox 1
            start a restarts=1"#]],
    );
    // A regular container that was only made would pass for an initialised pod.
    check(
        "web Always init=a: sandbox 0 dead; a exited=0; app created; app exited=1 restarts=1",
        expect![[r#"
            stop sandbox s0
            remove a-0 + remove app-0
            create sandbox 1
            start a restarts=1"#]],
    );
    check("web Never init=a: sandbox 0 dead; a exited=0", expect!["cut off"]);
    check("web OnFailure init=a: sandbox 0 dead; a exited=0; app exited=0", expect!["nothing"]);
}

#[test]
fn only_the_newest_that_ended_is_kept() {
    let text = "web Always init=a: a exited=1 restarts=0; a exited=1 restarts=1; a exited=0 restarts=2; app running; app exited=1";
    check_keeping(3, text, expect!["remove a-1 + remove a-0"]);
}

#[test]
fn ephemeral_containers_start_at_any_time_and_only_once() {
    check("web Always init=a eph=x,y,z: a running; y exited=1; z running", expect!["start x"]);
    check("web Always eph=x: app running; x created", expect!["nothing"]);
    check("web Always eph=x: app running; x running changed", expect!["nothing"]);
    check(
        "web Always eph=x: app running; x failed=ErrImagePull retry=5s",
        expect![[r#"
            x waits: ErrImagePull
            wake 5s"#]],
    );
    check(
        "web Always eph=x: no sandbox",
        expect![[r#"
            create sandbox 0
            start app"#]],
    );
}

#[test]
fn what_an_edit_removed_is_stopped() {
    check(
        "web Always init=a,s+ eph=x: app running; s running; x running; old running",
        expect!["stop old-0 30s DefinitionChanged"],
    );
}
