//! Metadata that the server fills in and keeps.
//!
//! Pure. Upstream: apiserver pkg/registry/rest/meta.go, apimachinery
//! pkg/api/validation/objectmeta.go.

use serde_json::Value;

use super::{Context, names, time};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::resources::Resource;

/// Longest name that `generateName` makes.
const GENERATED_MAX: usize = 63;

/// Checks that an object is of the kind and namespace that the address names.
pub(super) fn check_address(
    resource: &Resource,
    object: &Value,
    namespace: &str,
) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(ApiError::bad_request("the body is not an object"));
    }
    for (field, given, expected) in [
        ("apiVersion", json::text(object, "apiVersion"), resource.api_version().as_str()),
        ("kind", json::text(object, "kind"), resource.kind),
    ] {
        if given != expected {
            return Err(ApiError::bad_request(format!(
                "the {field} of the object is {given:?}, and this address takes {expected:?}"
            )));
        }
    }
    let given = json::text(object, "metadata.namespace");
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Fills in the metadata of a new object.
pub(super) fn begin(
    resource: &Resource,
    object: &mut Value,
    namespace: &str,
    context: &Context<'_>,
) -> Result<(), ApiError> {
    if !json::text(object, "metadata.resourceVersion").is_empty() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let prefix = json::text(object, "metadata.generateName").to_owned();
    if json::text(object, "metadata.name").is_empty() && !prefix.is_empty() {
        let room = GENERATED_MAX - context.suffix.len();
        let prefix: String = prefix.chars().take(room).collect();
        json::set(object, "metadata.name", format!("{prefix}{}", context.suffix));
    }
    for gone in ["selfLink", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        json::remove(object, &format!("metadata.{gone}"));
    }
    if resource.namespaced {
        json::set(object, "metadata.namespace", namespace);
    } else {
        json::remove(object, "metadata.namespace");
    }
    json::set(object, "metadata.uid", context.uid.as_str());
    json::set(object, "metadata.creationTimestamp", time(context.now));
    match resource.generation {
        true => json::set(object, "metadata.generation", 1),
        false => drop(json::remove(object, "metadata.generation")),
    }
    check(resource, object)
}

/// What the metadata of every object must be.
pub(super) fn check(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let name = json::text(object, "metadata.name");
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        causes.extend(names::check(resource, name));
    }
    for (key, value) in json::at(object, "metadata.labels").as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if !is_label_key(key) {
            causes.push(Cause::invalid("metadata.labels", key, "this is not the name of a label"));
        }
        if value.len() > 63 || !is_label_value(value) {
            causes.push(Cause::invalid("metadata.labels", value, "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(resource, name, &causes)) }
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    !name.is_empty()
        && name.len() <= 63
        && is_label_value(name)
        && !prefix.is_empty()
        && prefix.len() <= 253
        && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    value.is_empty()
        || (value.starts_with(edge)
            && value.ends_with(edge)
            && value.chars().all(|c| edge(c) || "-_.".contains(c)))
}

/// Fields that only the server writes.
const KEPT: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.generation",
    "metadata.generateName",
    "metadata.selfLink",
    "metadata.managedFields",
];

/// Keeps what a client may not change.
pub(super) fn keep(old: &Value, new: &mut Value) {
    for field in KEPT {
        json::copy(old, new, field);
    }
}

/// Counts a change of what is asked for.
pub(super) fn count(resource: &Resource, old: &Value, new: &mut Value) {
    if !resource.generation {
        return;
    }
    let asked = |object: &Value| {
        let mut asked = object.clone();
        for observed in ["metadata", "status", "apiVersion", "kind"] {
            json::remove(&mut asked, observed);
        }
        asked
    };
    if asked(old) != asked(new) {
        let generation = json::at(old, "metadata.generation").as_i64().unwrap_or_default();
        json::set(new, "metadata.generation", generation + 1);
    }
}
