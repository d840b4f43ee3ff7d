//! Objects that lie beside pods: decoded and checked.
//!
//! Pure. No message quotes a value: it may be a secret. As upstream, all values
//! of an object have a mebibyte together, and a key is the name of a file.
//! Upstream: ValidateConfigMap and ValidateSecret in pkg/apis/core/validation.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::problem::{Field, Report, quote};
use super::storage;
use super::validate::names;
use crate::base64;
use crate::object::{ConfigObject, ObjectKey, ObjectKind, SPEC};

/// Most bytes of all values of one object.
const BYTES_MAX: usize = 1 << 20;
/// Longest key.
const KEY_BYTES_MAX: usize = 253;

/// Keys that a Secret of a type must have.
const REQUIRED_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

/// What was found out about one object.
#[derive(Debug)]
pub(super) struct DecodedObject {
    pub(super) object: ConfigObject,
    /// What keeps it from being used.
    pub(super) problems: Report,
}

/// The kind of object that a document's kind names.
pub(super) fn kind_of(kind: &str) -> Option<ObjectKind> {
    use ObjectKind::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
    let all = [ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim];
    all.into_iter().find(|known| known.as_str() == kind)
}

/// Decodes and checks an object. Fields are relative to it; `warnings` gets what
/// nobody acts on.
pub(super) fn decode(
    kind: ObjectKind,
    mut fields: Map<String, Value>,
    warnings: &mut Report,
) -> DecodedObject {
    let mut problems = Report::default();
    let root = Field::root();
    fields.remove("apiVersion");
    fields.remove("kind");
    let metadata = fields.remove("metadata").unwrap_or_default();
    let (key, uid) = identity_of(kind, &metadata, &root.key("metadata"), &mut problems);
    if matches!(kind, ObjectKind::PersistentVolume | ObjectKind::PersistentVolumeClaim) {
        return decode_storage(key, uid, fields, problems, warnings);
    }
    let mut take = |name: &str, how: Form| {
        let values = fields.remove(name).unwrap_or_default();
        decode_values(values, how, &root.key(name), &mut problems)
    };
    let (data, binary) = match kind {
        ObjectKind::ConfigMap => (take("data", Form::Text), take("binaryData", Form::Base64)),
        ObjectKind::Secret => {
            let mut data = take("data", Form::Base64);
            // As an API server does: it is written into data, and wins.
            data.extend(take("stringData", Form::Text));
            (data, BTreeMap::new())
        }
        ObjectKind::PersistentVolume
        | ObjectKind::PersistentVolumeClaim
        | ObjectKind::ServiceAccountToken
        | ObjectKind::CsiDriver
        | ObjectKind::VolumeAttachment
        | ObjectKind::ClusterTrustBundle
        | ObjectKind::PodCertificate => Default::default(),
    };
    for key in data.keys().filter(|key| binary.contains_key(*key)) {
        problems.add(&root.key("data").key(key), "duplicate of key present in binaryData");
    }
    let secret_type = match (kind, fields.remove("type")) {
        (ObjectKind::Secret, Some(Value::String(text))) => text,
        (ObjectKind::Secret, Some(other)) if !other.is_null() => {
            problems.add(&root.key("type"), "must be a string");
            String::new()
        }
        (ObjectKind::ConfigMap, Some(_)) => {
            warnings.add(&root.key("type"), "unknown field, ignored");
            String::new()
        }
        _ => String::new(),
    };
    if fields.remove("immutable").is_some_and(|value| value == Value::Bool(true)) {
        warnings.add(&root.key("immutable"), "ignored: the object is what its manifest says");
    }
    for name in fields.keys() {
        warnings.add(&root.key(name), "unknown field, ignored");
    }
    let object = ConfigObject { key, uid, secret_type, data, binary };
    check(&object, &root, &mut problems);
    DecodedObject { object, problems }
}

fn decode_storage(
    key: ObjectKey,
    uid: String,
    mut fields: Map<String, Value>,
    mut problems: Report,
    warnings: &mut Report,
) -> DecodedObject {
    let root = Field::root();
    // What a cluster has written there means nothing here.
    fields.remove("status");
    let spec = fields.remove("spec").unwrap_or_default();
    let json = storage::check_spec(&key, &spec, &root.key("spec"), &mut problems, warnings);
    for name in fields.keys() {
        warnings.add(&root.key(name), "unknown field, ignored");
    }
    let data = BTreeMap::from([(SPEC.to_owned(), json)]);
    let (secret_type, binary) = (String::new(), BTreeMap::new());
    let object = ConfigObject { key, uid, secret_type, data, binary };
    check(&object, &root, &mut problems);
    DecodedObject { object, problems }
}

/// Which object it is, and the uid it gives itself, if it does.
fn identity_of(
    kind: ObjectKind,
    metadata: &Value,
    field: &Field,
    problems: &mut Report,
) -> (ObjectKey, String) {
    let mut text = |key: &str| match metadata.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(_) => {
            problems.add(&field.key(key), "must be a string");
            String::new()
        }
    };
    let (name, namespace, uid) = (text("name"), text("namespace"), text("uid"));
    let namespace = match kind {
        // One for all namespaces.
        ObjectKind::PersistentVolume => String::new(),
        _ if namespace.is_empty() => "default".to_owned(),
        _ => namespace,
    };
    if name.is_empty() {
        problems.add(&field.key("name"), "missing");
    } else {
        problems.check(&field.key("name"), names::dns_subdomain(&name));
    }
    if !namespace.is_empty() {
        problems.check(&field.key("namespace"), names::dns_label(&namespace));
    }
    (ObjectKey { kind, namespace, name }, uid)
}

/// How values are written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Base64,
}

fn decode_values(
    values: Value,
    form: Form,
    field: &Field,
    problems: &mut Report,
) -> BTreeMap<String, Vec<u8>> {
    let entries = match values {
        Value::Null => Map::new(),
        Value::Object(entries) => entries,
        _ => {
            problems.add(field, "must be a map of keys to values");
            Map::new()
        }
    };
    let mut decoded = BTreeMap::new();
    for (key, value) in entries {
        let at = field.key(&key);
        let bytes = match (value, form) {
            (Value::Null, _) => Some(Vec::new()),
            (Value::String(text), Form::Text) => Some(text.into_bytes()),
            (Value::String(text), Form::Base64) => {
                let bytes = base64::decode_padded(&text);
                if bytes.is_none() {
                    problems.add(&at, "not valid base64; write plain text into stringData of a Secret, or data of a ConfigMap");
                }
                bytes
            }
            // Which value it is stays untold.
            _ => {
                problems.add(&at, "must be a string; put it in quotes");
                None
            }
        };
        problems.check(&at, check_key(&key));
        // The object is refused then, but the key is not one that is missing.
        decoded.insert(key, bytes.unwrap_or_default());
    }
    decoded
}

/// A key becomes the name of a file.
fn check_key(key: &str) -> Result<(), &'static str> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(good) {
        return Err("a valid config key must consist of alphanumeric characters, '-', '_' or '.'");
    }
    if key.len() > KEY_BYTES_MAX {
        return Err("must be no more than 253 characters");
    }
    match key {
        "." => Err("must not be '.'"),
        ".." => Err("must not be '..'"),
        key if key.starts_with("..") => Err("must not start with '..'"),
        _ => Ok(()),
    }
}

fn check(object: &ConfigObject, field: &Field, problems: &mut Report) {
    let size = object.size();
    if size > BYTES_MAX {
        let message =
            format!("{size} bytes of values; at most {BYTES_MAX} are allowed, so split it");
        problems.add(&field.key("data"), message);
    }
    let of_type = REQUIRED_KEYS.iter().find(|(of, _)| *of == object.secret_type);
    for key in of_type.map(|(_, keys)| *keys).unwrap_or_default() {
        if !object.data.contains_key(*key) {
            let message =
                format!("missing; a Secret of type {} has it", quote(&object.secret_type));
            problems.add(&field.key("data").key(key), message);
        }
    }
    let (user, password) = ("username", "password");
    let is_login = object.secret_type == "kubernetes.io/basic-auth";
    if is_login && !object.data.contains_key(user) && !object.data.contains_key(password) {
        problems.add(&field.key("data"), "missing username or password");
    }
}
