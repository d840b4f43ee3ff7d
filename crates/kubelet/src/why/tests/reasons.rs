//! Containers and pods that wait: every reason and every obstacle.

use std::collections::BTreeSet;
use std::time::Duration;

use kubelet_model::{ContainerName, Mono, WaitReason};
use serde_json::json;

use super::super::obstacle;
use super::{Case, container_status, has, one};
use crate::progress::{Obstacle, Progress, WaitingFor};

#[test]
fn every_reason_to_wait_has_its_own_answer() {
    let mut headlines = BTreeSet::new();
    for next in WaitReason::ALL {
        let found = Case::waiting(next.as_str(), "", json!({"image": "example.com/a:1"})).explain();
        assert!(!found.advice.is_empty() && !found.waiting_for.is_empty(), "{next}: {found:?}");
        assert!(!found.headline.contains(" waits: "), "{next} is not known: {found:?}");
        let key = (found.headline, found.waiting_for);
        assert!(headlines.insert(key.clone()), "{next} shares its answer {key:?}");
    }
}

#[test]
fn every_failure_to_start_tells_since_when() {
    let errors = WaitReason::ALL.iter().filter(|reason| {
        let under_way = [
            WaitReason::ContainerCreating,
            WaitReason::PodInitializing,
            WaitReason::RestartingAllContainers,
        ];
        !under_way.contains(reason)
    });
    for reason in errors {
        let mut case = Case::waiting(reason.as_str(), "no", json!({"image": "example.com/a:1"}));
        let failing = [(ContainerName::new("app"), Mono(Duration::from_secs(40)))];
        case.progress = Some(Progress { failing: failing.into(), ..Progress::default() });
        has(&case.text(), &["since 60s ago"]);
    }
}

#[test]
fn what_the_node_could_not_set_apart_is_told() {
    for (reason, done) in [("PreCreateHookError", "created"), ("PreStartHookError", "started")] {
        let case = Case::waiting(reason, "no CPUs left in the pool", json!({"image": "i"}));
        has(
            &case.text(),
            &[
                &format!(
                    "app was not {done}: the node could not set its processors or memory apart"
                ),
                "Waits for: the next try",
                "Last error: no CPUs left in the pool",
                "cpuManagerPolicy",
            ],
        );
    }
}

#[test]
fn a_pod_that_starts_over_names_the_rule() {
    let mut ruled = json!({"name": "work", "restartPolicy": "Never"});
    ruled["restartPolicyRules"] = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let spec = json!({"containers": [{"name": "app"}, ruled]});
    let state = json!({"waiting": {"reason": "RestartingAllContainers",
        "message": "The container is removed because RestartAllContainers in place"}});
    let mut status = container_status(state, json!({}));
    status["conditions"] = json!([{"type": "AllContainersRestarting", "status": "True",
        "lastTransitionTime": "1970-01-01T00:59:00Z"}]);
    has(
        &Case::new(spec, status).text(),
        &[
            "app was removed, because the whole pod starts over",
            "begins anew",
            "since 60s ago",
            "restartPolicyRules of work",
            "klet logs --previous -c work",
        ],
    );
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
        Obstacle::Admission(crate::admission::Wait::Node),
        Obstacle::Admission(crate::admission::Wait::Runtime),
        Obstacle::Admission(crate::admission::Wait::Victims(vec![kubelet_model::PodUid::new("u")])),
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
fn configuration_errors_name_the_field() {
    let table = [
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root (pod: x)",
            "runAsUser",
        ),
        ("CreateContainerConfigError", "configmap \"c\" not found", "Put a manifest of it"),
        ("CreateContainerConfigError", "couldn't find key k in Secret ns/s", "Add the key"),
        (
            "CreateContainerConfigError",
            "key k in Secret ns/s is no text and cannot be a variable; mount it as a file",
            "as a volume",
        ),
        ("CreateContainerConfigError", "couldn't parse env file: cannot open x", "init container"),
        (
            "CreateContainerConfigError",
            "environment variable key \"SECRET\" not found in file \"/v/f\"",
            "fileKeyRef",
        ),
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
    let pause = json!({"lifecycle": {"postStart": {"sleep": {"seconds": 7}}}});
    has(&Case::waiting("PostStartHookError", "", pause).text(), &["The hook pauses for 7 s"]);
}

#[test]
fn init_containers_are_named() {
    let spec =
        json!({"initContainers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "app"}]});
    let status = json!({"phase": "Pending",
        "initContainerStatuses": [
            {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "b", "image": "", "imageID": "", "ready": false, "restartCount": 0, "started": true,
             "state": {"running": {}}}],
        "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "PodInitializing"}}}]});
    has(
        &Case::new(spec.clone(), status.clone()).text(),
        &["init container b (2 of 2)", "klet logs -c b default/web-n1"],
    );
    // A sidecar need not end.
    let mut spec = spec;
    spec["initContainers"][1]["restartPolicy"] = json!("Always");
    let mut status = status;
    status["initContainerStatuses"][1]["ready"] = json!(true);
    has(&Case::new(spec, status).text(), &["all init containers being done"]);
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
fn what_the_runtime_does_not_tell_is_not_blamed_on_the_sandbox() {
    let told = |what: Obstacle| {
        let mut case = Case::waiting("ContainerCreating", "nobody listens", json!({}));
        let condition = json!({"type": "PodReadyToStartContainers", "status": "False",
            "message": "ListPodSandbox failed: nobody listens"});
        case.status.conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
        let waiting = Some(WaitingFor { what, since: Mono(Duration::from_secs(40)) });
        case.progress = Some(Progress { waiting, ..Progress::default() });
        let text = case.text();
        assert!(!text.contains("sandbox cannot be made"), "{text}");
        text
    };
    has(
        &told(Obstacle::Runtime("nobody listens".into())),
        &["The container runtime is not usable.", "Last error: nobody listens", "since 60s ago"],
    );
    has(
        &told(Obstacle::Observation),
        &["The runtime does not tell how the pod is.", "Last error: ListPodSandbox failed"],
    );
    told(Obstacle::Network("no CNI".into()));
}
