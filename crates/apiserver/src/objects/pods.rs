//! Rules of pods.
//!
//! Pure. Owns defaults and checks at creation, what an update may change, binding
//! to a node and the parts `resize` and `ephemeralcontainers`.
//! Upstream: pkg/registry/core/pod/strategy.go, pkg/apis/core/validation (pod
//! updates), pkg/apis/core/helper/qos.

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::manifest;
use kubelet_model::quantity::Quantity;
use kubelet_model::typed;
use serde_json::{Value, json};

use super::service_account::account_of;
use super::{Context, time};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::resources::Resource;

/// Marks what a node tells of a pod of its own; nothing may be added to it.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Fills in what a pod leaves out. What is no pod stays as it is and is refused later.
pub(super) fn fill_in(object: &mut Value) {
    let Ok(mut pod) = typed::decode::<Pod>(object.clone(), &mut |_| {}) else { return };
    manifest::default_pod(&mut pod);
    if let Ok(filled) = serde_json::to_value(pod) {
        *object = filled;
    }
}

/// Gives a new pod its account, and checks it.
pub(super) fn begin(resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
    if account_of(object) == Some("") {
        json::set(object, "spec.serviceAccountName", "default");
    }
    let account = json::at(object, "spec.serviceAccountName").clone();
    if !account.is_null() {
        json::set(object, "spec.serviceAccount", account);
    }
    let pod: Pod = typed::decode(object.clone(), &mut |_| {})
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let causes: Vec<Cause> = manifest::validate(&pod)
        .into_iter()
        .map(|problem| Cause {
            reason: "FieldValueInvalid",
            field: problem.field,
            message: problem.message,
        })
        .collect();
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(resource, json::text(object, "metadata.name"), &causes))
}

/// The status a pod starts with.
pub(super) fn first_status(pod: &Value) -> Value {
    json!({"phase": "Pending", "qosClass": qos_class(pod)})
}

fn qos_class(pod: &Value) -> &'static str {
    let lists = ["spec.containers", "spec.initContainers"];
    let whole = json::at(pod, "spec.resources");
    let own = lists.iter().flat_map(|list| json::items(pod, list)).map(|c| &c["resources"]);
    let all: Vec<&Value> = match whole {
        Value::Null => own.collect(),
        whole => vec![whole],
    };
    let amount = |of: &Value, list: &str, name: &str| {
        let text = of[list][name].as_str()?;
        Quantity::parse(text).filter(|amount| !amount.is_zero())
    };
    let mut any = false;
    let mut guaranteed = true;
    for resources in all {
        for name in ["cpu", "memory"] {
            let (request, limit) =
                (amount(resources, "requests", name), amount(resources, "limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

const UPDATABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What an update of the pod itself changes that it may not.
pub(super) fn check_update(old: &Value, new: &Value) -> Option<Cause> {
    let counts = |pod: &Value| {
        ["containers", "initContainers"].map(|list| json::items(&pod["spec"], list).len())
    };
    if counts(old) != counts(new) {
        return Some(Cause::forbidden(
            "spec.containers",
            "pod updates may not add or remove containers",
        ));
    }
    let added = json::items(new, "spec.tolerations");
    if !json::items(old, "spec.tolerations").iter().all(|toleration| added.contains(toleration)) {
        return Some(Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified",
        ));
    }
    let mut munged = new["spec"].clone();
    for list in ["containers", "initContainers"] {
        for (index, container) in json::items(&old["spec"], list).iter().enumerate() {
            munged[list][index]["image"] = container["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        json::copy(&old["spec"], &mut munged, field);
    }
    if json::at(old, "spec.terminationGracePeriodSeconds").as_i64() < Some(0) {
        json::copy(&old["spec"], &mut munged, "terminationGracePeriodSeconds");
    }
    (munged != old["spec"]).then(|| Cause::forbidden("spec", UPDATABLE))
}

/// The old pod with the requests, limits and resize policies of the new one.
pub(super) fn resized(old: &Value, new: &Value) -> Result<Value, Cause> {
    let mut result = old.clone();
    json::copy(new, &mut result, "spec.resources");
    for list in ["containers", "initContainers"] {
        for index in 0..json::items(&old["spec"], list).len() {
            let after = &new["spec"][list][index];
            for field in ["resources", "resizePolicy"] {
                json::copy(after, &mut result["spec"][list][index], field);
            }
        }
    }
    if qos_class(&result) != qos_class(old) {
        return Err(Cause::invalid(
            "metadata",
            qos_class(&result),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    if new["spec"] != result["spec"] {
        return Err(Cause::forbidden("spec", "only cpu and memory resources are mutable"));
    }
    Ok(result)
}

/// The old pod with the ephemeral containers of the new one, which may only be more.
pub(super) fn with_ephemeral(old: &Value, new: &Value) -> Result<Value, Cause> {
    let field = "spec.ephemeralContainers";
    let after = json::items(new, field);
    if !json::items(old, field).iter().all(|container| after.contains(container)) {
        let why = "existing ephemeral containers may not be removed or changed";
        return Err(Cause::forbidden(field, why));
    }
    let mut result = old.clone();
    json::copy(new, &mut result, field);
    fill_in(&mut result);
    Ok(result)
}

/// Assigns a pod to the node that a `Binding` names.
///
/// # Errors
/// 409 if the pod has a node or is ending, 422 if the binding names no node.
pub fn bind(
    resource: &Resource,
    pod: &Value,
    binding: &Value,
    context: &Context<'_>,
) -> Result<Value, ApiError> {
    let name = json::text(pod, "metadata.name");
    let node = json::text(binding, "target.name");
    let kind = json::text(binding, "target.kind");
    if node.is_empty() || !matches!(kind, "" | "Node") {
        let cause = Cause::required("target.name", "the name of a Node");
        return Err(ApiError::invalid(resource, name, &[cause]));
    }
    let uid = json::text(binding, "metadata.uid");
    if !uid.is_empty() && uid != json::text(pod, "metadata.uid") {
        return Err(ApiError::conflict(resource, name, "the pod has another uid"));
    }
    if !json::at(pod, "metadata.deletionTimestamp").is_null() {
        return Err(ApiError::conflict(
            resource,
            name,
            "the pod is being deleted, cannot be assigned to a host",
        ));
    }
    let assigned = json::text(pod, "spec.nodeName");
    if !assigned.is_empty() {
        let why = format!("pod {name} is already assigned to node {assigned:?}");
        return Err(ApiError::conflict(resource, name, &why));
    }
    let mut bound = pod.clone();
    json::set(&mut bound, "spec.nodeName", node);
    for extra in ["labels", "annotations"] {
        let path = format!("metadata.{extra}");
        for (key, value) in json::at(binding, &path).as_object().into_iter().flatten() {
            if !bound["metadata"][extra].is_object() {
                bound["metadata"][extra] = json!({});
            }
            bound["metadata"][extra][key] = value.clone();
        }
    }
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": time(context.now)});
    let mut conditions = json::items(&bound, "status.conditions").to_vec();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(condition);
    json::set(&mut bound, "status.conditions", conditions);
    Ok(bound)
}
