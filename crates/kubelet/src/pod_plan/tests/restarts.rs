//! Containers with a say of their own in what follows from their exit.

use expect_test::expect;

use kubelet_model::restart;

use super::model::{World, end};
use super::{check, dsl, render};

#[test]
fn a_containers_policy_comes_before_its_pods() {
    check("web Never policy=app/Always: app exited=0", expect!["start app restarts=1"]);
    check("web Never policy=app/OnFailure: app exited=1", expect!["start app restarts=1"]);
    check("web Always policy=app/OnFailure: app exited=0", expect!["nothing"]);
    check("web Always app,db policy=app/Never: app exited=1; db running", expect!["nothing"]);
}

#[test]
fn the_first_matching_rule_comes_before_any_policy() {
    let pod = "web Always policy=app/Never rule=app/In/3/Restart rule=app/NotIn/0,3,4/Restart";
    check(&format!("{pod}: app exited=3"), expect!["start app restarts=1"]);
    check(&format!("{pod}: app exited=9"), expect!["start app restarts=1"]);
    check(&format!("{pod}: app exited=4"), expect!["nothing"]);
    check(&format!("{pod}: app exited=0"), expect!["nothing"]);
    check(
        &format!("{pod}: app exited=3 ago=3s crashes=1"),
        expect![[r#"
            app waits: CrashLoopBackOff
            wake 7s"#]],
    );
}

#[test]
fn what_must_not_restart_stays_out_of_a_new_sandbox() {
    check(
        "web Always app,db policy=app/OnFailure: sandbox 0 dead; app exited=0; db exited=1 ago=9s",
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start db restarts=1"#]],
    );
    check(
        "web Always policy=app/Never: sandbox 0 ready noip; app running liveness=failed",
        expect![[r#"
            stop app-0 30s SandboxChanged
            stop sandbox s0"#]],
    );
}

/// What triggers it goes last, so that an interrupted removal is taken up again.
#[test]
fn an_exit_may_restart_the_whole_pod() {
    let pod = "web Never app,db init=a,s+ eph=x policy=db/Never rule=db/In/42/RestartAllContainers";
    check(
        &format!(
            "{pod}: a exited=0; s running; app unknown; db exited=1; db exited=42 restarts=1; x running"
        ),
        expect![[r#"
            stop app-0 2s RestartAll + stop s-0 2s RestartAll
            remove app-0 keep log + remove db-0 keep log
            remove a-0 keep log + remove s-0 keep log
            remove db-1 keep log"#]],
    );
    check(&format!("{pod}: db exited=42"), expect!["remove db-0 keep log"]);
    check(&format!("{pod}: x running"), expect!["start a"]);
    check(
        &format!(
            "{pod}: s running; a exited=0; app running; db exited=42; db running restarts=1; x exited=0"
        ),
        expect!["nothing"],
    );
    check(
        "web Always init=a policy=a/Never rule=a/NotIn/0/RestartAllContainers: a exited=7",
        expect!["remove a-0 keep log"],
    );
}

#[test]
fn others_can_ask_whether_the_pod_starts_over() {
    let asks = |text: &str| {
        let scene = dsl::scene(text);
        restart::starts_over(scene.pod.spec(), &scene.seen)
    };
    let pod = "web Never policy=app/Never rule=app/In/42/RestartAllContainers";
    assert!(asks(&format!("{pod}: app exited=42")));
    assert!(!asks(&format!("{pod}: app exited=1")));
    assert!(!asks(&format!("{pod}: app exited=42; app running restarts=1")));
    assert!(!asks(&format!("{pod}:")));
}

#[test]
fn a_dead_sandbox_does_not_hinder_it() {
    let pod = "web Never policy=app/Never rule=app/In/42/RestartAllContainers";
    check(&format!("{pod}: sandbox 0 dead; app exited=42"), expect!["remove app-0 keep log"]);
    check(
        &format!("{pod}: sandbox 0 dead"),
        expect![[r#"
            stop sandbox s0
            create sandbox 1
            start app"#]],
    );
}

/// Nothing paces it, upstream neither: the back-off looks for an instance that has
/// ended, and those are removed first. What other exits have earned stays.
#[test]
fn starting_over_waits_for_nothing() {
    let pod =
        "web Never policy=app/Never rule=app/In/42/RestartAllContainers rule=app/In/1/Restart";
    let mut world = World::new(dsl::scene(&format!("{pod}: app exited=42 crashes=4")), 137);
    for round in 0..5 {
        let clear = world.plan();
        let id = world.scene.seen.containers[0].id.clone();
        assert_eq!(render::plan(&clear), format!("remove {id} keep log"), "round {round}");
        world.perform(&clear.steps);
        let start = world.plan();
        assert_eq!(render::plan(&start), "start app", "round {round}");
        world.perform(&start.steps);
        end(&mut world.scene.seen.containers[0], 42);
    }
    end(&mut world.scene.seen.containers[0], 1);
    expect![[r#"
        app waits: CrashLoopBackOff
        wake 80s"#]]
    .assert_eq(&render::plan(&world.plan()));
}
