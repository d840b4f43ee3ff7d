//! JSON values, and YAML, to types: one decoder for everything that is read.
//!
//! Pure. Code is made for each type and each source of data, and for a Pod alone it is
//! a third of a megabyte: so every source is turned into a [`Value`] first, and every
//! type is read from that. What is unknown is reported and left out.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use crate::manifest::{push_index, push_key};

/// A value is not of the type it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{why}", .field, if .field.is_empty() { "" } else { ": " })]
pub struct Mistyped {
    /// Which field; empty for the whole value.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a type from a value, and tells the fields that it does not have.
///
/// # Errors
/// The first field that is of another type.
pub fn decode<T: DeserializeOwned>(
    value: Value,
    unknown: &mut dyn FnMut(String),
) -> Result<T, Mistyped> {
    let mut on_unknown: &mut dyn FnMut(serde_ignored::Path<'_>) = &mut |path| {
        let mut field = String::new();
        push_ignored(&mut field, &path);
        unknown(field);
    };
    let deserializer = serde_ignored::Deserializer::new(value, &mut on_unknown);
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(deserializer, &mut track);
    T::deserialize(deserializer).map_err(|error| {
        let mut field = String::new();
        for segment in track.path().iter() {
            match segment {
                serde_path_to_error::Segment::Seq { index } => push_index(&mut field, *index),
                serde_path_to_error::Segment::Map { key } => push_key(&mut field, key),
                serde_path_to_error::Segment::Enum { variant } => push_key(&mut field, variant),
                serde_path_to_error::Segment::Unknown => {}
            }
        }
        Mistyped { field, why: error.to_string() }
    })
}

/// The same from the text of a JSON document, whatever else it may hold.
///
/// # Errors
/// The text is no JSON, or holds another type.
pub fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Mistyped> {
    let value = serde_json::from_slice(text);
    let value = value.map_err(|error| Mistyped { field: String::new(), why: error.to_string() })?;
    decode(value, &mut |_| {})
}

/// The value of a YAML or JSON document, or what keeps it from being one, on one line
/// and without its content.
///
/// # Errors
/// What the parser says.
pub fn from_yaml(text: &[u8], doubled: DoubledKeys) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        duplicate_keys: match doubled {
            DoubledKeys::Refused => DuplicateKeyPolicy::Error,
            DoubledKeys::LastWins => DuplicateKeyPolicy::LastWins,
        },
        legacy_octal_numbers: true,
        // Snippets would copy secrets of the file into messages.
        with_snippet: false,
    };
    let text = std::str::from_utf8(text).map_err(|error| format!("not text: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_saphyr::from_str_with_options(text, options).map_err(|error: serde_saphyr::Error| {
        error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

/// What becomes of a key that a mapping has twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubledKeys {
    /// The document is refused.
    Refused,
    /// The earlier one is forgotten.
    LastWins,
}

fn push_ignored(field: &mut String, path: &serde_ignored::Path<'_>) {
    use serde_ignored::Path;
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            push_ignored(field, parent);
            push_index(field, *index);
        }
        Path::Map { parent, key } => {
            push_ignored(field, parent);
            push_key(field, key);
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => push_ignored(field, parent),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_told_and_wrong_ones_named() {
        let mut unknown = Vec::new();
        let pod = json!({"spec": {"containers": [{"name": "a", "comand": []}]}});
        let decoded: Pod = decode(pod, &mut |field| unknown.push(field)).expect("a pod");
        assert_eq!(decoded.spec.expect("a spec").containers[0].name, "a");
        assert_eq!(unknown, ["spec.containers[0].comand"]);

        let pod = json!({"spec": {"containers": [{"name": 7}]}});
        let error = decode::<Pod>(pod, &mut |_| {}).expect_err("a number is no name");
        assert_eq!(error.field, "spec.containers[0].name");
    }

    #[test]
    fn yaml_says_what_is_wrong_without_showing_it() {
        let doubled = b"password: hunter2\npassword: hunter3\n";
        let error = from_yaml(doubled, DoubledKeys::Refused).expect_err("doubled");
        assert!(error.contains("line 2") && !error.contains("hunter"), "{error}");
        let last = from_yaml(doubled, DoubledKeys::LastWins).expect("the last one");
        assert_eq!(last, json!({"password": "hunter3"}));
        assert!(from_yaml(b"a: \xff", DoubledKeys::LastWins).is_err());
    }
}
