//! The Node object as it is made, and what an older one is made to agree with.
//!
//! Pure. Taints of an older one stay: others may have removed them for good reason.
//! Upstream: initialNode and the reconcile functions of
//! pkg/kubelet/kubelet_node_status.go.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::facts::NodeFacts;
use super::fields::{self, Fields};
use super::resources::{is_extended, is_huge_pages, same};
use super::settings::{ARCH, NodeSettings, OS};
use super::status::{self, Outcome, Told};

/// Tells that volumes are attached by the controller, not by the node.
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Keeps pods away until an external cloud provider has had its say.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Labels of an older Node that are made to agree.
const DEFAULT_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    LABEL_OS,
    LABEL_ARCH,
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const LABEL_OS: &str = "kubernetes.io/os";
const LABEL_ARCH: &str = "kubernetes.io/arch";

/// The Node as it is made, before a server knows it; also what stands in for it where
/// there is no server.
pub fn initial_node(settings: &NodeSettings, facts: &NodeFacts, now: Timestamp) -> Value {
    initial(settings, facts, now, &mut Told::default()).0
}

/// Labels that every node has.
pub fn default_labels(hostname: &str) -> [(&'static str, String); 5] {
    [
        ("kubernetes.io/hostname", hostname.to_owned()),
        (LABEL_OS, OS.to_owned()),
        (LABEL_ARCH, ARCH.to_owned()),
        ("beta.kubernetes.io/os", OS.to_owned()),
        ("beta.kubernetes.io/arch", ARCH.to_owned()),
    ]
}

pub(super) fn initial(
    settings: &NodeSettings,
    facts: &NodeFacts,
    now: Timestamp,
    told: &mut Told,
) -> (Value, Outcome) {
    let mut labels = Map::new();
    for (label, value) in default_labels(&settings.hostname) {
        fields::put_text(&mut labels, label, &value);
    }
    for (label, value) in &settings.labels {
        fields::put_text(&mut labels, label, value);
    }
    let mut taints = Vec::new();
    for taint in &settings.taints {
        let mut entry = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            entry["value"] = taint.value.as_str().into();
        }
        taints.push(entry);
    }
    if settings.external_cloud {
        taints.push(json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}));
    }
    let mut spec = Map::new();
    fields::put_list(&mut spec, "taints", taints);
    if !settings.provider_id.is_empty() {
        fields::put_text(&mut spec, "providerID", &settings.provider_id);
    }
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": settings.name, "labels": labels}, "spec": spec});
    if settings.controller_attaches {
        node["metadata"]["annotations"] = json!({CONTROLLER_ATTACHES: "true"});
    }
    let outcome = status::set(&mut node, settings, facts, now, told);
    (node, outcome)
}

/// Makes an older Node agree with the one that was to be made. Says whether it did not.
pub(super) fn reconcile(existing: &mut Value, initial: &Value, devices_forgotten: bool) -> bool {
    let mut changed = set_annotation(existing, initial);
    changed |= set_default_labels(existing, initial);
    changed |= set_resources(existing, initial, devices_forgotten);
    changed
}

fn set_annotation(existing: &mut Value, initial: &Value) -> bool {
    let wanted = initial["metadata"]["annotations"].get(CONTROLLER_ATTACHES);
    let metadata = fields::map(fields::as_map(existing), "metadata");
    let annotations = fields::map(metadata, "annotations");
    if annotations.get(CONTROLLER_ATTACHES) == wanted {
        return false;
    }
    match wanted {
        Some(value) => annotations.insert(CONTROLLER_ATTACHES.to_owned(), value.clone()),
        None => annotations.remove(CONTROLLER_ATTACHES),
    };
    true
}

fn set_default_labels(existing: &mut Value, initial: &Value) -> bool {
    let metadata = fields::map(fields::as_map(existing), "metadata");
    let labels = fields::map(metadata, "labels");
    let mut changed = false;
    for label in DEFAULT_LABELS {
        let Some(Value::String(wanted)) = initial["metadata"]["labels"].get(label) else {
            continue;
        };
        let has = labels.get(label).and_then(Value::as_str).unwrap_or_default();
        changed |= has != wanted;
        if wanted.is_empty() {
            labels.remove(label);
        } else {
            fields::put_text(labels, label, wanted);
        }
    }
    changed
}

fn set_resources(existing: &mut Value, initial: &Value, devices_forgotten: bool) -> bool {
    let status = fields::map(fields::as_map(existing), "status");
    let mut changed = false;
    for list in ["capacity", "allocatable"] {
        if fields::is_empty(status.get(list)) && !fields::is_empty(initial["status"].get(list)) {
            status.insert(list.to_owned(), initial["status"][list].clone());
            changed = true;
        }
    }
    let mut capacity = std::mem::take(fields::map(status, "capacity"));
    let allocatable = fields::map(status, "allocatable");
    if devices_forgotten {
        changed |= zero_extended(&mut capacity, allocatable);
    }
    changed |= set_huge_pages(&mut capacity, allocatable, initial);
    *fields::map(status, "capacity") = capacity;
    changed
}

fn zero_extended(capacity: &mut Fields, allocatable: &mut Fields) -> bool {
    let mut changed = false;
    for (name, amount) in capacity.iter_mut().filter(|(name, _)| is_extended(name)) {
        *amount = "0".into();
        fields::put_text(allocatable, name, "0");
        changed = true;
    }
    changed
}

fn set_huge_pages(capacity: &mut Fields, allocatable: &mut Fields, initial: &Value) -> bool {
    let nothing = Map::new();
    let list = |key: &str| initial["status"][key].as_object().unwrap_or(&nothing);
    let mut changed = false;
    for (name, amount) in list("capacity").iter().filter(|(name, _)| is_huge_pages(name)) {
        let is_new = !capacity.contains_key(name);
        for (old, wanted) in
            [(&mut *capacity, Some(amount)), (&mut *allocatable, list("allocatable").get(name))]
        {
            let wanted = wanted.and_then(Value::as_str).unwrap_or("0");
            if is_new || !same(old.get(name), wanted) {
                fields::put_text(old, name, wanted);
                changed = true;
            }
        }
    }
    let is_kept = |name: &str| !is_huge_pages(name) || list("capacity").contains_key(name);
    capacity.retain(|name, _| {
        let keeps = is_kept(name);
        if !keeps {
            allocatable.remove(name);
            changed = true;
        }
        keeps
    });
    changed
}

/// Labels that a Node must never be without. Says whether it was.
pub(super) fn set_required_labels(node: &mut Value) -> bool {
    let mut changed = false;
    for (label, wanted) in [(LABEL_OS, OS), (LABEL_ARCH, ARCH)] {
        let has = node["metadata"]["labels"].get(label).and_then(Value::as_str);
        if has != Some(wanted) {
            let metadata = fields::map(fields::as_map(node), "metadata");
            fields::put_text(fields::map(metadata, "labels"), label, wanted);
            changed = true;
        }
    }
    changed
}
