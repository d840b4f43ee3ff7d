//! What comes together in one explanation.

use std::time::Duration;

use jiff::Timestamp;
use kubelet_model::Mono;
use serde_json::json;

use super::{Case, container_status, has, one};
use crate::progress::{Doing, NextTry, Progress, StepError};

#[test]
fn what_the_worker_does_is_told() {
    let mut case = Case::waiting("ContainerCreating", "pulling image: 3 of 9 MB", json!({}));
    let at = |seconds| Mono(Duration::from_secs(seconds));
    case.progress = Some(Progress {
        doing: vec![Doing::new("start app", at(5))],
        calls: [(0, Doing::new("PullImage example.com/a:1", at(10)))].into(),
        failing: Default::default(),
        waiting: None,
        last_error: Some(StepError {
            step: "create sandbox".into(),
            message: "no network".into(),
            at: Timestamp::from_second(3_540).unwrap(),
            count: 3,
        }),
        next: Some(NextTry { what: "create sandbox".into(), at: at(108) }),
        ending: None,
    });
    has(
        &case.text(),
        &[
            "pulling image: 3 of 9 MB",
            "PullImage example.com/a:1, for 90s",
            "create sandbox: no network (60s ago, 3 times in a row)",
            "Next: create sandbox in 8s",
        ],
    );
}

#[test]
fn the_gravest_comes_first_and_what_else_is_wrong_is_named() {
    let spec = json!({"containers": [{"name": "a", "image": "A"}, {"name": "b"}]});
    let status = |of_a: &str| {
        json!({"phase": "Pending", "containerStatuses": [
        {"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
         "state": {"waiting": {"reason": of_a}}},
        {"name": "b", "image": "", "imageID": "", "ready": false, "restartCount": 0,
         "state": {"waiting": {"reason": "ErrImageNeverPull"}}}]})
    };
    let found = Case::new(spec.clone(), status("InvalidImageName")).explain();
    assert!(found.headline.contains("image name of a"), "{found:?}");
    assert!(found.also[0].contains("image of b") && found.also.len() == 1, "{found:?}");
    let found = Case::new(spec, status("ContainerCreating")).explain();
    assert!(found.headline.contains("image of b"), "{found:?}");
    assert_eq!(found.also, [""; 0], "a is on its way: nothing is wrong with it");
}

#[test]
fn hostile_text_does_not_steer_the_terminal() {
    let long = format!("\u{1b}[2J{}", "x ".repeat(9_000));
    let mut case = Case::waiting("RunContainerError", &long, json!({}));
    case.logs.insert("app".into(), vec![long.clone(); 90]);
    let text = case.text();
    assert!(!text.contains('\u{1b}') && text.len() < 4_000, "{}", text.len());
    assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
}

#[test]
fn readiness_gates_are_explained() {
    let running = json!({"running": {"startedAt": "1970-01-01T00:30:00Z"}});
    let mut status = container_status(running, json!({}));
    status["phase"] = json!("Running");
    status["containerStatuses"][0]["ready"] = json!(true);
    let message = "the status of pod readiness gate \"example.com/lit\" is not \"True\", but False";
    status["conditions"] = json!([{
        "type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": message,
        "lastTransitionTime": "1970-01-01T00:59:00Z",
    }]);
    let text = Case::new(one(json!({})), status).text();
    has(&text, &["but the pod is not", "example.com/lit", "spec.readinessGates"]);
}

#[test]
fn a_resize_that_waits_or_fails_is_explained() {
    let text = |kind: &str, reason: &str, message: &str| {
        let running = json!({"running": {"startedAt": "1970-01-01T00:30:00Z"}});
        let mut status = container_status(running, json!({}));
        status["containerStatuses"][0]["ready"] = json!(true);
        status["conditions"] = json!([{
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "1970-01-01T00:59:00Z",
        }]);
        Case::new(one(json!({})), status).text()
    };
    let short = "Node didn't have enough resource: memory, requested: 4194304, used: 1048576, \
                 capacity: 2097152";
    has(
        &text("PodResizePending", "Deferred", short),
        &["no room", "asks for 4 MiB, other pods hold 1 MiB of the node's 2 MiB", "klet pods -A"],
    );
    let cpu = "Node didn't have enough resource: cpu, requested: 4000, used: 100, capacity: 2000";
    has(&text("PodResizePending", "Deferred", cpu), &["asks for 4000m, other pods hold 100m"]);
    has(
        &text("PodResizePending", "Infeasible", "Pod QOS Class may not change"),
        &["cannot be given the size", "Pod QOS Class may not change", "starts anew"],
    );
    let memory = "cannot decrease memory limits: attempting to set pod memory limit (1) below";
    has(
        &text("PodResizeInProgress", "Error", memory),
        &["could not be put in force", "below what is used now", "RestartContainer"],
    );
    has(&text("PodResizeInProgress", "Error", "busy"), &["busy", "klet why node"]);
    has(&text("PodResizeInProgress", "", ""), &["The pod runs and is ready"]);
}
#[test]
fn a_pod_that_is_not_ready_tells_of_its_probe() {
    let probe =
        json!({"readinessProbe": {"httpGet": {"path": "/ok", "port": 8080}, "periodSeconds": 5}});
    let running = json!({"running": {"startedAt": "1970-01-01T00:50:00Z"}});
    let mut case = Case::new(one(probe), container_status(running.clone(), json!({})));
    has(&case.text(), &["has not succeeded yet", "http://<pod IP>:8080/ok", "every 5 s"]);
    case =
        case.event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404");
    has(
        &case.text(),
        &[
            "its readiness probe fails",
            "statuscode: 404",
            "correct the probe's path",
            "since 10m ago",
        ],
    );
    let startup = json!({"startupProbe": {"tcpSocket": {"port": 1}, "failureThreshold": 30}});
    let case = Case::new(one(startup), container_status(running, json!({})))
        .event("Unhealthy", "Startup probe failed: dial tcp: connection refused");
    has(&case.text(), &["its startup probe fails", "0.0.0.0", "longer than about 300 s"]);
}

#[test]
fn a_container_that_is_being_stopped_tells_of_its_probe() {
    let probe = json!({"livenessProbe": {"httpGet": {"path": "/live", "port": 8080}}});
    let running = json!({"running": {"startedAt": "1970-01-01T00:50:00Z"}});
    let mut status = container_status(running, json!({}));
    status["phase"] = json!("Running");
    status["containerStatuses"][0]["ready"] = json!(true);
    let stopped = |case: Case| {
        let since = Mono(Duration::from_secs(93));
        let doing = vec![Doing::new("stop app", since)];
        Case { progress: Some(Progress { doing, ..Progress::default() }), ..case }.text()
    };
    let case = || Case::new(one(probe.clone()), status.clone());
    has(&case().text(), &["runs and is ready"]);
    let failed = case()
        .event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503")
        .event("Killing", "Container app failed liveness probe, will be restarted");
    has(
        &stopped(failed),
        &["because its liveness probe failed", "/live", "since 7s ago", "statuscode: 503"],
    );
    let changed = case().event("Killing", "Container app definition changed, will be restarted");
    has(&stopped(changed), &["app is being stopped: Container app definition changed"]);
    has(&stopped(case()), &["app is being stopped.", "klet events default/web-n1"]);
}

#[test]
fn a_restart_that_is_over_tells_of_the_probe_that_was_to_blame() {
    let running = json!({"running": {"startedAt": "1970-01-01T00:59:55Z"}});
    let ended = json!({"terminated": {
        "exitCode": 0, "startedAt": "1970-01-01T00:50:00Z", "finishedAt": "1970-01-01T00:59:51Z",
    }});
    let mut status = container_status(running, ended);
    status["containerStatuses"][0]["ready"] = json!(true);
    let case = || Case::new(one(json!({})), status.clone());
    has(&case().text(), &["For the record: app was restarted; it ended with exit code 0 9s ago"]);
    let blamed = case().event("Killing", "Container app failed liveness probe, will be restarted");
    has(
        &blamed.text(),
        &[
            "For the record: app was restarted 9s ago. Its liveness probe failed and so klet stopped",
        ],
    );
}
