//! A new object, from what a client sent to what is stored.
//!
//! Pure. Upstream: apiserver pkg/registry/rest/create.go.

use serde_json::Value;

use super::{Context, meta, pods, status};
use crate::error::{ApiError, Cause};
use crate::json;
use crate::resources::Resource;

/// Fills in and checks a new object.
///
/// # Errors
/// 400 if it does not belong at the address, 422 if it breaks a rule of its kind.
pub fn create(
    resource: &Resource,
    namespace: &str,
    mut object: Value,
    context: &Context<'_>,
) -> Result<Value, ApiError> {
    meta::check_address(resource, &object, namespace)?;
    meta::begin(resource, &mut object, namespace, context)?;
    status::fill_in(resource, &mut object);
    if (resource.group, resource.kind) == ("", "Pod") {
        pods::begin(resource, &mut object)?;
    }
    status::begin(resource, &mut object, context);
    check(resource, &object)?;
    Ok(object)
}

/// Rules of single kinds that hold whenever an object is written.
pub(super) fn check(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let mut required = |path: &str| {
        if matches!(json::at(object, path), Value::Null) || json::is_empty(object, path) {
            causes.push(Cause::required(path, ""));
        }
    };
    match (resource.group, resource.kind) {
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            required("spec.request");
            required("spec.signerName");
            required("spec.usages");
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            required("roleRef.name");
            required("roleRef.kind");
        }
        ("node.k8s.io", "RuntimeClass") => required("handler"),
        ("", "Event") => {
            required("involvedObject.kind");
            let about = json::text(object, "involvedObject.namespace");
            let own = json::text(object, "metadata.namespace");
            if own != about && !(about.is_empty() && own == "default") {
                let why = "does not match event.namespace";
                causes.push(Cause::invalid("involvedObject.namespace", about, why));
            }
        }
        _ => {}
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(resource, json::text(object, "metadata.name"), &causes))
}
