//! What objects of a kind start with: a status, and fields that were left out.
//!
//! Pure. Upstream: PrepareForCreate of each strategy, pkg/apis/core/v1/defaults.go.

use serde_json::{Value, json};

use super::{Context, pods};
use crate::json;
use crate::resources::{Resource, Subresource};

/// Writes what a new object of this kind starts with.
pub(super) fn begin(resource: &Resource, object: &mut Value, context: &Context<'_>) {
    if resource.has(Subresource::Status) && !resource.keeps_status_at_creation {
        json::remove(object, "status");
    }
    match (resource.group, resource.kind) {
        ("", "Pod") => object["status"] = pods::first_status(object),
        ("", "Namespace") => {
            object["status"] = json!({"phase": "Active"});
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            let name = object["metadata"]["name"].clone();
            let labels = &mut object["metadata"]["labels"];
            if !labels.is_object() {
                *labels = json!({});
            }
            labels["kubernetes.io/metadata.name"] = name;
        }
        ("", "PersistentVolume" | "PersistentVolumeClaim") => {
            object["status"] = json!({"phase": "Pending"});
        }
        ("", "Service") => object["status"] = json!({"loadBalancer": {}}),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            object["status"] = json!({});
            write_requester(object, context);
        }
        _ => {}
    }
}

/// Fills in what an object leaves out, whenever it is written.
pub(super) fn fill_in(resource: &Resource, object: &mut Value) {
    match (resource.group, resource.kind) {
        ("", "Pod") => pods::fill_in(object),
        ("", "PersistentVolume") => {
            default(object, "spec.volumeMode", "Filesystem");
            default(object, "spec.persistentVolumeReclaimPolicy", "Retain");
        }
        ("", "PersistentVolumeClaim") => default(object, "spec.volumeMode", "Filesystem"),
        ("", "Service") => {
            default(object, "spec.type", "ClusterIP");
            default(object, "spec.sessionAffinity", "None");
        }
        ("", "Secret") => {
            default(object, "type", "Opaque");
            move_string_data(object);
        }
        _ => {}
    }
}

/// Plain text of a secret becomes data; it is never shown again.
fn move_string_data(secret: &mut Value) {
    use base64::Engine;
    let Value::Object(plain) = json::remove(secret, "stringData") else { return };
    for (key, value) in plain {
        let text = value.as_str().unwrap_or_default();
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        if !secret["data"].is_object() {
            secret["data"] = json!({});
        }
        secret["data"][key] = encoded.into();
    }
}

fn default(object: &mut Value, path: &str, value: &str) {
    if json::text(object, path).is_empty() {
        json::set(object, path, value);
    }
}

/// A signing request names who sent it, whatever it says itself.
fn write_requester(request: &mut Value, context: &Context<'_>) {
    for field in ["spec.username", "spec.uid", "spec.groups", "spec.extra"] {
        json::remove(request, field);
    }
    let user = context.user;
    json::set(request, "spec.username", user.name.as_str());
    json::set(request, "spec.groups", user.groups.clone());
    if !user.uid.is_empty() {
        json::set(request, "spec.uid", user.uid.as_str());
    }
    if !user.extra.is_empty() {
        json::set(request, "spec.extra", json!(user.extra));
    }
}
