//! The status of a Node, field by field in upstream's order, and whether it changed.
//!
//! Pure: a Node, facts and a time go in; the Node is changed, and what is to be told
//! comes out. Upstream: setNodeStatus and nodeStatusHasChanged of
//! pkg/kubelet/kubelet_node_status.go, pkg/kubelet/nodestatus/setters.go.

use std::cmp::Reverse;

use jiff::Timestamp;
use kubelet_model::EventType;
use serde_json::{Value, json};

use super::facts::{NodeEvent, NodeFacts, NodeImage};
use super::fields::{self, Fields};
use super::settings::{ARCH, NodeSettings, OS};
use super::{addresses, conditions, resources};

/// Names of one image that are shown.
const IMAGE_NAMES_MAX: usize = 5;
/// Fields of `nodeInfo` that are never absent.
const INFO: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

/// What was told of the node, so that it is told once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    rebooted: bool,
    unschedulable: bool,
}

/// What comes of writing a status, besides the status.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What users should know.
    pub events: Vec<NodeEvent>,
    /// Which parts could not be written, and why.
    pub problems: Vec<String>,
}

/// Writes the status into a Node.
pub(super) fn set(
    node: &mut Value,
    settings: &NodeSettings,
    facts: &NodeFacts,
    now: Timestamp,
    told: &mut Told,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(why) = addresses::set(node, settings, &facts.network) {
        outcome.problems.push(why);
    }
    let status = fields::map(fields::as_map(node), "status");
    set_machine(status, settings, facts, told, &mut outcome);
    resources::set(status, settings, facts);
    set_versions(status, settings, facts, &mut outcome);
    fields::map(status, "daemonEndpoints")
        .insert("kubeletEndpoint".to_owned(), json!({"Port": settings.port}));
    set_images(status, settings, facts, &mut outcome);
    let info = fields::map(status, "nodeInfo");
    fields::put_text(info, "operatingSystem", OS);
    fields::put_text(info, "architecture", ARCH);
    set_runtime(status, facts);
    conditions::set(status, settings, facts, &fields::seconds(now), &mut outcome.events);
    if let Some(volumes) = &facts.volumes_in_use {
        fields::put_list(status, "volumesInUse", values(volumes));
    }
    if let Some(features) = &settings.declared_features {
        fields::put_list(status, "declaredFeatures", values(features));
    }
    let unschedulable = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if unschedulable != told.unschedulable {
        told.unschedulable = unschedulable;
        let reason = if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
        outcome.events.push(conditions::status_event(&settings.name, reason));
    }
    outcome
}

fn set_machine(
    status: &mut Fields,
    settings: &NodeSettings,
    facts: &NodeFacts,
    told: &mut Told,
    outcome: &mut Outcome,
) {
    let info = fields::map(status, "nodeInfo");
    for field in INFO {
        info.entry(field).or_insert_with(|| Value::from(""));
    }
    let machine = match &facts.machine {
        Ok(machine) => machine,
        Err(why) => {
            outcome.problems.push(format!("error getting machine info: {why}"));
            return;
        }
    };
    fields::put_text(info, "machineID", &machine.machine_id);
    fields::put_text(info, "systemUUID", &machine.system_uuid);
    let before = info.get("bootID").and_then(Value::as_str).unwrap_or_default();
    if !before.is_empty() && before != machine.boot_id && !told.rebooted {
        told.rebooted = true;
        let message =
            format!("Node {} has been rebooted, boot id: {}", settings.name, machine.boot_id);
        outcome.events.push(NodeEvent { kind: EventType::Warning, reason: "Rebooted", message });
    }
    fields::put_text(info, "bootID", &machine.boot_id);
    if machine.swap_bytes > 0 {
        info.insert("swap".to_owned(), json!({"capacity": machine.swap_bytes}));
    }
}

fn set_versions(
    status: &mut Fields,
    settings: &NodeSettings,
    facts: &NodeFacts,
    outcome: &mut Outcome,
) {
    let versions = match &facts.versions {
        Ok(versions) => versions,
        Err(why) => {
            outcome.problems.push(format!("error getting version info: {why}"));
            return;
        }
    };
    let runtime = &facts.runtime;
    let version = runtime.version.as_deref().unwrap_or("Unknown");
    let info = fields::map(status, "nodeInfo");
    fields::put_text(info, "kernelVersion", &versions.kernel);
    fields::put_text(info, "osImage", &versions.os_image);
    fields::put_text(info, "containerRuntimeVersion", &format!("{}://{version}", runtime.name));
    fields::put_text(info, "kubeletVersion", &settings.version);
    // Deprecated: what an older agent wrote is removed.
    fields::put_text(info, "kubeProxyVersion", "");
}

fn set_images(
    status: &mut Fields,
    settings: &NodeSettings,
    facts: &NodeFacts,
    outcome: &mut Outcome,
) {
    let mut shown: Vec<&NodeImage> = match &facts.images {
        Ok(images) => images.iter().collect(),
        Err(why) => {
            outcome.problems.push(format!("error getting image list: {why}"));
            Vec::new()
        }
    };
    shown.sort_by_key(|image| (Reverse(image.bytes), Reverse(&image.id)));
    if let Ok(max) = usize::try_from(settings.max_images) {
        shown.truncate(max);
    }
    let mut images = Vec::new();
    for image in shown {
        let names = image.digests.iter().chain(&image.tags).take(IMAGE_NAMES_MAX);
        let names: Vec<&String> = names.collect();
        let mut entry = json!({"names": names});
        if image.bytes > 0 {
            entry["sizeBytes"] = image.bytes.into();
        }
        images.push(entry);
    }
    fields::put_list(status, "images", images);
}

fn set_runtime(status: &mut Fields, facts: &NodeFacts) {
    let mut handlers: Vec<_> = facts.runtime.handlers.iter().collect();
    handlers.sort_by_key(|handler| &handler.name);
    let handlers = handlers.into_iter().map(|handler| {
        json!({"name": handler.name, "features": {
            "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
            "userNamespaces": handler.user_namespaces,
        }})
    });
    fields::put_list(status, "runtimeHandlers", handlers.collect());
    if let Some(policy) = facts.runtime.supplemental_groups_policy {
        status.insert("features".to_owned(), json!({"supplementalGroupsPolicy": policy}));
    }
}

fn values(texts: &[String]) -> Vec<Value> {
    texts.iter().map(|text| Value::from(text.as_str())).collect()
}

/// What the last write wanted, and what the server made of it.
pub(super) struct LastWrite {
    pub wanted: Value,
    pub answered: Value,
}

/// Do two statuses differ in more than when conditions were last looked at? A field of
/// which the server keeps something else, such as one that it is too old to know, does
/// not: it had its chance with the last write.
pub(super) fn differs(old: &Value, new: &Value, last: Option<&LastWrite>) -> bool {
    let (before, after) = (status_of(old), status_of(new));
    let keys = before.into_iter().chain(after).flat_map(|status| status.keys());
    let mut differing = keys.filter(|key| !same_part(old, new, key));
    differing.any(|key| {
        let refused = last.is_some_and(|last| {
            same_part(&last.wanted, new, key) && same_part(&last.answered, old, key)
        });
        !refused
    })
}

fn status_of(node: &Value) -> Option<&Fields> {
    node.get("status").and_then(Value::as_object)
}

fn same_part(one: &Value, other: &Value, key: &str) -> bool {
    let part = |node| status_of(node).and_then(|status| status.get(key));
    match key {
        "conditions" => fields::same(Some(&by_type(part(one))), Some(&by_type(part(other)))),
        _ => fields::same(part(one), part(other)),
    }
}

/// Conditions in the order of their types, without when they were last looked at.
fn by_type(conditions: Option<&Value>) -> Value {
    let mut conditions = match conditions {
        Some(Value::Array(conditions)) => conditions.clone(),
        _ => Vec::new(),
    };
    for condition in &mut conditions {
        if let Value::Object(fields) = condition {
            fields.remove("lastHeartbeatTime");
        }
    }
    conditions.sort_by(|a, b| fields::text(a, "/type").cmp(fields::text(b, "/type")));
    Value::Array(conditions)
}
