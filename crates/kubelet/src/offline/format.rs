//! A kept pod as it lies on disk: a line of JSON that says what follows, and a line
//! of JSON with the pod and the objects it uses.
//!
//! Pure. Nothing of the second line is looked at before its length and its SHA-256
//! are those that the first line tells. Messages never hold a value of an object.
//! Other kinds of objects can be added without another version: whoever does not know
//! one refuses the file, as it would any other that it cannot use.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::manifest::from_api;
use kubelet_model::{ConfigObject, ObjectKey, ObjectKind, base64};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::object_cache::{Kept, KeptNode};

/// What the first line calls itself.
const FORMAT: &str = "klet-kept-pod";
const VERSION: u64 = 1;
/// Bytes of the first line.
const HEAD_MAX: usize = 256;

/// The kinds of objects that are kept. Tokens and keys never are.
pub(super) const KINDS: [ObjectKind; 7] = [
    ObjectKind::ConfigMap,
    ObjectKind::Secret,
    ObjectKind::PersistentVolume,
    ObjectKind::PersistentVolumeClaim,
    ObjectKind::CsiDriver,
    ObjectKind::VolumeAttachment,
    ObjectKind::ClusterTrustBundle,
];

/// A pod with everything it needs to start without an API server.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptPod {
    /// The pod, with as much of its status as the next life of the agent needs.
    pub pod: Arc<Pod>,
    /// The objects it uses, and those it names that were not there.
    pub objects: Kept,
    /// Variables by which its containers find services.
    pub variables: Vec<(String, String)>,
    /// The handler of its RuntimeClass, if it names one.
    pub handler: Option<String>,
    /// What its volumes need to know of the node.
    pub node: KeptNode,
}

/// Why a file cannot be used. Tells no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The first line is not what it should be.
    #[error("it is no kept pod: its first line is not of the format {FORMAT}")]
    Foreign,
    /// A version that this release does not know.
    #[error("it has version {0} of the format; this release reads version {VERSION}")]
    Version(u64),
    /// The rest is shorter or longer than it was.
    #[error("it is torn: {found} bytes follow its first line, where {told} should")]
    Torn {
        /// What the first line tells.
        told: u64,
        /// What is there.
        found: usize,
    },
    /// The rest is not what was written.
    #[error("its SHA-256 is not the one it was written with")]
    Checksum,
    /// The checksum is right, and the content is not.
    #[error("its {0} cannot be used")]
    Content(&'static str),
    /// The pod cannot be used.
    #[error("its pod cannot be used: {0}")]
    Pod(String),
}

/// A kept pod in its written form.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The file's content.
    pub bytes: Vec<u8>,
    /// SHA-256 of what is kept: the same for the same pod and objects.
    pub digest: String,
}

/// Writes a pod.
pub fn encode(kept: &KeptPod) -> Encoded {
    // A Pod holds only strings, numbers, lists and maps with string keys.
    let pod = serde_json::to_value(&*kept.pod).unwrap_or_default();
    let objects: Vec<Value> = kept.objects.iter().map(|(key, object)| write(key, object)).collect();
    let KeptNode { labels, attached } = &kept.node;
    let body = json!({
        "pod": pod, "objects": objects, "variables": kept.variables, "handler": kept.handler,
        "node": {"labels": labels, "attached": attached},
    });
    let body = body.to_string();
    let digest = sha256(body.as_bytes());
    let head = json!({"format": FORMAT, "version": VERSION, "bytes": body.len(), "sha256": digest});
    Encoded { bytes: format!("{head}\n{body}\n").into_bytes(), digest }
}

/// Reads a pod, and tells its digest.
///
/// # Errors
/// It is not exactly what was written, or not usable.
pub fn decode(bytes: &[u8]) -> Result<(KeptPod, String), FormatError> {
    let end = bytes.iter().take(HEAD_MAX).position(|byte| *byte == b'\n');
    let (head, rest) = bytes.split_at(end.ok_or(FormatError::Foreign)?);
    let head: Value = serde_json::from_slice(head).map_err(|_| FormatError::Foreign)?;
    if head["format"] != FORMAT {
        return Err(FormatError::Foreign);
    }
    let version = head["version"].as_u64().ok_or(FormatError::Foreign)?;
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    let told = head["bytes"].as_u64().ok_or(FormatError::Foreign)?;
    let body = rest.get(1..).and_then(|rest| rest.strip_suffix(b"\n"));
    let body = body.filter(|body| u64::try_from(body.len()).is_ok_and(|found| found == told));
    let found = rest.len().saturating_sub(2);
    let body = body.ok_or(FormatError::Torn { told, found })?;
    let digest = sha256(body);
    if head["sha256"] != digest.as_str() {
        return Err(FormatError::Checksum);
    }
    let mut body: Value = serde_json::from_slice(body).map_err(|_| FormatError::Content("text"))?;
    let mut objects = Kept::new();
    for object in body["objects"].as_array().ok_or(FormatError::Content("list of objects"))? {
        let (key, object) = read(object).ok_or(FormatError::Content("list of objects"))?;
        objects.insert(key, object);
    }
    let variables = body["variables"].as_array().into_iter().flatten().map(read_pair);
    let variables: Option<Vec<_>> = variables.collect();
    let variables = variables.ok_or(FormatError::Content("list of variables"))?;
    let handler = body["handler"].as_str().map(str::to_owned);
    let node = read_node(&body["node"]).ok_or(FormatError::Content("part about the node"))?;
    let pod = Arc::new(from_api(body["pod"].take()).map_err(FormatError::Pod)?);
    Ok((KeptPod { pod, objects, variables, handler, node }, digest))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(key: &ObjectKey, object: &Option<Arc<ConfigObject>>) -> Value {
    let mut all = json!({"kind": key.kind.as_str(), "namespace": key.namespace, "name": key.name});
    let values = |values: &BTreeMap<String, Vec<u8>>| -> Value {
        let pairs = values.iter().map(|(key, value)| (key.clone(), base64::encode(value).into()));
        Value::Object(pairs.collect())
    };
    if let Some(object) = object {
        let ConfigObject { key: _, uid, secret_type, data, binary } = &**object;
        all["object"] = json!({
            "uid": uid, "type": secret_type, "data": values(data), "binary": values(binary),
        });
    }
    all
}

type Read = (ObjectKey, Option<Arc<ConfigObject>>);

fn read(entry: &Value) -> Option<Read> {
    let text = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    let kind = KINDS.into_iter().find(|kind| entry["kind"] == kind.as_str())?;
    let (namespace, name) = (text(entry, "namespace")?, text(entry, "name")?);
    let key = ObjectKey { kind, namespace, name };
    let Some(object) = entry.get("object") else { return Some((key, None)) };
    let object = ConfigObject {
        key: key.clone(),
        uid: text(object, "uid")?,
        secret_type: text(object, "type")?,
        data: read_values(object["data"].as_object()?)?,
        binary: read_values(object["binary"].as_object()?)?,
    };
    Some((key, Some(Arc::new(object))))
}

fn read_pair(pair: &Value) -> Option<(String, String)> {
    Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()))
}

/// Earlier releases told nothing of the node.
fn read_node(node: &Value) -> Option<KeptNode> {
    let texts = |field: &Value| -> Option<BTreeMap<String, String>> {
        let pairs = field.as_object()?.iter();
        pairs.map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    if node.is_null() {
        return Some(KeptNode::default());
    }
    let labels = match &node["labels"] {
        Value::Null => None,
        labels => Some(texts(labels)?),
    };
    Some(KeptNode { labels, attached: texts(&node["attached"])? })
}

fn read_values(values: &Map<String, Value>) -> Option<BTreeMap<String, Vec<u8>>> {
    let one = |(key, value): (&String, &Value)| {
        Some((key.clone(), base64::decode_padded(value.as_str()?)?))
    };
    values.iter().map(one).collect()
}
