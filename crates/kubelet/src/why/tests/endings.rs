//! Containers that ended, and pods on their way out.

use std::time::Duration;

use kubelet_model::Mono;
use serde_json::{Value, json};

use super::super::Manifest;
use super::{Case, container_status, has, one};
use crate::progress::{PodEnd, Progress};
use crate::status_manager::Ended;

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
}

#[test]
fn a_probe_is_blamed_for_what_it_had_killed() {
    let failed = "Container app failed liveness probe, will be restarted";
    let probed = || crash(137, "Error", json!({})).event("Killing", failed);
    let blamed = "Its liveness probe failed and so klet stopped it";
    has(&probed().text(), &[blamed]);
    // Another container's end says nothing about this one.
    has(&probed().event_of("other", "Killing", "Stopping container other").text(), &[blamed]);
    let changed = "Container app definition changed, will be restarted";
    let text = probed().event("Killing", changed).text();
    assert!(!text.contains(blamed), "{text}");
    // That was an instance before the last one.
    let mut later = probed();
    let last = &mut later.status.container_statuses.as_mut().unwrap()[0].last_state;
    let last = last.as_mut().unwrap().terminated.as_mut().unwrap();
    last.started_at = serde_json::from_value(json!("1970-01-01T01:00:01Z")).unwrap();
    assert!(!later.text().contains(blamed), "{}", later.text());
    // One that is not started again was killed for a reason, too.
    let state = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
    let mut spec = one(json!({}));
    spec["restartPolicy"] = json!("Never");
    let once = Case::new(spec, container_status(state, json!({}))).event("Killing", failed);
    has(&once.text(), &[blamed, "restartPolicy: Never"]);
}

#[test]
fn a_pod_on_its_way_out_tells_how_long() {
    let mut spec = one(json!({}));
    spec["terminationGracePeriodSeconds"] = json!(30);
    // Its containers were stopped once before, for another sandbox.
    let mut case = Case::new(spec, container_status(json!({"running": {}}), json!({})))
        .event("Killing", "Stopping container app");
    case.manifest = Manifest::Gone(vec!["/etc/klet/pods/web.yaml: line 8: wrong".into()]);
    assert!(!case.text().contains("being removed"), "{}", case.text());
    let at = |seconds| Mono(Duration::from_secs(seconds));
    let end = |runs| {
        let ending = Some(PodEnd { since: at(95), kill_at: at(115), runs });
        Some(Progress { ending, ..Progress::default() })
    };
    case.progress = end(true);
    let words = ["being removed", "within 20 s", "since 5s ago", "kill what has not ended, in 15s"];
    has(&case.text(), &words);
    has(&case.text(), &["unusable: /etc/klet/pods/web.yaml: line 8"]);
    case.progress = end(false);
    has(&case.text(), &["being removed", "its containers have ended"]);
    // Its worker has not been told yet.
    (case.progress, case.manifest) = (None, Manifest::Gone(Vec::new()));
    has(&case.text(), &["being removed", "within 30 s"]);
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
fn the_containers_own_policy_counts() {
    let ended = |policy: serde_json::Value, kind: &str| {
        let state = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let mut spec = one(policy);
        spec["restartPolicy"] = json!("Never");
        if kind != "containers" {
            spec[kind] = spec["containers"].take();
            spec["containers"] = json!([]);
        }
        let mut status = container_status(state, json!({}));
        if kind == "ephemeralContainers" {
            status["ephemeralContainerStatuses"] = status["containerStatuses"].take();
        }
        Case::new(spec, status).text()
    };
    has(&ended(json!({}), "containers"), &["restartPolicy: Never keeps it as it is"]);
    let own = ended(json!({"restartPolicy": "Never"}), "containers");
    has(&own, &["The container's own restartPolicy keeps it as it is"]);
    let again = ended(json!({"restartPolicy": "OnFailure"}), "containers");
    assert!(!again.contains("keeps it as it is"), "{again}");
    let debug = ended(json!({}), "ephemeralContainers");
    has(&debug, &["app ended with exit code 1", "never started again"]);
    // A job in a pod that restarts everything else.
    let job = crash(0, "Completed", json!({"restartPolicy": "OnFailure"})).text();
    assert!(!job.contains("restartPolicy is Always"), "{job}");
    has(&crash(0, "Completed", json!({})).text(), &["restartPolicy is Always"]);
}

/// Both carry 137, and nobody has killed anything.
#[test]
fn ends_that_nobody_saw_are_not_blamed_on_a_kill() {
    for (reason, needle) in [
        ("ContainerStatusUnknown", "nobody knows how it ended"),
        ("RestartingAllContainers", "klet removed it, because the whole pod started over"),
    ] {
        let text = crash(137, reason, json!({})).text();
        has(&text, &[needle]);
        assert!(!text.contains("SIGKILL") && !text.contains("dmesg"), "{reason}: {text}");
    }
}

#[test]
fn pods_that_the_agent_failed_say_why_and_what_to_do() {
    let evicted = |message: &str| Ended {
        reason: "Evicted".to_owned(),
        message: message.to_owned(),
        before_anything: false,
        disruption: None,
    };
    for (ended, needles) in [
        (
            evicted("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
            [
                "The pod has failed: Evicted.",
                "Usage of EmptyDir volume \"v\" exceeds the limit",
                "Raise the volume's emptyDir.sizeLimit",
            ],
        ),
        (
            evicted("Container app exceeded its local ephemeral storage limit \"1Mi\". "),
            [
                "The pod has failed: Evicted.",
                "Container app exceeded",
                "more than its resources.limits.ephemeral-storage",
            ],
        ),
        (
            evicted("The node was low on resource: memory. "),
            ["The pod has failed: Evicted.", "low on resource", "lower what pods use"],
        ),
        (
            Ended::sandbox_lost(),
            [
                "The pod has failed: SandboxLost.",
                "The pod's sandbox was lost",
                "look at the runtime's log. Set restartPolicy to OnFailure or Always",
            ],
        ),
        (
            Ended::deadline_exceeded(),
            [
                "The pod has failed: DeadlineExceeded.",
                "active on the node longer than the specified deadline",
                "Raise spec.activeDeadlineSeconds, or remove it",
            ],
        ),
    ] {
        // What became of its container is not the cause.
        let killed = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
        let mut status = container_status(killed, json!({}));
        status["phase"] = json!("Failed");
        status["reason"] = json!(ended.reason);
        status["message"] = json!(ended.message);
        let mut spec = one(json!({}));
        spec["restartPolicy"] = json!("Never");
        let case = Case::new(spec, status);
        has(&case.text(), &needles);
        assert_eq!(case.explain().headline, needles[0]);
    }
}
