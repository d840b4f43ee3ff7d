//! What a pod's status at the API server should be, and the patch that makes it so.
//! Pure. Upstream: mergePodStatus in pkg/kubelet/status/status_manager.go.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::super::conditions::{DISRUPTED, is_owned_condition};
use super::super::generate::{is_terminal, truncate};

/// What a pod is not once it has ended.
const READY: [&str; 2] = ["Ready", "ContainersReady"];

/// The agent's status with what others said at the server.
pub(super) fn merge(server: &PodStatus, own: &PodStatus, now: Timestamp) -> PodStatus {
    let mut merged = own.clone();
    let early = is_terminal(own) && may_run(own);
    // Whoever sees a pod that has ended may take its place: nothing of it runs then.
    if (early || is_terminal(server)) && server.phase.is_some() {
        merged.phase = server.phase.clone();
        merged.reason = server.reason.clone();
        merged.message = server.message.clone();
    }
    let ends = is_terminal(&merged) && !is_terminal(server);
    merged.conditions = Some(conditions(server, own, ends));
    if is_terminal(&merged) {
        unready(&mut merged, server, now);
    }
    let PodStatus { start_time, qos_class, .. } = server.clone();
    merged.start_time = start_time.or(merged.start_time);
    merged.qos_class = qos_class.or(merged.qos_class);
    merged.nominated_node_name = server.nominated_node_name.clone();
    merged.resource_claim_statuses = server.resource_claim_statuses.clone();
    merged.extended_resource_claim_status = server.extended_resource_claim_status.clone();
    merged
}

/// Some container runs as far as the status tells.
fn may_run(status: &PodStatus) -> bool {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = lists.into_iter().flatten().flatten();
    all.any(|container| container.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// What has ended is not ready, whatever its containers still look like here.
fn unready(merged: &mut PodStatus, server: &PodStatus, now: Timestamp) {
    let is_ready = |c: &PodCondition| READY.contains(&c.type_.as_str());
    let all = merged.conditions.get_or_insert_default();
    if !all.iter().any(|c| is_ready(c) && c.status == "True") {
        return;
    }
    let failed = merged.phase.as_deref() == Some("Failed");
    let reason = if failed { "PodFailed" } else { "PodCompleted" };
    for condition in all.iter_mut().filter(|c| is_ready(c)) {
        let mut known = server.conditions.iter().flatten();
        let known = known.find(|c| c.type_ == condition.type_ && c.status == "False");
        let since = known.and_then(|known| known.last_transition_time.clone());
        *condition = PodCondition {
            status: "False".to_owned(),
            reason: Some(reason.to_owned()),
            message: None,
            last_transition_time: Some(since.unwrap_or(Time(truncate(now)))),
            ..condition.clone()
        };
    }
}

fn conditions(server: &PodStatus, own: &PodStatus, ends: bool) -> Vec<PodCondition> {
    let theirs = || server.conditions.iter().flatten();
    let is_own = |c: &&PodCondition| is_owned_condition(&c.type_);
    let mut all: Vec<PodCondition> = theirs().filter(|c| !is_own(c)).cloned().collect();
    for condition in own.conditions.iter().flatten() {
        // Whether the pod is disrupted, the agent says with a terminal phase only.
        let mine = is_own(&condition) || (condition.type_ == DISRUPTED && ends);
        if !mine {
            continue;
        }
        let mut condition = condition.clone();
        let same = theirs().find(|c| c.type_ == condition.type_ && c.status == condition.status);
        if let Some(same) = same {
            condition.last_transition_time = same.last_transition_time.clone();
            condition.last_probe_time = same.last_probe_time.clone();
        }
        all.retain(|c| c.type_ != condition.type_);
        all.push(condition);
    }
    all
}

/// The strategic merge patch from one status to the other; `None` if they are the same.
pub(super) fn patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    // A status holds only strings, numbers, lists and maps with string keys.
    let value = |status: &PodStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (old, new) = (value(old), value(new));
    let mut change = Map::new();
    for (field, after) in &new {
        let before = old.get(field);
        if before == Some(after) {
            continue;
        }
        match merge_key(field) {
            Some(key) => merge_list(&mut change, field, key, before, after),
            None => drop(change.insert(field.clone(), after.clone())),
        }
    }
    for (field, before) in &old {
        if !new.contains_key(field) {
            match merge_key(field) {
                Some(key) => merge_list(&mut change, field, key, Some(before), &json!([])),
                None => drop(change.insert(field.clone(), Value::Null)),
            }
        }
    }
    let worth = !change.is_empty();
    worth.then(|| json!({"metadata": {"uid": uid}, "status": change}))
}

/// Whether a change has parts that the one sent before it had not: then the server held
/// something else than was thought. What was sent and not kept is no such part.
pub(super) fn goes_beyond(change: &Value, sent: &Value) -> bool {
    let fields = change["status"].as_object().into_iter().flatten();
    // Orders come with their lists.
    let mut fields = fields.filter(|(field, _)| !field.starts_with('$'));
    fields.any(|(field, value)| {
        let Some(told) = sent["status"].get(field) else { return true };
        let Some(key) = merge_key(field) else { return false };
        let items = |list: &'_ Value| list.as_array().cloned().unwrap_or_default();
        let told = items(told);
        items(value).iter().any(|item| told.iter().all(|other| other[key] != item[key]))
    })
}

/// Lists that a server merges by a key; it takes the others as a whole.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" => Some("type"),
        "podIPs" | "hostIPs" => Some("ip"),
        _ => None,
    }
}

fn merge_list(
    change: &mut Map<String, Value>,
    field: &str,
    key: &str,
    before: Option<&Value>,
    after: &Value,
) {
    let items = |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
    let (before, after) = (items(before), items(Some(after)));
    let of = |list: &[Value], name: &Value| list.iter().find(|item| item[key] == *name).cloned();
    let mut parts = Vec::new();
    for item in &after {
        let known = of(&before, &item[key]);
        if known.as_ref() == Some(item) {
            continue;
        }
        let mut part = item.clone();
        // What the older one had and this one lacks goes.
        if let (Some(Value::Object(known)), Value::Object(fields)) = (&known, &mut part) {
            for gone in known.keys().filter(|name| item.get(name.as_str()).is_none()) {
                fields.insert(gone.clone(), Value::Null);
            }
        }
        parts.push(part);
    }
    for item in before.iter().filter(|item| of(&after, &item[key]).is_none()) {
        parts.push(json!({"$patch": "delete", key: item[key]}));
    }
    let order: Vec<Value> = after.iter().map(|item| json!({key: item[key]})).collect();
    if parts.is_empty() && order.len() == before.len() {
        let same = before.iter().zip(&after).all(|(a, b)| a[key] == b[key]);
        // Conditions have no order; addresses have.
        if same || key == "type" {
            return;
        }
    }
    change.insert(format!("$setElementOrder/{field}"), Value::Array(order));
    change.insert(field.to_owned(), Value::Array(parts));
}
