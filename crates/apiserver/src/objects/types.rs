//! Objects of known kinds: what their fields are, and which do not exist.
//!
//! Pure. An object is read as its API type and written again: fields that do not
//! exist are left out and named, values of a wrong type are refused.
//! Upstream: the decoder of apimachinery pkg/runtime/serializer/json.

use k8s_openapi::api::authentication::v1 as authentication;
use k8s_openapi::api::authorization::v1 as authorization;
use k8s_openapi::api::certificates::{v1 as certificates, v1beta1 as certificates_beta};
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::api::storage::v1 as storage;
use kubelet_model::typed;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Unknown fields that are named; a hostile object could have a million.
const NAMED: usize = 20;

/// An object of a known kind.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// The object, with fields that exist.
    pub object: Value,
    /// Paths of the others.
    pub unknown: Vec<String>,
}

/// Reads an object as its kind; kinds without a type stay as they are.
///
/// # Errors
/// What is wrong with a value.
pub fn decode(group: &str, kind: &str, mut object: Value) -> Result<Decoded, String> {
    // There, `allocatable` holds counts.
    if kind != "CSINode" {
        quantities(&mut object);
    }
    match (group, kind) {
        ("", "Pod") => through::<core::Pod>(object),
        ("", "Node") => through::<core::Node>(object),
        ("", "Service") => through::<core::Service>(object),
        ("", "Endpoints") => through::<core::Endpoints>(object),
        ("", "Namespace") => through::<core::Namespace>(object),
        ("", "Secret") => through::<core::Secret>(object),
        ("", "ConfigMap") => through::<core::ConfigMap>(object),
        ("", "ServiceAccount") => through::<core::ServiceAccount>(object),
        ("", "Event") => through::<core::Event>(object),
        ("", "PersistentVolume") => through::<core::PersistentVolume>(object),
        ("", "PersistentVolumeClaim") => through::<core::PersistentVolumeClaim>(object),
        ("", "Binding") => through::<core::Binding>(object),
        ("policy", "Eviction") => through::<policy::Eviction>(object),
        ("coordination.k8s.io", "Lease") => through::<coordination::Lease>(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            through::<certificates::CertificateSigningRequest>(object)
        }
        ("certificates.k8s.io", "ClusterTrustBundle") => {
            through::<certificates_beta::ClusterTrustBundle>(object)
        }
        ("certificates.k8s.io", "PodCertificateRequest") => {
            through::<certificates_beta::PodCertificateRequest>(object)
        }
        ("storage.k8s.io", "CSIDriver") => through::<storage::CSIDriver>(object),
        ("storage.k8s.io", "CSINode") => through::<storage::CSINode>(object),
        ("storage.k8s.io", "VolumeAttachment") => through::<storage::VolumeAttachment>(object),
        ("node.k8s.io", "RuntimeClass") => through::<node::RuntimeClass>(object),
        ("events.k8s.io", "Event") => through::<events::Event>(object),
        ("discovery.k8s.io", "EndpointSlice") => through::<discovery::EndpointSlice>(object),
        ("rbac.authorization.k8s.io", "Role") => through::<rbac::Role>(object),
        ("rbac.authorization.k8s.io", "ClusterRole") => through::<rbac::ClusterRole>(object),
        ("rbac.authorization.k8s.io", "RoleBinding") => through::<rbac::RoleBinding>(object),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => {
            through::<rbac::ClusterRoleBinding>(object)
        }
        ("authentication.k8s.io", "TokenRequest") => {
            through::<authentication::TokenRequest>(object)
        }
        ("authentication.k8s.io", "TokenReview") => through::<authentication::TokenReview>(object),
        ("authentication.k8s.io", "SelfSubjectReview") => {
            through::<authentication::SelfSubjectReview>(object)
        }
        ("authorization.k8s.io", "SubjectAccessReview") => {
            through::<authorization::SubjectAccessReview>(object)
        }
        ("authorization.k8s.io", "LocalSubjectAccessReview") => {
            through::<authorization::LocalSubjectAccessReview>(object)
        }
        ("authorization.k8s.io", "SelfSubjectAccessReview") => {
            through::<authorization::SelfSubjectAccessReview>(object)
        }
        _ => Ok(Decoded { object, unknown: Vec::new() }),
    }
}

fn through<T: DeserializeOwned + Serialize>(object: Value) -> Result<Decoded, String> {
    let mut unknown = Vec::new();
    let typed: T = typed::decode(object, &mut |field| {
        if unknown.len() < NAMED {
            unknown.push(field);
        }
    })
    .map_err(|error| error.to_string())?;
    let object = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    Ok(Decoded { object, unknown })
}

/// Maps whose values are amounts, and single amounts.
const AMOUNTS: &[&str] = &["limits", "requests", "capacity", "allocatable", "overhead"];
const AMOUNT: &[&str] = &["sizeLimit", "divisor", "storageRequest"];

/// An amount may be written as a number.
fn quantities(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(quantities),
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::Object(amounts) if AMOUNTS.contains(&key.as_str()) => {
                        amounts.values_mut().for_each(number_to_text);
                    }
                    Value::Number(_) if AMOUNT.contains(&key.as_str()) => number_to_text(value),
                    other => quantities(other),
                }
            }
        }
        _ => {}
    }
}

fn number_to_text(value: &mut Value) {
    if let Value::Number(number) = value {
        *value = Value::String(number.to_string());
    }
}
