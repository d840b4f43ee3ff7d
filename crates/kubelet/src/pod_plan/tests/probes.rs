//! What failed probes do to regular containers.

use expect_test::expect;

use super::check;

#[test]
fn a_failed_probe_restarts_where_the_policy_allows() {
    for policy in ["Always", "OnFailure"] {
        check(
            &format!("web {policy}: app running liveness=failed"),
            expect![[r#"
                stop app-0 30s LivenessFailed
                start app restarts=1"#]],
        );
        check(
            &format!("web {policy}: app running startup=failed"),
            expect![[r#"
                stop app-0 30s StartupFailed
                start app restarts=1"#]],
        );
    }
    check("web Never: app running liveness=failed", expect!["stop app-0 30s LivenessFailed"]);
    check("web Never: app running startup=failed", expect!["stop app-0 30s StartupFailed"]);
}

/// There is no exit code yet, so rules have no say.
#[test]
fn the_containers_own_policy_comes_first() {
    check(
        "web Always policy=app/Never rule=app/NotIn/0/Restart: app running liveness=failed",
        expect!["stop app-0 30s LivenessFailed"],
    );
    check(
        "web Never policy=app/OnFailure: app running liveness=failed",
        expect![[r#"
            stop app-0 30s LivenessFailed
            start app restarts=1"#]],
    );
}

#[test]
fn a_probe_may_have_a_grace_of_its_own() {
    let pod = "web Always grace=20 liveness=app/5 startup=app/0";
    check(
        &format!("{pod}: app running liveness=failed"),
        expect![[r#"
            stop app-0 5s LivenessFailed
            start app restarts=1"#]],
    );
    check(
        &format!("{pod}: app running startup=failed"),
        expect![[r#"
            stop app-0 2s StartupFailed
            start app restarts=1"#]],
    );
    check(
        &format!("{pod}: app running changed liveness=failed"),
        expect![[r#"
            stop app-0 20s DefinitionChanged
            start app restarts=1"#]],
    );
}

#[test]
fn good_and_unknown_results_keep_it() {
    check("web Always: app running liveness=ok startup=ok", expect!["nothing"]);
    check("web Always: app running liveness=unknown startup=unknown", expect!["nothing"]);
}

/// The exit before the one to come paces the restart.
#[test]
fn a_container_that_keeps_failing_its_probe_waits() {
    check(
        "web Always: app exited=1 ago=30s crashes=3; app running restarts=1 liveness=failed",
        expect![[r#"stop app-1 30s LivenessFailed"#]],
    );
    check(
        "web Always: app exited=1 ago=40s crashes=3; app running restarts=1 liveness=failed",
        expect![[r#"
            stop app-1 30s LivenessFailed
            start app restarts=2"#]],
    );
}
