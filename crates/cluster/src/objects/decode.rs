//! Objects of an API server, as what pods read. Pure.
//!
//! No message quotes a value: it may be a secret. A server checks what it stores, but
//! what it sends becomes files of the node: so keys are checked again.
//! Upstream: pkg/apis/core/validation.

use std::collections::BTreeMap;

use kubelet_model::{ConfigObject, ObjectKey, ObjectKind, base64, quote};
use serde_json::{Map, Value};

/// Longest key of a value.
const KEY_BYTES_MAX: usize = 253;
/// Parts of a volume, a claim and the like that are kept, as JSON.
const KEPT: [&str; 2] = ["spec", "status"];
/// What is kept of its metadata.
const METADATA: &str = "metadata";
const KEPT_METADATA: [&str; 4] =
    ["annotations", "deletionTimestamp", "finalizers", "ownerReferences"];

/// The object that a server sent under a key.
///
/// # Errors
/// What keeps it from being used.
pub fn config_object(key: &ObjectKey, mut object: Value) -> Result<ConfigObject, String> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut decoded = ConfigObject {
        key: key.clone(),
        uid,
        secret_type: String::new(),
        data: BTreeMap::new(),
        binary: BTreeMap::new(),
    };
    match key.kind {
        ObjectKind::ConfigMap => {
            values(&mut object, "data", Form::Text, &mut decoded.data)?;
            values(&mut object, "binaryData", Form::Base64, &mut decoded.binary)?;
        }
        ObjectKind::Secret => {
            values(&mut object, "data", Form::Base64, &mut decoded.data)?;
            decoded.secret_type = object["type"].as_str().unwrap_or_default().to_owned();
        }
        ObjectKind::PersistentVolume
        | ObjectKind::PersistentVolumeClaim
        | ObjectKind::CsiDriver
        | ObjectKind::VolumeAttachment => {
            let metadata = KEPT_METADATA.iter().filter_map(|field| {
                let value = object.get(METADATA)?.get(*field)?;
                Some(((*field).to_owned(), value.clone()))
            });
            let metadata = Value::Object(metadata.collect()).to_string().into_bytes();
            decoded.data.insert(METADATA.to_owned(), metadata);
            for part in KEPT {
                if let Some(value) = object.get(part) {
                    decoded.data.insert(part.to_owned(), value.to_string().into_bytes());
                }
            }
        }
        ObjectKind::ServiceAccountToken
        | ObjectKind::ClusterTrustBundle
        | ObjectKind::PodCertificate => {
            return Err("what is made when it is asked for is no stored object".to_owned());
        }
    }
    Ok(decoded)
}

#[derive(Clone, Copy)]
enum Form {
    Text,
    Base64,
}

fn values(
    object: &mut Value,
    field: &str,
    form: Form,
    into: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    let entries = match object.get_mut(field).map(Value::take) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err(format!("{field}: not a map of keys to values")),
    };
    for (key, value) in entries {
        let wrong = |why: &str| format!("{field}: the value of {} {why}", quote::go(&key));
        if !is_key(&key) {
            return Err(format!("{field}: {} cannot be a key", quote::go(&key)));
        }
        let bytes = match (value, form) {
            (Value::Null, _) => Vec::new(),
            (Value::String(text), Form::Text) => text.into_bytes(),
            (Value::String(text), Form::Base64) => {
                base64::decode_padded(&text).ok_or_else(|| wrong("is no base64"))?
            }
            _ => return Err(wrong("is no text")),
        };
        into.insert(key, bytes);
    }
    Ok(())
}

/// A key becomes the name of a file.
fn is_key(key: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let length = 1..=KEY_BYTES_MAX;
    length.contains(&key.len()) && key.bytes().all(good) && key != "." && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(kind: ObjectKind, object: Value) -> Result<ConfigObject, String> {
        config_object(&ObjectKey::new(kind, "ns", "o"), object)
    }

    #[test]
    fn values_are_bytes() {
        let map = json!({"metadata": {"uid": "u"}, "data": {"a": "text", "n": null},
            "binaryData": {"b": "AAE="}, "immutable": true});
        let map = decode(ObjectKind::ConfigMap, map).unwrap();
        assert_eq!((map.uid.as_str(), map.value("a")), ("u", Some(b"text".as_slice())));
        assert_eq!(
            (map.value("n"), map.value("b")),
            (Some([].as_slice()), Some([0, 1].as_slice()))
        );
        assert!(!map.data.contains_key("b"), "never a variable");
        let secret = json!({"type": "Opaque", "data": {"p": "aHVudGVyMg=="}});
        let secret = decode(ObjectKind::Secret, secret).unwrap();
        assert_eq!(
            (secret.secret_type.as_str(), secret.value("p")),
            ("Opaque", Some(b"hunter2".as_slice()))
        );
        let claim = json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        let claim = decode(ObjectKind::PersistentVolumeClaim, claim).unwrap();
        assert_eq!(claim.spec::<Value>().unwrap()["volumeName"], "pv");
        assert_eq!(claim.value("status"), Some(br#"{"phase":"Bound"}"#.as_slice()));
        let volume =
            json!({"metadata": {"annotations": {"a": "b"}, "managedFields": [], "uid": "u"}});
        let volume = decode(ObjectKind::PersistentVolume, volume).unwrap();
        assert_eq!(volume.metadata::<Value>().unwrap(), json!({"annotations": {"a": "b"}}));
        assert_eq!(decode(ObjectKind::Secret, json!({})).unwrap().size(), 0);
    }

    #[test]
    fn what_is_wrong_is_told_without_values() {
        for (object, why) in [
            (json!({"data": {"p": "hunter2!"}}), r#"data: the value of "p" is no base64"#),
            (json!({"data": {"p": 5}}), r#"data: the value of "p" is no text"#),
            (json!({"data": ["hunter2"]}), "data: not a map of keys to values"),
            (json!({"data": {"../p": ""}}), r#"data: "../p" cannot be a key"#),
            (json!({"data": {"..p": ""}}), r#"data: "..p" cannot be a key"#),
            (json!({"data": {".": ""}}), r#"data: "." cannot be a key"#),
            (json!({"data": {"": ""}}), r#"data: "" cannot be a key"#),
        ] {
            assert_eq!(decode(ObjectKind::Secret, object).unwrap_err(), why);
        }
        let long = json!({"data": {"a".repeat(254): ""}});
        assert!(decode(ObjectKind::ConfigMap, long).is_err());
    }
}
