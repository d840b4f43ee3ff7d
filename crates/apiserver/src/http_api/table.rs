//! Objects as rows and columns, for people.
//!
//! Pure. Pods, nodes and a few more have columns of their own; all others a name
//! and an age.
//! Upstream: pkg/printers/internalversion/printers.go.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use crate::json;
use crate::resources::Resource;

/// A column: name, type, format, priority (0 is always shown).
type Column = (&'static str, &'static str, &'static str, i32);

const NAME: Column = ("Name", "string", "name", 0);
const AGE: Column = ("Age", "string", "", 0);

fn columns_of(resource: &Resource) -> &'static [Column] {
    match (resource.group, resource.kind) {
        ("", "Pod") => &[
            NAME,
            ("Ready", "string", "", 0),
            ("Status", "string", "", 0),
            ("Restarts", "string", "", 0),
            AGE,
            ("IP", "string", "", 1),
            ("Node", "string", "", 1),
        ],
        ("", "Node") => &[
            NAME,
            ("Status", "string", "", 0),
            ("Roles", "string", "", 0),
            AGE,
            ("Version", "string", "", 0),
            ("Internal-IP", "string", "", 1),
            ("OS-Image", "string", "", 1),
            ("Kernel-Version", "string", "", 1),
            ("Container-Runtime", "string", "", 1),
        ],
        ("", "Namespace" | "PersistentVolume" | "PersistentVolumeClaim") => {
            &[NAME, ("Status", "string", "", 0), AGE]
        }
        ("", "Secret") => &[NAME, ("Type", "string", "", 0), ("Data", "integer", "", 0), AGE],
        ("", "ConfigMap") => &[NAME, ("Data", "integer", "", 0), AGE],
        ("", "Service") => &[NAME, ("Type", "string", "", 0), ("Cluster-IP", "string", "", 0), AGE],
        ("coordination.k8s.io", "Lease") => &[NAME, ("Holder", "string", "", 0), AGE],
        ("certificates.k8s.io", "CertificateSigningRequest") => &[
            NAME,
            AGE,
            ("SignerName", "string", "", 0),
            ("Requestor", "string", "", 0),
            ("Condition", "string", "", 0),
        ],
        ("", "Event") | ("events.k8s.io", "Event") => &[
            ("Last Seen", "string", "", 0),
            ("Type", "string", "", 0),
            ("Reason", "string", "", 0),
            ("Object", "string", "", 0),
            ("Message", "string", "", 0),
            ("Name", "string", "name", 1),
        ],
        _ => &[NAME, AGE],
    }
}

/// Column definitions of a resource.
pub(super) fn columns(resource: &Resource) -> Vec<Value> {
    let definition = |(name, kind, format, priority): &Column| {
        json!({
            "name": name, "type": kind, "format": format, "priority": priority,
            "description": format!("{name} of the object"),
        })
    };
    columns_of(resource).iter().map(definition).collect()
}

/// Cells of one object.
pub(super) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    columns_of(resource).iter().map(|(name, ..)| cell(object, name, now)).collect()
}

fn cell(object: &Value, column: &str, now: Timestamp) -> Value {
    let text = |path: &str| json::text(object, path);
    let or_none = |value: &str| Value::from(if value.is_empty() { "<none>" } else { value });
    let size = |path: &str| json::at(object, path).as_object().map_or(0, serde_json::Map::len);
    let kind = text("kind");
    match column {
        "Name" => text("metadata.name").into(),
        "Age" => since(text("metadata.creationTimestamp"), now).into(),
        "Ready" => {
            let statuses = json::items(object, "status.containerStatuses");
            let ready = statuses.iter().filter(|status| status["ready"] == true).count();
            format!("{ready}/{}", json::items(object, "spec.containers").len()).into()
        }
        "Status" if kind == "Pod" => pod_status(object).into(),
        "Status" if kind == "Node" => node_status(object).into(),
        "Status" => text("status.phase").into(),
        "Restarts" => {
            let statuses = json::items(object, "status.containerStatuses");
            let restarts: i64 = statuses.iter().filter_map(|s| s["restartCount"].as_i64()).sum();
            restarts.to_string().into()
        }
        "IP" => or_none(text("status.podIP")),
        "Node" => or_none(text("spec.nodeName")),
        "Roles" => roles(object).into(),
        "Version" => text("status.nodeInfo.kubeletVersion").into(),
        "Internal-IP" => {
            let addresses = json::items(object, "status.addresses");
            let found = addresses.iter().find(|address| address["type"] == "InternalIP");
            or_none(found.map(|a| json::text(a, "address")).unwrap_or_default())
        }
        "OS-Image" => text("status.nodeInfo.osImage").into(),
        "Kernel-Version" => text("status.nodeInfo.kernelVersion").into(),
        "Container-Runtime" => text("status.nodeInfo.containerRuntimeVersion").into(),
        "Type" if kind == "Service" => text("spec.type").into(),
        "Type" => text("type").into(),
        "Data" => (size("data") + size("binaryData")).into(),
        "Cluster-IP" => or_none(text("spec.clusterIP")),
        "Holder" => text("spec.holderIdentity").into(),
        "SignerName" => text("spec.signerName").into(),
        "Requestor" => text("spec.username").into(),
        "Condition" => request_condition(object).into(),
        "Reason" => text("reason").into(),
        "Last Seen" => since(first_of(object, LAST_SEEN).as_str().unwrap_or_default(), now).into(),
        "Object" => about(object).into(),
        "Message" => first_of(object, &["message", "note"]).clone(),
        _ => Value::Null,
    }
}

const LAST_SEEN: &[&str] = &[
    "series.lastObservedTime",
    "lastTimestamp",
    "deprecatedLastTimestamp",
    "eventTime",
    "metadata.creationTimestamp",
];

fn first_of<'a>(object: &'a Value, paths: &[&str]) -> &'a Value {
    let found = paths.iter().map(|path| json::at(object, path)).find(|value| !value.is_null());
    found.unwrap_or(&Value::Null)
}

fn about(event: &Value) -> String {
    let object = first_of(event, &["involvedObject", "regarding"]);
    format!("{}/{}", json::text(object, "kind").to_lowercase(), json::text(object, "name"))
}

/// One word for a pod: why it waits or ended, else its phase.
fn pod_status(pod: &Value) -> String {
    if !json::at(pod, "metadata.deletionTimestamp").is_null() {
        return "Terminating".to_owned();
    }
    if let Some(status) = init_status(pod) {
        return status;
    }
    let mut word = match json::text(pod, "status.reason") {
        "" => json::text(pod, "status.phase").to_owned(),
        reason => reason.to_owned(),
    };
    for status in json::items(pod, "status.containerStatuses").iter().rev() {
        if let Some(why) = why_not_running(status) {
            word = why;
        }
    }
    word
}

fn init_status(pod: &Value) -> Option<String> {
    let all = json::items(pod, "spec.initContainers").len();
    for (index, status) in json::items(pod, "status.initContainerStatuses").iter().enumerate() {
        let done = json::at(status, "state.terminated.exitCode") == 0 || status["started"] == true;
        if done {
            continue;
        }
        return Some(match why_not_running(status) {
            Some(why) if why != "PodInitializing" => format!("Init:{why}"),
            _ => format!("Init:{index}/{all}"),
        });
    }
    None
}

fn why_not_running(status: &Value) -> Option<String> {
    let ended = json::at(status, "state.terminated");
    let reason = match json::text(status, "state.waiting.reason") {
        "" => json::text(ended, "reason"),
        reason => reason,
    };
    if !reason.is_empty() {
        return Some(reason.to_owned());
    }
    let code = ended["exitCode"].as_i64()?;
    match ended["signal"].as_i64() {
        Some(signal) if signal != 0 => Some(format!("Signal:{signal}")),
        _ => Some(format!("ExitCode:{code}")),
    }
}

fn node_status(node: &Value) -> String {
    let conditions = json::items(node, "status.conditions");
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let word = match ready.map(|condition| json::text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    match json::at(node, "spec.unschedulable") == true {
        true => format!("{word},SchedulingDisabled"),
        false => word.to_owned(),
    }
}

fn roles(node: &Value) -> String {
    let labels = json::at(node, "metadata.labels").as_object().into_iter().flatten();
    let names: Vec<&str> = labels
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    if names.is_empty() { "<none>".to_owned() } else { names.join(",") }
}

fn request_condition(request: &Value) -> String {
    let has = |word: &str| {
        json::items(request, "status.conditions").iter().any(|condition| condition["type"] == word)
    };
    let mut words = Vec::new();
    match (has("Denied"), has("Approved")) {
        (true, _) => words.push("Denied"),
        (false, true) => words.push("Approved"),
        (false, false) => words.push("Pending"),
    }
    if has("Failed") {
        words.push("Failed");
    }
    if !json::text(request, "status.certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_a_pod() {
        let with = |statuses: Value| json!({"status": {"phase": "Pending", "containerStatuses": statuses}});
        for (pod, expected) in [
            (json!({"status": {"phase": "Running"}}), "Running"),
            (
                json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}),
                "Terminating",
            ),
            (json!({"status": {"phase": "Failed", "reason": "Evicted"}}), "Evicted"),
            (with(json!([{"state": {"waiting": {"reason": "ErrImagePull"}}}])), "ErrImagePull"),
            (with(json!([{"state": {"terminated": {"exitCode": 3}}}])), "ExitCode:3"),
            (
                json!({"spec": {"initContainers": [{}, {}]}, "status": {"phase": "Pending",
                "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}}),
                "Init:1/2",
            ),
        ] {
            assert_eq!(pod_status(&pod), expected, "{pod}");
        }
    }

    #[test]
    fn nodes_and_requests() {
        let node = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(node_status(&node), "Ready,SchedulingDisabled");
        assert_eq!(roles(&node), "worker");
        let request = json!({"status": {"certificate": "x", "conditions": [{"type": "Approved"}]}});
        assert_eq!(request_condition(&request), "Approved,Issued");
    }
}
