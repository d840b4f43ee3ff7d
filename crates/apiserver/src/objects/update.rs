//! A changed object, from what a client sent to what is stored.
//!
//! Pure. Each address writes its part: the object itself all but the status,
//! `status` nothing but it, and so on.
//! Upstream: apiserver pkg/registry/rest/update.go, pkg/registry/*/strategy.go.

use serde_json::Value;

use super::{create, meta, pods, status};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::resources::{Resource, Subresource};

/// What a client believes of the object it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its revision.
    pub resource_version: Option<String>,
}

impl Preconditions {
    /// What an object that is sent says of the one it replaces.
    pub fn of(object: &Value) -> Self {
        let given =
            |path| Some(json::text(object, path)).filter(|t| !t.is_empty()).map(str::to_owned);
        Self { uid: given("metadata.uid"), resource_version: given("metadata.resourceVersion") }
    }

    /// Whether it is still true.
    ///
    /// # Errors
    /// 409.
    pub fn check(&self, resource: &Resource, object: &Value) -> Result<(), ApiError> {
        let name = json::text(object, "metadata.name");
        let uid = json::text(object, "metadata.uid");
        if let Some(expected) = self.uid.as_deref().filter(|expected| *expected != uid) {
            let why = format!(
                "Precondition failed: UID in precondition: {expected}, UID in object meta: {uid}"
            );
            return Err(ApiError::conflict(resource, name, &why));
        }
        match &self.resource_version {
            Some(expected) if *expected != json::text(object, "metadata.resourceVersion") => {
                Err(ApiError::stale(resource, name))
            }
            _ => Ok(()),
        }
    }
}

/// The object after a client's update of it, or of a part of it.
///
/// # Errors
/// 400 if the new object does not belong at the address, 422 if it breaks a rule.
pub fn update(
    resource: &Resource,
    part: Option<Subresource>,
    old: &Value,
    mut new: Value,
) -> Result<Value, ApiError> {
    let name = json::text(old, "metadata.name");
    meta::check_address(resource, &new, json::text(old, "metadata.namespace"))?;
    if json::text(&new, "metadata.name") != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            json::text(&new, "metadata.name")
        )));
    }
    meta::keep(old, &mut new);
    status::fill_in(resource, &mut new);
    let invalid = |cause: Cause| ApiError::invalid(resource, name, &[cause]);
    let mut result = match part {
        None => main(resource, old, new).map_err(invalid)?,
        Some(Subresource::Status) => with_status(resource, old, new),
        Some(Subresource::Approval) => with_verdict(old, &new).map_err(invalid)?,
        Some(Subresource::Finalize) => with_metadata(old, &new, "spec"),
        Some(Subresource::Resize) => pods::resized(old, &new).map_err(invalid)?,
        Some(Subresource::EphemeralContainers) => {
            pods::with_ephemeral(old, &new).map_err(invalid)?
        }
        Some(part) => return Err(ApiError::method_not_allowed(part.name())),
    };
    meta::check(resource, &result)?;
    create::check(resource, &result)?;
    if part != Some(Subresource::Status) {
        meta::count(resource, old, &mut result);
    }
    Ok(result)
}

fn main(resource: &Resource, old: &Value, mut new: Value) -> Result<Value, Cause> {
    if resource.has(Subresource::Status) {
        json::copy(old, &mut new, "status");
    }
    match (resource.group, resource.kind) {
        ("", "Pod") => pods::check_update(old, &new).map_or(Ok(()), Err)?,
        ("", "Secret") => {
            if json::at(old, "immutable") == true && old["data"] != new["data"] {
                return Err(Cause::forbidden("data", "field is immutable when `immutable` is set"));
            }
            if old["type"] != new["type"] {
                let kind = json::text(&new, "type");
                return Err(Cause::invalid("type", kind, "field is immutable"));
            }
        }
        ("", "ConfigMap")
            if json::at(old, "immutable") == true
                && ["data", "binaryData"].iter().any(|field| old[*field] != new[*field]) =>
        {
            return Err(Cause::forbidden("data", "field is immutable when `immutable` is set"));
        }
        ("", "Namespace") => json::copy(old, &mut new, "spec"),
        ("certificates.k8s.io", "CertificateSigningRequest" | "PodCertificateRequest") => {
            json::copy(old, &mut new, "spec");
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
            if old["roleRef"] != new["roleRef"] =>
        {
            let name = json::text(&new, "roleRef.name");
            return Err(Cause::invalid("roleRef", name, "cannot change roleRef"));
        }
        _ => {}
    }
    Ok(new)
}

fn with_status(resource: &Resource, old: &Value, mut new: Value) -> Value {
    for field in ["spec", "metadata.ownerReferences"] {
        json::copy(old, &mut new, field);
    }
    match (resource.group, resource.kind) {
        ("", "Pod") if json::text(&new, "status.qosClass").is_empty() => {
            json::copy(old, &mut new, "status.qosClass");
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            // The verdict has an address of its own.
            set_conditions(&mut new, old, |condition| !is_verdict(condition));
            if !json::text(old, "status.certificate").is_empty() {
                json::copy(old, &mut new, "status.certificate");
            }
        }
        _ => {}
    }
    new
}

/// The old request with the verdict of the new one, which is never taken back.
fn with_verdict(old: &Value, new: &Value) -> Result<Value, Cause> {
    let mut result = with_metadata(old, new, "metadata.annotations");
    json::copy(new, &mut result, "status.conditions");
    set_conditions(&mut result, old, is_verdict);
    let verdicts =
        |object| json::items(object, "status.conditions").iter().filter(|c| is_verdict(c));
    let words = |word: &str| verdicts(&result).any(|condition| condition["type"] == word);
    if words("Approved") && words("Denied") {
        let why = "Approved and Denied conditions are mutually exclusive";
        return Err(Cause::invalid("status.conditions", "Denied", why));
    }
    let stays = |old: &Value| verdicts(&result).any(|new| new["type"] == old["type"]);
    if !verdicts(old).all(stays) {
        let why = "updates may not remove a condition of type \"Approved\" or \"Denied\"";
        return Err(Cause::forbidden("status.conditions", why));
    }
    Ok(result)
}

fn is_verdict(condition: &Value) -> bool {
    matches!(condition["type"].as_str(), Some("Approved" | "Denied"))
}

/// Takes the conditions that may be written from the new object and the rest from the old.
fn set_conditions(new: &mut Value, old: &Value, may_be_written: impl Fn(&Value) -> bool) {
    let kept = json::items(old, "status.conditions").iter().filter(|c| !may_be_written(c));
    let told = json::items(new, "status.conditions").iter().filter(|c| may_be_written(c));
    let conditions: Vec<Value> = kept.chain(told).cloned().collect();
    match conditions.is_empty() {
        true => drop(json::remove(new, "status.conditions")),
        false => json::set(new, "status.conditions", conditions),
    }
}

fn with_metadata(old: &Value, new: &Value, field: &str) -> Value {
    let mut result = old.clone();
    json::copy(new, &mut result, field);
    json::copy(new, &mut result, "metadata.finalizers");
    result
}

/// Whether an object that was written is only waiting for its last finalizer.
pub fn must_go(resource: &Resource, object: &Value) -> bool {
    let ending = !json::at(object, "metadata.deletionTimestamp").is_null();
    let grace =
        json::at(object, "metadata.deletionGracePeriodSeconds").as_i64().unwrap_or_default();
    let contents = resource.kind == "Namespace" && !json::is_empty_list(object, "spec.finalizers");
    ending && grace == 0 && json::is_empty_list(object, "metadata.finalizers") && !contents
}
