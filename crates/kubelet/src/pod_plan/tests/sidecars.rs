//! Sidecars start in order, are kept running, and end with what they serve.

use expect_test::expect;

use super::check;

#[test]
fn the_next_starts_once_a_sidecar_has_started() {
    check("web Always init=s+,t+: s running", expect!["start t"]);
    check("web Always init=s+,a: s running", expect!["start a"]);
    check("web Always init=s+: s running", expect!["start app"]);
    check("web Always init=s+,t+: s exited=0", expect!["start s restarts=1"]);
}

#[test]
fn a_startup_probe_holds_back_the_next() {
    check("web Always init=s+,t+ startup=s: s running", expect!["nothing"]);
    check("web Always init=s+,t+ startup=s: s running startup=unknown", expect!["nothing"]);
    check("web Always init=s+,t+ startup=s: s running startup=ok", expect!["start t"]);
    check("web Always init=s+ startup=s: s running", expect!["nothing"]);
    check("web Always init=s+ startup=s: s running startup=ok", expect!["start app"]);
    check("web Always init=s+ startup=s: s running; app running", expect!["nothing"]);
}

#[test]
fn failed_probes_restart_a_sidecar_under_any_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        check(
            &format!("web {policy} init=s+,t+ startup=s/7: s running startup=failed"),
            expect![[r#"
                stop s-0 7s StartupFailed
                start s restarts=1"#]],
        );
        check(
            &format!("web {policy} init=s+ liveness=s: s running liveness=failed; app running"),
            expect![[r#"
                stop s-0 30s LivenessFailed
                start s restarts=1"#]],
        );
    }
    // Liveness counts only once it has started.
    check(
        "web Always init=s+,t+ startup=s liveness=s: s running liveness=failed",
        expect!["nothing"],
    );
}

#[test]
fn a_changed_definition_restarts_a_sidecar() {
    check(
        "web Always init=s+,t+: s running changed; t running; app running",
        expect![[r#"
            stop s-0 30s DefinitionChanged
            start s restarts=1"#]],
    );
    check(
        "web Always init=s+,t+: s running changed",
        expect![[r#"
            stop s-0 30s DefinitionChanged
            start s restarts=1"#]],
    );
}

#[test]
fn sidecars_are_kept_running() {
    check(
        "web Never init=s+,a,t+: app running; s exited=0; a exited=0; t exited=1",
        expect![[r#"
            start s restarts=1
            start t restarts=1"#]],
    );
    check(
        "web Always init=s+,t+: app running; s exited=1 ago=3s crashes=2; t running",
        expect![[r#"
            s waits: CrashLoopBackOff
            wake 17s"#]],
    );
    check("web Always init=s+,a: app running", expect!["start s"]);
    check(
        "web Always init=s+,a,t+: a exited=0; app running",
        expect![[r#"
        start s
        start t"#]],
    );
    check(
        "web Always init=s+: app running; s created",
        expect![[r#"
            remove s-0
            start s restarts=1"#]],
    );
    check(
        "web Always init=s+: app running; s unknown",
        expect![[r#"
            stop s-0 30s StateUnknown
            start s restarts=1"#]],
    );
}

#[test]
fn before_initialisation_earlier_sidecars_are_kept_running_too() {
    check("web Always init=s+,a: s exited=1; a running", expect!["start s restarts=1"]);
    check(
        "web Always init=s+,a,b: s exited=1; a exited=0",
        expect![[r#"
            start s restarts=1
            start b"#]],
    );
}

#[test]
fn sidecars_and_regular_containers_restart_side_by_side() {
    check(
        "web Always app,db init=s+: s exited=1; app running; db exited=1",
        expect![[r#"
            start s restarts=1
            start db restarts=1"#]],
    );
}

/// A job with a sidecar ends when its regular containers have.
#[test]
fn sidecars_do_not_keep_a_pod_alive() {
    check(
        "job Never init=s+,t+: s running; t running; app exited=0",
        expect!["stop s-0 30s PodTerminating after=t + stop t-0 30s PodTerminating"],
    );
    check(
        "job OnFailure grace=5 init=s+,t+: s exited=1; t running; app exited=0",
        expect!["stop t-0 5s PodTerminating"],
    );
    check(
        "job OnFailure init=s+: s running; app exited=1 ago=3s crashes=2",
        expect![[r#"
            app waits: CrashLoopBackOff
            wake 17s"#]],
    );
    check("job Never app,db init=s+: s running; app exited=0; db running", expect!["nothing"]);
    check("job Never init=s+: s exited=0 restarts=3; app exited=0", expect!["start s restarts=4"]);
}
