//! Bytes to Pods and the objects they use, with a message that names line and field.
//!
//! Pure. Reads nothing but its argument. Does not default and does not judge
//! values of pods: see `default` and `validate`. Upstream:
//! pkg/kubelet/config/common.go.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};

use super::coerce;
use super::document::Document;
use super::object::{self, DecodedObject};
use super::problem::{Problem, Report, below, push_index, push_key, quote};
use crate::object::ConfigObject;
use crate::typed::{self, Mistyped};

/// What a manifest may hold.
const KINDS: [&str; 5] =
    ["Pod", "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim"];

/// Largest manifest accepted, as upstream.
pub const MAX_BYTES: usize = 10 * 1024 * 1024;

/// The pods of one manifest, and the objects beside them.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The pods, in the order of the manifest, not yet defaulted.
    pub pods: Vec<Pod>,
    /// ConfigMaps, Secrets, PersistentVolumes and claims.
    pub objects: Vec<ConfigObject>,
    /// Fields that are unknown or set twice; the pods are usable without them.
    pub warnings: Vec<Problem>,
}

/// Why bytes are not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Larger than [`MAX_BYTES`].
    #[error("the manifest has {size} bytes; at most {MAX_BYTES} are read")]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// Nothing in it but white space and comments.
    #[error("the manifest is empty; write a v1 Pod, or remove the file")]
    Empty,
    /// Not text.
    #[error("line {line}: not text but binary data; write a v1 Pod as YAML or JSON in UTF-8")]
    Binary {
        /// Line of the first byte that is not text.
        line: u32,
    },
    /// Not YAML or JSON.
    #[error("{0}")]
    Syntax(Problem),
    /// Not a Pod or a list of Pods.
    #[error("{0}")]
    Kind(Problem),
    /// A field has the wrong type.
    #[error("{0}")]
    Field(Problem),
}

impl ManifestError {
    /// The error as a problem of the document.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Syntax(problem) | Self::Kind(problem) | Self::Field(problem) => problem.clone(),
            Self::Binary { line } => {
                let text = self.to_string();
                let message = text.split_once(": ").map_or(text.as_str(), |(_, rest)| rest);
                Problem { line: Some(*line), ..Problem::new("", message) }
            }
            Self::TooLarge { .. } | Self::Empty => Problem::new("", self.to_string()),
        }
    }
}

/// Decodes a v1 Pod, an object that pods use, or a v1 List of them, written as
/// YAML or JSON.
///
/// # Errors
/// The first thing that keeps the bytes from being that.
pub fn decode(bytes: &[u8]) -> Result<Decoded, ManifestError> {
    let located = decode_with_positions(bytes)?;
    match located.problems.first() {
        Some(problem) => Err(ManifestError::Field(problem.clone())),
        None => Ok(located.decoded),
    }
}

/// What a manifest holds, and where.
pub(super) struct Located<'t> {
    pub(super) decoded: Decoded,
    /// Each pod's path in the document.
    pub(super) prefixes: Vec<String>,
    /// What is wrong with the objects.
    pub(super) problems: Vec<Problem>,
    pub(super) document: Document<'t>,
}

/// As [`decode`], with what is needed to name fields by line.
pub(super) fn decode_with_positions(bytes: &[u8]) -> Result<Located<'_>, ManifestError> {
    let text = text_of(bytes)?;
    let mut report = Report::default();
    let (document, value) = Document::parse(text, &mut report).map_err(ManifestError::Syntax)?;
    let at = |problem: Problem| {
        let position = document.locate(&problem.field);
        problem.at(position)
    };
    let items = items_of(value).map_err(|error| match error {
        ManifestError::Kind(problem) => ManifestError::Kind(at(problem)),
        other => other,
    })?;
    let (mut pods, mut prefixes) = (Vec::new(), Vec::new());
    let (mut objects, mut problems) = (Vec::new(), Report::default());
    for (prefix, item) in items {
        let kind = item.get("kind").and_then(Value::as_str).and_then(object::kind_of);
        if let (Some(kind), Value::Object(fields)) = (kind, &item) {
            let mut warnings = Report::default();
            let DecodedObject { object, problems: found } =
                object::decode(kind, fields.clone(), &mut warnings);
            let found = found.finish().into_iter().map(|problem| below(&prefix, problem));
            found.for_each(|problem| problems.push(problem));
            let ignored = warnings.finish().into_iter().map(|problem| below(&prefix, problem));
            ignored.for_each(|problem| report.push(problem));
            objects.push(object);
            continue;
        }
        let pod = decode_pod(&prefix, item, &mut report);
        pods.push(pod.map_err(|problem| ManifestError::Field(at(problem)))?);
        prefixes.push(prefix);
    }
    let warnings = document.locate_all(report.finish());
    let problems = document.locate_all(problems.finish());
    Ok(Located { decoded: Decoded { pods, objects, warnings }, prefixes, problems, document })
}

fn text_of(bytes: &[u8]) -> Result<&str, ManifestError> {
    if bytes.len() > MAX_BYTES {
        return Err(ManifestError::TooLarge { size: bytes.len() });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bad = match std::str::from_utf8(bytes) {
        Ok(text) => text.bytes().position(|b| b < b' ' && !matches!(b, b'\t' | b'\n' | b'\r')),
        Err(error) => Some(error.valid_up_to()),
    };
    if let Some(offset) = bad {
        let lines = bytes[..offset].iter().filter(|b| **b == b'\n').count();
        return Err(ManifestError::Binary { line: u32::try_from(lines + 1).unwrap_or(u32::MAX) });
    }
    // Checked above.
    let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Binary { line: 1 })?;
    let blank = |line: &str| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---" || line == "..."
    };
    if text.lines().all(blank) {
        return Err(ManifestError::Empty);
    }
    // A separator with nothing behind it does not start another document.
    match text.rfind("\n---") {
        Some(end) if text[end..].lines().all(blank) => Ok(&text[..=end]),
        _ => Ok(text),
    }
}

/// A list of anything, or of one kind.
fn is_list(kind: &str) -> bool {
    kind.strip_suffix("List").is_some_and(|of| of.is_empty() || KINDS.contains(&of))
}

/// What a document holds, each with the path that leads to it.
fn items_of(value: Value) -> Result<Vec<(String, Value)>, ManifestError> {
    let Value::Object(mut object) = value else {
        return Err(kind_error("", "not an object; a v1 Pod starts with apiVersion and kind"));
    };
    let kind = type_of(&object, "")?.to_owned();
    match kind.as_str() {
        kind if KINDS.contains(&kind) => Ok(vec![(String::new(), Value::Object(object))]),
        list if is_list(list) => match object.remove("items").unwrap_or_default() {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => {
                let of = kind.strip_suffix("List").unwrap_or_default();
                let item = |(index, item)| list_item(of, index, item);
                items.into_iter().enumerate().map(item).collect()
            }
            _ => Err(kind_error("items", "must be a list of Pods")),
        },
        _ => {
            let message = format!(
                "{} is not run here; only {} and lists of them are",
                quote(&kind),
                KINDS.join(", ")
            );
            Err(kind_error("kind", message))
        }
    }
}

/// One item of a list whose name tells what it is a list of, if it does.
fn list_item(of: &str, index: usize, item: Value) -> Result<(String, Value), ManifestError> {
    let mut prefix = String::from("items");
    push_index(&mut prefix, index);
    let Value::Object(mut object) = item else {
        return Err(kind_error(&prefix, format!("must be one of {}", KINDS.join(", "))));
    };
    if !of.is_empty() {
        // Items of a typed list need not repeat their type.
        object.entry("apiVersion").or_insert_with(|| "v1".into());
        object.entry("kind").or_insert_with(|| of.into());
    }
    match type_of(&object, &prefix)? {
        kind if KINDS.contains(&kind) && (of.is_empty() || kind == of) => {
            Ok((prefix, Value::Object(object)))
        }
        other => {
            let message = match of.is_empty() {
                true => {
                    format!("{} is not run here; only {} are", quote(other), KINDS.join(", "))
                }
                false => format!("{} has no place in a list of {of}s", quote(other)),
            };
            Err(kind_error(&format!("{prefix}.kind"), message))
        }
    }
}

/// The object's kind, once its apiVersion is known to be `v1`.
fn type_of<'v>(object: &'v Map<String, Value>, prefix: &str) -> Result<&'v str, ManifestError> {
    let text = |key: &str| {
        let mut field = prefix.to_owned();
        push_key(&mut field, key);
        match object.get(key) {
            Some(Value::String(text)) => Ok((field, text.as_str())),
            Some(_) => Err(kind_error(&field, "must be a string")),
            None => Err(kind_error(&field, "missing; a Pod has apiVersion: v1 and kind: Pod")),
        }
    };
    let (field, version) = text("apiVersion")?;
    if version != "v1" {
        let message = format!("{} is not run here; only v1 is", quote(version));
        return Err(kind_error(&field, message));
    }
    Ok(text("kind")?.1)
}

fn kind_error(field: &str, message: impl Into<String>) -> ManifestError {
    ManifestError::Kind(Problem::new(field, message))
}

fn decode_pod(prefix: &str, mut value: Value, report: &mut Report) -> Result<Pod, Problem> {
    coerce::to_upstream_types(&mut value);
    let in_document = |field, message: String| below_item(prefix, Problem::new(field, message));
    let mut unknown = |field| report.push(in_document(field, "unknown field, ignored".to_owned()));
    let decoded = typed::decode(value, &mut unknown);
    decoded.map_err(|Mistyped { field, why }| in_document(field, type_message(&why)))
}

/// As [`below`]; what is wrong with the whole item is wrong at its place.
fn below_item(prefix: &str, problem: Problem) -> Problem {
    match problem.field.is_empty() {
        true => Problem { field: prefix.to_owned(), ..problem },
        false => below(prefix, problem),
    }
}

/// Says how to write text that YAML takes for something else.
fn type_message(error: &str) -> String {
    let scalar = ["boolean", "integer", "floating point", "number"].iter().any(|kind| {
        error.strip_prefix("invalid type: ").is_some_and(|rest| rest.starts_with(kind))
    });
    match scalar && error.ends_with("expected a string") {
        true => format!("{error}; put it in quotes"),
        false => error.to_owned(),
    }
}
