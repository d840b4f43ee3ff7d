//! Rules by which one container's end restarts them all.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::PodStatus;

use super::case::Case;
use super::{conditions, render};

const RULE: &str = r#"{"restartPolicy":"Never","restartPolicyRules":[
    {"action":"RestartAllContainers","exitCodes":{"operator":"In","values":[42]}}]}"#;

fn pod() -> Case {
    Case::new("Never setup | app db |").container("app", RULE)
}

fn check(status: &PodStatus, expected: Expect) {
    let told = conditions(status);
    let condition = told.lines().find(|line| line.starts_with("AllContainers"));
    expected.assert_eq(&format!("{}\n{}", render(status), condition.unwrap_or("no condition")));
}

#[test]
fn a_whole_pod_restarts_in_place() {
    let case = pod();
    let running = "setup exited=0; app running; db running";
    check(
        &case.sees(running),
        expect![[r#"
            Running
            init setup exited=0 Completed ready
            app running ready started
            db running ready started
            AllContainersRestarting=False"#]],
    );
    let case = case.then(running);
    let cause = "setup exited=0; app exited=42; db running";
    check(
        &case.sees(cause),
        expect![[r#"
            Running
            init setup exited=0 Completed ready
            app exited=42 Error
            db running ready started
            AllContainersRestarting=True RestartAllContainersStarted: container exited with restart policy rule"#]],
    );
    let case = case.then(cause);
    check(
        &case.sees("app exited=42"),
        expect![[r#"
            Running
            init setup waiting RestartingAllContainers restarts=1 last exited=137 RestartingAllContainers
            app exited=42 Error
            db waiting RestartingAllContainers restarts=1 last exited=137 RestartingAllContainers
            AllContainersRestarting=True RestartAllContainersStarted: container exited with restart policy rule"#]],
    );
    let case = case.then("app exited=42").then("");
    check(
        case.before.as_ref().expect("a status"),
        expect![[r#"
            Running
            init setup waiting PodInitializing restarts=1 last exited=137 RestartingAllContainers
            app waiting RestartingAllContainers restarts=1 last exited=137 RestartingAllContainers
            db waiting PodInitializing restarts=1 last exited=137 RestartingAllContainers
            AllContainersRestarting=False"#]],
    );
    let case = case.then("setup exited=0 restarts=1");
    check(
        &case.sees("setup exited=0 restarts=1; app running id=new; db running restarts=1"),
        expect![[r#"
            Running
            init setup exited=0 Completed ready restarts=1 last exited=137 RestartingAllContainers
            app running ready started restarts=1 last exited=137 RestartingAllContainers
            db running ready started restarts=1 last exited=137 RestartingAllContainers
            AllContainersRestarting=False"#]],
    );
}

#[test]
fn other_ends_and_other_pods_are_not_concerned() {
    check(
        &pod().sees("setup exited=0; app exited=1; db exited=0"),
        expect![[r#"
            Failed
            init setup exited=0 Completed ready
            app exited=1 Error
            db exited=0 Completed
            AllContainersRestarting=False PodFailed"#]],
    );
    check(
        &Case::new("Never | app |").sees("app exited=42"),
        expect![[r#"
            Failed
            app exited=42 Error
            no condition"#]],
    );
}
