//! When a preStop hook runs. Upstream: killContainer.

use std::time::Duration;

use kubelet_model::{Action, ContainerId, ContainerName, DesiredPod, Grace, StopReason};
use serde_json::json;

use crate::pleg::labels;
use crate::runtime_manager::testing::{Bench, pod_with};

const HOOK: &str = r#","lifecycle":{"preStop":{"exec":{"command":["before"]}}}"#;

/// The calls of a stop; a plan gives no less than the floor.
async fn stop(bench: &Bench, pod: Option<&DesiredPod>, why: StopReason) -> Vec<String> {
    let action = Action::StopContainer {
        id: ContainerId::new("c1"),
        name: ContainerName::new("app"),
        grace: Grace::from_secs(0).after(Duration::ZERO),
        why,
        after: Vec::new(),
    };
    bench.executor(pod).perform(&action).await.unwrap();
    bench.calls()
}

#[tokio::test]
async fn what_gets_no_time_gets_no_hook() {
    use StopReason::{
        DefinitionChanged, LivenessFailed, PodTerminating, RestartAll, StartupFailed,
    };
    let probes = r#","livenessProbe":{"tcpSocket":{"port":1},"terminationGracePeriodSeconds":0},
        "startupProbe":{"tcpSocket":{"port":1},"terminationGracePeriodSeconds":5}"#;
    let none = r#""terminationGracePeriodSeconds":0"#;
    for (container, spec, why, runs) in [
        ("", "", DefinitionChanged, true),
        ("", none, DefinitionChanged, false),
        // A pod that goes away always has a second.
        ("", none, PodTerminating, true),
        ("", "", RestartAll, false),
        (probes, "", LivenessFailed, false),
        (probes, "", DefinitionChanged, true),
        (probes, none, StartupFailed, true),
    ] {
        let bench = Bench::new(|_, _| {});
        let pod = pod_with("", &format!("{HOOK}{container}"), spec);
        let calls = stop(&bench, Some(&pod), why).await;
        let expected: &[&str] = if runs { &["ExecSync before"] } else { &[] };
        let expected = [expected, &["StopContainer c1 2s"]].concat();
        assert_eq!(calls, expected, "{container} {spec} {why:?}");
    }
}

#[tokio::test]
async fn annotations_tell_what_a_pod_without_a_spec_gets() {
    let hook = json!({"exec": {"command": ["before"]}}).to_string();
    for (deletion, own, runs) in [
        (None, None, true),
        (None, Some("0"), false),
        (None, Some("30"), true),
        (Some("0"), Some("30"), false),
        (Some("5"), Some("0"), true),
    ] {
        let bench = Bench::new(|_, _| {});
        let annotations = [
            (labels::PRE_STOP_HANDLER, Some(hook.as_str())),
            (labels::POD_DELETION_GRACE, deletion),
            (labels::POD_TERMINATION_GRACE, own),
        ];
        let annotations = annotations.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
        bench.runtime.lock().annotations = annotations.collect();
        let calls = stop(&bench, None, StopReason::PodTerminating).await;
        assert_eq!(calls[0] == "ExecSync before", runs, "{deletion:?} {own:?}: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_cut_off_when_its_time_is_up() {
    let bench = Bench::new(|_, _| {});
    bench.runtime.lock().hangs.insert("ExecSync");
    let pod = pod_with("", HOOK, r#""terminationGracePeriodSeconds":0"#);
    let began = tokio::time::Instant::now();
    stop(&bench, Some(&pod), StopReason::PodTerminating).await;
    assert_eq!(began.elapsed().as_secs(), 1, "as much as upstream gives");
    assert!(bench.told().contains(&"FailedPreStopHook: PreStopHook failed".to_owned()));
}
