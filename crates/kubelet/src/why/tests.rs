//! Every state has an answer that says more than that something is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{EventObject, EventType, Mono, PodUid, WaitReason};
use serde_json::{Value, json};

use super::image::{PullTrouble, classify, name_problem, registry};
use super::pod::after;
use super::{Explanation, Manifest, WhyFacts, explain, obstacle, render};
use crate::events::Event;
use crate::progress::{Doing, NextTry, Obstacle, Progress, StepError, WaitingFor};

/// 1970-01-01T01:00:00Z.
fn now() -> Timestamp {
    Timestamp::from_second(3_600).unwrap()
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web-n1", "namespace": "default", "uid": "u"}, "spec": spec,
    }))
    .unwrap()
}

fn one(container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("app");
    json!({"containers": [container]})
}

fn container_status(state: Value, last: Value) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 4,
        "state": state, "lastState": last,
    }]})
}

struct Case {
    pod: Pod,
    status: PodStatus,
    progress: Option<Progress>,
    events: Vec<Event>,
    logs: BTreeMap<String, Vec<String>>,
    manifest: Manifest,
}

impl Case {
    fn new(spec: Value, status: Value) -> Self {
        Self {
            pod: pod(spec),
            status: serde_json::from_value(status).unwrap(),
            progress: None,
            events: Vec::new(),
            logs: BTreeMap::new(),
            manifest: Manifest::File("/etc/klet/pods/web.yaml".into()),
        }
    }
    fn waiting(reason: &str, message: &str, container: Value) -> Self {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        Self::new(one(container), container_status(state, json!({})))
    }
    fn event(mut self, reason: &'static str, message: &str) -> Self {
        self.events.push(Event {
            object: EventObject::Pod {
                uid: PodUid::new("u"),
                name: "web-n1".into(),
                namespace: "default".into(),
                field_path: "spec.containers{app}".into(),
            },
            kind: EventType::Warning,
            reason,
            message: message.to_owned(),
            count: 1,
            first: Timestamp::from_second(3_590).unwrap(),
            last: now(),
        });
        self
    }
    fn explain(&self) -> Explanation {
        explain(&WhyFacts {
            pod: &self.pod,
            status: &self.status,
            progress: self.progress.as_ref(),
            events: &self.events,
            logs: &self.logs,
            manifest: &self.manifest,
            wall: now(),
            mono: Mono(Duration::from_secs(100)),
        })
    }
    fn text(&self) -> String {
        render(&self.explain(), now())
    }
}

#[track_caller]
fn has(text: &str, needles: &[&str]) {
    // Lines are broken for the screen; the words count.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for needle in needles {
        assert!(flat.contains(needle), "{needle:?} is missing from:\n{text}");
    }
}

#[test]
fn every_reason_to_wait_has_its_own_answer() {
    let mut reason: Option<WaitReason> = None;
    let mut headlines = BTreeSet::new();
    let mut count = 0;
    while let Some(next) = after(reason) {
        let found = Case::waiting(next.as_str(), "", json!({"image": "example.com/a:1"})).explain();
        assert!(!found.advice.is_empty() && !found.waiting_for.is_empty(), "{next}: {found:?}");
        assert!(!found.headline.contains(" waits: "), "{next} is not known: {found:?}");
        let key = (found.headline, found.waiting_for);
        assert!(headlines.insert(key.clone()), "{next} shares its answer {key:?}");
        (reason, count) = (Some(next), count + 1);
    }
    assert_eq!(count, 14);
}

#[test]
fn every_obstacle_has_its_own_answer() {
    let all = [
        Obstacle::Runtime("no socket".into()),
        Obstacle::Network("no CNI".into()),
        Obstacle::Observation,
        Obstacle::Volumes { volumes: vec!["v".into()], problems: vec![], leaving: false },
        Obstacle::Volumes {
            volumes: vec!["v".into()],
            problems: vec!["it is in use".into()],
            leaving: true,
        },
        Obstacle::Turn,
        Obstacle::NameTaken,
        Obstacle::Retry,
        Obstacle::Nothing,
    ];
    let mut headlines = BTreeSet::new();
    for what in all {
        let found = obstacle::answer(&what, false);
        assert!(!found.advice.is_empty(), "{what:?}");
        assert!(headlines.insert(found.headline.clone()), "{what:?}: {found:?}");
        let mut case = Case::new(one(json!({})), json!({"phase": "Pending"}));
        let waits = what != Obstacle::Nothing;
        let waiting = Some(WaitingFor { what, since: Mono(Duration::from_secs(40)) });
        case.progress = Some(Progress { waiting, ..Progress::default() });
        if waits {
            assert_eq!(case.explain().headline, found.headline);
            has(&case.text(), &["since 60s ago"]);
        }
    }
}

#[test]
fn pulls_fail_in_ways_that_can_be_told_apart() {
    let table = [
        ("dial tcp: lookup registry.example: no such host", PullTrouble::NoSuchHost),
        ("dial tcp: lookup x on 10.0.0.2:53: server misbehaving", PullTrouble::NoSuchHost),
        ("dial tcp 127.0.0.1:5000: connect: connection refused", PullTrouble::Refused),
        ("dial tcp 1.2.3.4:443: i/o timeout", PullTrouble::Timeout),
        ("x509: certificate signed by unknown authority", PullTrouble::Tls),
        ("http: server gave HTTP response to HTTPS client", PullTrouble::Tls),
        (
            "pull access denied, repository does not exist or may require authorization: server message: \
          insufficient_scope: authorization failed",
            PullTrouble::Unauthorized,
        ),
        ("unexpected status code 401 Unauthorized", PullTrouble::Unauthorized),
        ("failed to resolve reference \"e.com/a:1\": e.com/a:1: not found", PullTrouble::NotFound),
        ("manifest unknown", PullTrouble::NotFound),
        ("name unknown: repository name not known to registry", PullTrouble::NotFound),
        ("429 Too Many Requests: toomanyrequests", PullTrouble::TooMany),
        ("no match for platform in manifest", PullTrouble::Platform),
        ("write /var/lib: no space left on device", PullTrouble::DiskFull),
        ("pull QPS exceeded", PullTrouble::OwnLimit),
        ("gremlins", PullTrouble::Other),
    ];
    let mut advice = BTreeSet::new();
    for (message, trouble) in table {
        assert_eq!(classify(message), trouble, "{message}");
        let case = Case::waiting("ImagePullBackOff", message, json!({"image": "e.com/a:1"}));
        let found = case.explain();
        has(&case.text(), &["What you can do", "cannot be pulled"]);
        advice.insert(found.advice);
    }
    assert_eq!(advice.len(), 11, "each trouble has advice of its own");
}

#[test]
fn an_image_of_a_volume_is_told_from_the_containers_own() {
    let container =
        json!({"image": "r.io/data", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let message = |image: &str| format!("Back-off pulling image {image:?}: ErrImagePull: gremlins");
    let text = |image: &str| {
        let mut case = Case::waiting("ImagePullBackOff", &message(image), container.clone());
        let volumes = json!([{"name": "v", "image": {"reference": "r.io/data-of-old"}},
                             {"name": "w", "image": {"reference": "r.io/other"}}]);
        case.pod.spec.as_mut().unwrap().volumes = serde_json::from_value(volumes).unwrap();
        case.text()
    };
    has(&text("r.io/data"), &["The image of app cannot be pulled", "crictl pull r.io/data`"]);
    has(
        &text("r.io/data-of-old"),
        &["The image of app's volume v cannot be pulled", "crictl pull r.io/data-of-old`"],
    );
    has(&text("r.io/other"), &["The image of app cannot be pulled"]);
}

#[test]
fn names_are_read_as_runtimes_read_them() {
    assert_eq!(registry("busybox"), "docker.io");
    assert_eq!(registry("library/busybox:1"), "docker.io");
    assert_eq!(registry("localhost/a"), "localhost");
    assert_eq!(registry("r.io:5000/a/b"), "r.io:5000");
    assert!(name_problem("https://r.io/a").contains("https://"));
    assert!(name_problem("r.io/Web").contains("upper-case"));
    assert!(name_problem("a b").contains("space"));
    assert!(name_problem("web:").contains("tag"));
    assert!(name_problem("web//x").contains('/'));
}

fn crash(code: i32, reason: &str, container: Value) -> Case {
    let state = json!({"waiting": {"reason": "CrashLoopBackOff",
        "message": "back-off 1m20s restarting failed container=app pod=web-n1_default(u)"}});
    let last = json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": "1970-01-01T00:59:00Z"}});
    Case::new(one(container), container_status(state, last))
}

#[test]
fn a_crash_loop_tells_why_and_when_next() {
    let mut case = crash(127, "Error", json!({"command": ["/bin/shh"]}));
    case.logs.insert("app".into(), vec!["sh: shh: not found".into()]);
    has(
        &case.text(),
        &[
            "exit code 127, the command was not found",
            "restarted 4 times",
            "since 60s ago",
            "| sh: shh: not found",
            "start app again in 20s",
            "\"/bin/shh\" must exist in the image",
            "klet logs --previous -c app default/web-n1",
            "/etc/klet/pods/web.yaml",
        ],
    );
    let codes = [
        (0, "stay in the foreground"),
        (126, "chmod +x"),
        (137, "SIGTERM"),
        (139, "bad memory access"),
        (143, "asked to stop"),
        (135, "SIGBUS"),
        (150, "signal 22"),
    ];
    for (code, needle) in codes {
        has(&crash(code, "Error", json!({})).text(), &[needle]);
    }
    let mut never_ran = crash(128, "StartError", json!({"command": ["/bin/shh"]}));
    let last = &mut never_ran.status.container_statuses.as_mut().unwrap()[0].last_state;
    last.as_mut().unwrap().terminated.as_mut().unwrap().message =
        Some("exec: \"/bin/shh\": stat /bin/shh: no such file or directory: unknown".into());
    has(
        &never_ran.text(),
        &["\"/bin/shh\", or the interpreter it needs, is not in the image", "in 20s"],
    );
    let limited = json!({"resources": {"limits": {"memory": "64Mi"}}});
    has(&crash(137, "OOMKilled", limited).text(), &["more memory than its limit", "now 64Mi"]);
    let probed = crash(137, "Error", json!({}))
        .event("Killing", "Container app failed liveness probe, will be restarted");
    has(&probed.text(), &["Its liveness probe failed"]);
}

#[test]
fn configuration_errors_name_the_field() {
    let table = [
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root (pod: x)",
            "runAsUser",
        ),
        ("CreateContainerConfigError", "configmap \"c\" not found", "put the values into env"),
        ("CreateContainerConfigError", "failed to prepare subPath for volumeMount", "subPathExpr"),
        (
            "CreateContainerError",
            "failed to generate spec: no command specified",
            "not in the image",
        ),
        ("CreateContainerError", "failed to mount /x: not a directory", "mountPath"),
        (
            "CreateContainerError",
            "the container runtime does not support image volumes (containerd does from 2.1 on): x",
            "Update the runtime",
        ),
        ("CreateContainerError", "ImageVolumeMountFailed: no such path", "subPath"),
        (
            "RunContainerError",
            "exec: \"nope\": executable file not found in $PATH: unknown",
            "not in the image",
        ),
        ("RunContainerError", "exec /app: exec format error", "built for"),
        ("RunContainerError", "exec: \"/x\": stat /x: no such file or directory", "first line"),
        ("RunContainerError", "exec: \"/x\": permission denied", "chmod +x"),
        ("RunContainerError", "apparmor profile not found", "aa-status"),
    ];
    for (reason, message, needle) in table {
        let case = Case::waiting(reason, message, json!({"command": ["/x"]}));
        has(&case.text(), &[needle, message]);
    }
    let hook = json!({"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}});
    has(&Case::waiting("PostStartHookError", "", hook).text(), &["The hook runs `false`"]);
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
fn init_containers_are_named() {
    let spec =
        json!({"initContainers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "app"}]});
    let status = json!({"phase": "Pending",
        "initContainerStatuses": [
            {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "b", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}],
        "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "PodInitializing"}}}]});
    has(
        &Case::new(spec, status).text(),
        &["init container b (2 of 2)", "klet logs -c b default/web-n1"],
    );
}

#[test]
fn a_pod_on_its_way_out_tells_how_long() {
    let mut spec = one(json!({}));
    spec["terminationGracePeriodSeconds"] = json!(30);
    let mut case = Case::new(spec, container_status(json!({"running": {}}), json!({})))
        .event("Killing", "Stopping container app");
    case.manifest = Manifest::Gone(Vec::new());
    has(&case.text(), &["being removed", "within 30 s", "kill what has not ended, in 20s"]);
    case.manifest = Manifest::Gone(vec!["/etc/klet/pods/web.yaml: line 8: wrong".into()]);
    has(&case.text(), &["unusable: /etc/klet/pods/web.yaml: line 8"]);
}

#[test]
fn what_the_worker_does_is_told() {
    let mut case = Case::waiting("ContainerCreating", "pulling image: 3 of 9 MB", json!({}));
    let at = |seconds| Mono(Duration::from_secs(seconds));
    case.progress = Some(Progress {
        doing: vec![Doing { what: "pull example.com/a:1".into(), since: at(10) }],
        waiting: None,
        last_error: Some(StepError {
            step: "create sandbox".into(),
            message: "no network".into(),
            at: Timestamp::from_second(3_540).unwrap(),
            count: 3,
        }),
        next: Some(NextTry { what: "create sandbox".into(), at: at(108) }),
    });
    has(
        &case.text(),
        &[
            "pulling image: 3 of 9 MB",
            "pull example.com/a:1, for 90s",
            "create sandbox: no network (60s ago, 3 times in a row)",
            "Next: create sandbox in 8s",
        ],
    );
}

#[test]
fn a_sandbox_under_way_is_no_failure() {
    let told = |message: &str| {
        let mut case = Case::waiting("ContainerCreating", "", json!({}));
        let condition =
            json!({"type": "PodReadyToStartContainers", "status": "False", "message": message});
        case.status.conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
        case.text()
    };
    has(
        &told("waiting for the sandbox: it is yet to be created"),
        &["app is being made.", "Waits for: the sandbox: it is yet to be created"],
    );
    has(&told("no address left"), &["sandbox cannot be made", "Last error: no address left"]);
}

#[test]
fn a_healthy_pod_waits_for_nothing() {
    let status = json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 1, "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 139, "finishedAt": "1970-01-01T00:00:00Z"}}}]});
    has(&Case::new(one(json!({})), status).text(), &["runs and is ready", "60m ago: it crashed"]);
    has(&Case::new(one(json!({})), json!({"phase": "Succeeded"})).text(), &["has done its work"]);
}

#[test]
fn the_gravest_comes_first_and_the_rest_is_named() {
    let spec = json!({"containers": [{"name": "a", "image": "A"}, {"name": "b"}]});
    let status = json!({"phase": "Pending", "containerStatuses": [
        {"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
         "state": {"waiting": {"reason": "ContainerCreating"}}},
        {"name": "b", "image": "", "imageID": "", "ready": false, "restartCount": 0,
         "state": {"waiting": {"reason": "ErrImageNeverPull"}}}]});
    let found = Case::new(spec, status).explain();
    assert!(found.headline.contains("image of b"), "{found:?}");
    assert_eq!(found.also, ["a is being made."]);
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
