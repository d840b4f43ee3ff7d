//! Pods as an API server gives them.
//!
//! It has defaulted and checked them by its own rules, which may be older or newer
//! than ours: so what is missing is defaulted here, what is unknown is left out, and
//! only what becomes part of a path is checked again. Pure.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::default::default_pod;
use super::validate::names::{dns_label, dns_subdomain};
use crate::typed;

/// Longest uid; those of API servers have 36 characters.
const UID_MAX: usize = 64;

/// Reads a pod.
///
/// # Errors
/// Why it cannot be used.
pub fn from_api(object: Value) -> Result<Pod, String> {
    let mut pod: Pod = typed::decode(object, &mut |_| {}).map_err(|error| error.to_string())?;
    // Nobody here asks who wrote which field, and it is half of the object.
    pod.metadata.managed_fields = None;
    default_pod(&mut pod);
    check(&pod)?;
    Ok(pod)
}

fn check(pod: &Pod) -> Result<(), String> {
    let meta = &pod.metadata;
    let uid = meta.uid.as_deref().unwrap_or_default();
    let of_uid = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if uid.is_empty() || uid.len() > UID_MAX || !uid.bytes().all(of_uid) {
        return Err(format!("metadata.uid: {uid:?} is no uid"));
    }
    let named = |field: &str, name: Option<&str>, checked: Result<(), &str>| {
        checked.map_err(|why| format!("{field}: {:?} {why}", name.unwrap_or_default()))
    };
    let (name, namespace) = (meta.name.as_deref(), meta.namespace.as_deref());
    named("metadata.name", name, dns_subdomain(name.unwrap_or_default()))?;
    named("metadata.namespace", namespace, dns_label(namespace.unwrap_or_default()))?;
    let Some(spec) = &pod.spec else { return Err("it has no spec".to_owned()) };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    for name in containers.map(|c| &c.name).chain(ephemeral.map(|c| &c.name)) {
        named("a container's name", Some(name), dns_label(name))?;
    }
    for volume in spec.volumes.iter().flatten() {
        named("a volume's name", Some(&volume.name), dns_label(&volume.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "a.b", "namespace": "ns", "uid": "0-1", "newer": 1,
                "managedFields": [{"manager": "x"}]},
            "spec": {"containers": [{"name": "app", "image": "i", "newer": {}}],
                "volumes": [{"name": "v", "emptyDir": {}}], "newer": true},
        })
    }

    #[test]
    fn what_is_missing_is_defaulted_and_what_is_new_left_out() {
        let pod = from_api(pod()).unwrap();
        assert_eq!(pod.metadata.managed_fields, None);
        assert_eq!(pod.spec.unwrap().restart_policy.as_deref(), Some("Always"));
    }

    #[test]
    fn names_that_would_lead_elsewhere() {
        for (pointer, bad) in [
            ("/metadata/uid", "../x"),
            ("/metadata/uid", ""),
            ("/metadata/name", "../x"),
            ("/metadata/namespace", "a/b"),
            ("/spec/containers/0/name", ".."),
            ("/spec/volumes/0/name", "a/../../b"),
        ] {
            let mut object = pod();
            *object.pointer_mut(pointer).unwrap() = json!(bad);
            let error = from_api(object).unwrap_err();
            assert!(error.contains(&format!("{bad:?}")), "{pointer}: {error}");
        }
        assert!(from_api(json!({"metadata": 1})).unwrap_err().contains("metadata"));
    }
}
