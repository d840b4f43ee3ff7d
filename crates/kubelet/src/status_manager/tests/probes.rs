//! `started` and `ready` from probes, and across restarts of the agent.

use k8s_openapi::api::core::v1::PodStatus;
use kubelet_model::ProbeKind::{Readiness, Startup};
use kubelet_model::ProbeResult::{Failure, Success, Unknown};

use super::case::Case;

const BOTH: &str =
    r#"{"startupProbe":{"exec":{}, "periodSeconds": 5},"readinessProbe":{"exec":{}}}"#;
const READINESS: &str = r#"{"readinessProbe":{"exec":{}}}"#;

fn probed(json: &str) -> Case {
    Case::new("Always | app |").container("app", json)
}

/// `started` and `ready` of the first container.
fn marks(status: &PodStatus) -> (bool, bool) {
    let app = &status.container_statuses.as_ref().expect("statuses")[0];
    (app.started == Some(true), app.ready)
}

#[test]
fn results_decide() {
    for (results, expected) in [
        (vec![], (false, false)),
        (vec![(Startup, Unknown)], (false, false)),
        (vec![(Startup, Failure), (Readiness, Success)], (false, false)),
        (vec![(Startup, Success)], (true, false)),
        (vec![(Startup, Success), (Readiness, Failure)], (true, false)),
        (vec![(Startup, Success), (Readiness, Success)], (true, true)),
    ] {
        let mut case = probed(BOTH);
        for (kind, result) in &results {
            case = case.probe("app-0", *kind, *result);
        }
        assert_eq!(marks(&case.sees("app running")), expected, "{results:?}");
        assert_eq!(marks(&case.sees("app exited=0")), (false, false), "{results:?}");
    }
}

#[test]
fn without_probes_whatever_runs_is_started_and_ready() {
    let case = Case::new("Always | app |");
    assert_eq!(marks(&case.sees("app running")), (true, true));
    assert_eq!(marks(&case.sees("app created")), (false, false));
}

#[test]
fn results_of_another_instance_say_nothing() {
    let case = probed(BOTH).probe("app-0", Startup, Success).probe("app-0", Readiness, Success);
    assert_eq!(marks(&case.sees("app running restarts=1")), (false, false));
    // Nor does the status of another instance.
    let mut case = case.then("app running");
    assert_eq!(marks(&case.sees("app running restarts=1")), (false, false));
    case.probes = probed(BOTH).probes;
    assert_eq!(marks(&case.sees("app running")), (true, false), "it stays started");
}

/// No readiness flap when the agent restarts.
#[test]
fn a_container_older_than_the_agent_stays_ready_until_it_is_probed() {
    let case = probed(READINESS);
    assert_eq!(marks(&case.clone().agent_restarted_after(10).sees("app running")), (true, false));
    let case = case.agent_restarted_after(11);
    assert_eq!(marks(&case.sees("app running")), (true, true));
    let again = case.clone().then("app running");
    assert_eq!(marks(&again.sees("app running")), (true, true));
    let failed = case.probe("app-0", Readiness, Failure);
    assert_eq!(marks(&failed.sees("app running")), (true, false));
}

#[test]
fn a_pod_that_was_not_ready_does_not_become_so_by_a_restart_of_the_agent() {
    let unready = probed(READINESS).probe("app-0", Readiness, Failure).then("app running");
    let mut case = unready.agent_restarted_after(60);
    case.probes = probed(READINESS).probes;
    assert_eq!(marks(&case.sees("app running")), (true, false));
    let mut ready = probed(READINESS).probe("app-0", Readiness, Success).then("app running");
    ready.probes = case.probes;
    assert_eq!(marks(&ready.sees("app running")), (true, false), "the agent did not restart");
    assert_eq!(marks(&ready.agent_restarted_after(60).sees("app running")), (true, true));
}

/// Another container of the pod restarts meanwhile: only the pod is unready.
#[test]
fn readiness_of_one_container_does_not_hang_on_another() {
    let case = Case::new("Always | app db |").container("app", READINESS);
    let case = case.agent_restarted_after(60).then("app running; db exited=1");
    assert_eq!(marks(&case.sees("app running; db exited=1")), (true, true));
}

/// A runtime that answers late makes the first status a blind one.
#[test]
fn a_status_that_saw_nothing_does_not_count_as_an_earlier_one() {
    let case = probed(BOTH).agent_restarted_after(60).then("no sandbox");
    assert_eq!(marks(&case.sees("app running")), (true, true));
}

#[test]
fn a_container_that_outlived_its_startup_probe_has_started() {
    // Three failures, five seconds apart, and a timeout of one second.
    let young = probed(BOTH).agent_restarted_after(16);
    assert_eq!(marks(&young.sees("app running")), (false, false));
    let young = young.then("app running").agent_restarted_after(17);
    assert_eq!(marks(&young.sees("app running")), (false, false), "its status told already");
    let old = probed(BOTH).agent_restarted_after(17);
    assert_eq!(marks(&old.sees("app running")), (true, true));
    let failing = old.probe("app-0", Startup, Unknown);
    assert_eq!(marks(&failing.sees("app running")), (false, false));
}
