//! From bytes to a wire value: YAML or JSON, strict first, lenient on request.
//!
//! Pure and bounded by its caller. Never panics, whatever the bytes. Upstream:
//! pkg/kubelet/kubeletconfig/util/codec.

use kubelet_model::typed::{self, DoubledKeys, Mistyped};
use serde_json::Value;

use crate::wire::{API_VERSION, KIND, KubeletConfiguration};

/// The one field whose values must never be shown.
pub(crate) const SECRET_FIELD: &str = "staticPodURLHeader";

/// Why a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nothing in it.
    #[error("the file is empty; it needs apiVersion: {API_VERSION} and kind: {KIND}")]
    Empty,
    /// Neither YAML nor JSON.
    #[error("it is neither YAML nor JSON: {0}")]
    Syntax(String),
    /// Two keys of the same name where that is not tolerated.
    #[error("a key is written twice: {0}")]
    Duplicate(String),
    /// A list or a scalar at the top.
    #[error("it must be a mapping of fields, not {0}")]
    NotAMapping(&'static str),
    /// Not this kind of document.
    #[error("{field} is {found}; it must be {wanted}")]
    WrongKind {
        /// apiVersion or kind.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it must say.
        wanted: &'static str,
    },
    /// A field of the wrong type.
    #[error("field {path}: {message}")]
    Type {
        /// The field.
        path: String,
        /// What is wrong.
        message: String,
    },
}

/// A decoded document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// As written, without apiVersion and kind.
    pub raw: Value,
    /// The known fields.
    pub config: KubeletConfiguration,
    /// Fields nobody knows.
    pub unknown: Vec<String>,
    /// Set when a key was written twice and the last one was taken.
    pub duplicate: Option<String>,
}

/// Reads a document. With `lenient`, doubled keys are tolerated.
pub fn decode(bytes: &[u8], lenient: bool) -> Result<Document, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let (mut raw, duplicate) = parse(bytes, lenient)?;
    check_kind(&raw)?;
    if let Value::Object(map) = &mut raw {
        map.remove("apiVersion");
        map.remove("kind");
    }
    let (config, unknown) = known(&raw)?;
    Ok(Document { raw, config, unknown, duplicate })
}

fn parse(bytes: &[u8], lenient: bool) -> Result<(Value, Option<String>), DecodeError> {
    match parse_with(bytes, DoubledKeys::Refused) {
        Ok(value) => Ok((value, None)),
        Err(strict) => match parse_with(bytes, DoubledKeys::LastWins) {
            Ok(value) if lenient => Ok((value, Some(strict))),
            Ok(_) => Err(DecodeError::Duplicate(strict)),
            Err(message) => Err(DecodeError::Syntax(message)),
        },
    }
}

fn parse_with(bytes: &[u8], doubled: DoubledKeys) -> Result<Value, String> {
    let mut value = typed::from_yaml(bytes, doubled)?;
    whole_numbers(&mut value);
    Ok(value)
}

/// Writes 1.0 and 1e1 as the integers they are, as upstream's way through JSON does.
fn whole_numbers(value: &mut Value) {
    /// Below this, a float holds every integer exactly.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole =
                number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT_MAX);
            if let Some(float) = whole {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn check_kind(raw: &Value) -> Result<(), DecodeError> {
    let map = match raw {
        Value::Object(map) => map,
        Value::Null => return Err(DecodeError::Empty),
        Value::Array(_) => return Err(DecodeError::NotAMapping("a list")),
        _ => return Err(DecodeError::NotAMapping("a single value")),
    };
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = match map.get(field) {
            Some(Value::String(text)) if text == wanted => continue,
            Some(Value::Null) | None => "missing".to_owned(),
            Some(other) => other.to_string(),
        };
        return Err(DecodeError::WrongKind { field, found, wanted });
    }
    Ok(())
}

/// The known fields of a tree, and the paths of the others.
pub(crate) fn known(raw: &Value) -> Result<(KubeletConfiguration, Vec<String>), DecodeError> {
    let mut unknown = Vec::new();
    match typed::decode(raw.clone(), &mut |field| unknown.push(field)) {
        Ok(config) => Ok((config, unknown)),
        Err(Mistyped { field: path, why }) => {
            // The error repeats the offending value, which here is a secret.
            let secret = path.starts_with(SECRET_FIELD);
            let message =
                if secret { "must map header names to lists of values".to_owned() } else { why };
            Err(DecodeError::Type { path, message })
        }
    }
}

/// The tree of a configuration; fields that are not set are absent.
pub(crate) fn to_tree(config: &KubeletConfiguration) -> Value {
    // Serialising plain structs, strings, numbers and string-keyed maps cannot
    // fail, except that JSON has no NaN, which no input can produce.
    serde_json::to_value(config).unwrap_or_else(|_| Value::Object(serde_json::Map::new()))
}

#[cfg(test)]
mod tests;
