//! A pod in one row, as kubectl sums it up. Pure.
//!
//! Upstream: pkg/printers/internalversion/printers.go (printPod).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec, PodStatus};

use kubelet::server::local::wire::PodItem;

/// Characters of a waiting message shown behind its reason.
const MESSAGE_CHARS_MAX: usize = 48;

/// What one row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// `1/2`.
    pub ready: String,
    /// The state, or the reason for it.
    pub status: String,
    /// How often containers were restarted.
    pub restarts: i64,
    /// When that was last.
    pub restarted: Option<Timestamp>,
}

/// Sums up a pod.
pub fn summarise(item: &PodItem) -> Summary {
    let pod = &item.pod;
    let (spec, status) =
        (pod.spec.clone().unwrap_or_default(), pod.status.clone().unwrap_or_default());
    let mut count = Count::default();
    let mut text = status.reason.clone().filter(|reason| !reason.is_empty());
    let mut text =
        text.take().unwrap_or_else(|| status.phase.clone().unwrap_or("Unknown".to_owned()));
    let initialising = initialising(&spec, &status, &mut count);
    if let Some(reason) = &initialising {
        text.clone_from(reason);
    }
    if initialising.is_none() || is_true(&status, "Initialized") {
        main(&status, &mut count, &mut text);
    }
    if let Some(pull) = &item.pull {
        text = format!("{text}{}", bracketed(pull));
    }
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if (item.ending || pod.metadata.deletion_timestamp.is_some()) && !over {
        "Terminating".clone_into(&mut text);
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|one| one.restart_policy.as_deref() == Some("Always")).count();
    Summary {
        ready: format!("{}/{}", count.ready, spec.containers.len() + sidecars),
        status: text,
        restarts: count.restarts,
        restarted: count.last.filter(|_| count.restarts > 0),
    }
}

#[derive(Default)]
struct Count {
    ready: usize,
    restarts: i64,
    last: Option<Timestamp>,
}

impl Count {
    fn restarted(&mut self, status: &ContainerStatus) {
        self.restarts += i64::from(status.restart_count);
        let ended = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let at = ended.and_then(|ended| ended.finished_at.as_ref()).map(|time| time.0);
        self.last = self.last.max(at);
    }
}

/// The state of the first init container that is not done; `None` if all are.
fn initialising(spec: &PodSpec, status: &PodStatus, count: &mut Count) -> Option<String> {
    let mut plain = Count::default();
    let total = spec.init_containers.iter().flatten().count();
    let statuses = status.init_container_statuses.iter().flatten();
    let mut reason = None;
    for (at, one) in statuses.enumerate() {
        let definition = spec.init_containers.iter().flatten().find(|c| c.name == one.name);
        let sidecar = definition.is_some_and(|c| c.restart_policy.as_deref() == Some("Always"));
        if sidecar {
            count.restarted(one)
        } else {
            plain.restarted(one)
        }
        let state = one.state.clone().unwrap_or_default();
        let done = state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0);
        if done || (sidecar && one.started == Some(true)) {
            count.ready += usize::from(sidecar && one.ready);
            continue;
        }
        reason = Some(if let Some(ended) = state.terminated {
            match (ended.reason.filter(|reason| !reason.is_empty()), ended.signal.unwrap_or(0)) {
                (Some(reason), _) => format!("Init:{reason}"),
                (None, 0) => format!("Init:ExitCode:{}", ended.exit_code),
                (None, signal) => format!("Init:Signal:{signal}"),
            }
        } else {
            let waiting = state.waiting.unwrap_or_default();
            match waiting.reason.as_deref() {
                Some(reason) if !matches!(reason, "" | "PodInitializing") => {
                    format!("Init:{reason}")
                }
                _ => format!("Init:{at}/{total}{}", progress(waiting.message.as_deref())),
            }
        });
        break;
    }
    // Once the pod runs, its init containers' restarts are history.
    if reason.is_some() && !is_true(status, "Initialized") {
        count.restarts += plain.restarts;
        count.last = count.last.max(plain.last);
    }
    reason
}

fn main(status: &PodStatus, count: &mut Count, text: &mut String) {
    let mut running = false;
    for one in status.container_statuses.iter().flatten().rev() {
        count.restarted(one);
        let state = one.state.clone().unwrap_or_default();
        if let Some(waiting) =
            state.waiting.as_ref().filter(|w| w.reason.as_ref().is_some_and(|r| !r.is_empty()))
        {
            *text = waiting_text(
                waiting.reason.as_deref().unwrap_or_default(),
                waiting.message.as_deref(),
            );
        } else if let Some(ended) = state.terminated {
            *text =
                match (ended.reason.filter(|reason| !reason.is_empty()), ended.signal.unwrap_or(0))
                {
                    (Some(reason), _) => reason,
                    (None, 0) => format!("ExitCode:{}", ended.exit_code),
                    (None, signal) => format!("Signal:{signal}"),
                };
        } else if one.ready && state.running.is_some() {
            running = true;
            count.ready += 1;
        }
    }
    if text == "Completed" && running {
        *text = if is_true(status, "Ready") { "Running" } else { "NotReady" }.to_owned();
    }
}

/// While a container is made, how far that is: pulling an image takes long.
fn waiting_text(reason: &str, message: Option<&str>) -> String {
    let making = matches!(reason, "ContainerCreating" | "PodInitializing");
    format!("{reason}{}", progress(message.filter(|_| making)))
}

/// The message in brackets. Of pulls the agent tells apart from the status; of volumes
/// their names are enough.
fn progress(message: Option<&str>) -> String {
    let line = message.and_then(|message| message.lines().next()).unwrap_or_default();
    let volumes = line.strip_prefix("unmounted volumes=[").and_then(|rest| rest.split_once(']'));
    if let Some((names, _)) = volumes {
        return bracketed(&format!("volumes: {names}"));
    }
    let is_pull = ["Pulling image \"", "Pull of image \""].iter().any(|p| line.starts_with(p));
    if is_pull { String::new() } else { bracketed(line) }
}

/// A remark in brackets, short enough for a column.
fn bracketed(remark: &str) -> String {
    match remark.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!(" ({}…)", &remark[..end]),
        None if remark.is_empty() => String::new(),
        None => format!(" ({remark})"),
    }
}

fn is_true(status: &PodStatus, condition: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|one| one.type_ == condition && one.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    fn item(pod: Pod, pull: Option<&str>) -> PodItem {
        let (doing, in_flight) = (Vec::new(), Vec::new());
        PodItem { pod, doing, in_flight, pull: pull.map(str::to_owned), ending: false }
    }

    fn row(spec: Value, status: Value) -> String {
        row_pulling(spec, status, None)
    }

    fn row_pulling(spec: Value, status: Value, pull: Option<&str>) -> String {
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status}))
            .unwrap();
        let Summary { ready, status, restarts, .. } = summarise(&item(pod, pull));
        format!("{ready} {status} {restarts}")
    }

    fn one() -> Value {
        json!({"containers": [{"name": "a"}]})
    }

    fn state(state: Value) -> Value {
        json!({"phase": "Running", "containerStatuses": [
            {"name": "a", "image": "", "imageID": "", "ready": state["running"].is_object(), "restartCount": 0, "state": state},
        ]})
    }

    #[test]
    fn the_reason_says_more_than_the_phase() {
        assert_eq!(row(one(), json!({"phase": "Pending"})), "0/1 Pending 0");
        assert_eq!(row(one(), json!({"phase": "Failed", "reason": "Evicted"})), "0/1 Evicted 0");
        assert_eq!(row(one(), state(json!({"running": {}}))), "1/1 Running 0");
        assert_eq!(
            row(one(), state(json!({"waiting": {"reason": "CrashLoopBackOff"}}))),
            "0/1 CrashLoopBackOff 0"
        );
        assert_eq!(
            row(one(), state(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}))),
            "0/1 Completed 0"
        );
        assert_eq!(row(one(), state(json!({"terminated": {"exitCode": 3}}))), "0/1 ExitCode:3 0");
        assert_eq!(
            row(one(), state(json!({"terminated": {"exitCode": 3, "signal": 9}}))),
            "0/1 Signal:9 0"
        );
        let pulling = json!({"waiting": {"reason": "ContainerCreating", "message": "pulling image: 3 of 9 MB"}});
        assert_eq!(
            row(one(), state(pulling)),
            "0/1 ContainerCreating (pulling image: 3 of 9 MB) 0"
        );
        let creating = |message: &str| {
            let waiting = json!({"reason": "ContainerCreating", "message": message});
            row(one(), state(json!({"waiting": waiting})))
        };
        let message = "unmounted volumes=[data settings], unattached volumes=[]: not found";
        assert_eq!(creating(message), "0/1 ContainerCreating (volumes: data settings) 0");
        let cut = format!("0/1 ContainerCreating ({}…) 0", "é".repeat(48));
        assert_eq!(creating(&"é".repeat(49)), cut);
    }

    #[test]
    fn a_pod_that_is_removed_is_terminating_until_it_is_over() {
        let shown = |phase: &str| {
            let pod = json!({"spec": one(), "status": {"phase": phase}});
            let item = PodItem { ending: true, ..item(serde_json::from_value(pod).unwrap(), None) };
            summarise(&item).status
        };
        assert_eq!(["Running", "Failed"].map(shown), ["Terminating", "Failed"]);
    }

    #[test]
    fn a_pull_is_told_whatever_the_containers_state() {
        let pull = |status: Value, far: &str| row_pulling(one(), status, Some(far));
        let far = "pulling 12.3 MB of 45.6 MB";
        let name = "registry.example.com/team/some/app:1.2.3";
        let message = format!("Pulling image \"{name}\": 11.1 MB of 45.6 MB");
        let first = json!({"waiting": {"reason": "ContainerCreating", "message": message}});
        let creating = "0/1 ContainerCreating (pulling 12.3 MB of 45.6 MB) 0";
        assert_eq!(pull(state(first.clone()), far), creating);
        assert_eq!(row(one(), state(first)), "0/1 ContainerCreating 0", "it has just come in");
        let again = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        assert_eq!(pull(state(again), far), "0/1 Error (pulling 12.3 MB of 45.6 MB) 0");
        let held = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no"}});
        let waits = "0/1 ImagePullBackOff (pull waits behind 2 other pulls) 0";
        assert_eq!(pull(state(held), "pull waits behind 2 other pulls"), waits);
    }

    #[test]
    fn restarts_tell_when() {
        let status = json!({"phase": "Running", "containerStatuses": [{
            "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 2, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:15:00Z"}},
        }]});
        let pod = json!({"spec": one(), "status": status});
        let found = summarise(&item(serde_json::from_value(pod).unwrap(), None));
        assert_eq!((found.restarts, found.restarted), (2, Timestamp::from_second(900).ok()));
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}],
        });
        let init = |i: Value, s: Value, started: bool| {
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "image": "", "imageID": "", "ready": false, "restartCount": 1, "state": i},
                {"name": "s", "image": "", "imageID": "", "ready": started, "started": started, "restartCount": 0, "state": s},
            ], "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "PodInitializing"}}}]})
        };
        let (waits, runs) =
            (json!({"waiting": {"reason": "PodInitializing"}}), json!({"running": {}}));
        let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let failed = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(row(spec.clone(), init(runs.clone(), waits.clone(), false)), "0/2 Init:0/2 1");
        assert_eq!(row(spec.clone(), init(failed, waits.clone(), false)), "0/2 Init:Error 1");
        assert_eq!(
            row(spec.clone(), init(crash, waits.clone(), false)),
            "0/2 Init:CrashLoopBackOff 1"
        );
        assert_eq!(row(spec.clone(), init(done.clone(), waits.clone(), false)), "0/2 Init:1/2 1");
        assert_eq!(
            row_pulling(spec.clone(), init(waits.clone(), waits, false), Some("pulling 1.0 MB")),
            "0/2 Init:0/2 (pulling 1.0 MB) 1"
        );
        assert_eq!(row(spec, init(done, runs, true)), "1/2 PodInitializing 0");
    }
}
