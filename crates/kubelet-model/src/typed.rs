//! JSON values, and YAML, to types: one decoder for everything that is read.
//!
//! Pure. Code is made for each type and each source of data, and for a Pod alone it is
//! a third of a megabyte: so every source is turned into a [`Value`] first, and every
//! type is read from that. What is unknown is reported and left out.

mod reader;

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use reader::{Notes, Place};

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
    let mut notes = Notes { unknown, wrong: None };
    let read = reader::read(PhantomData::<T>, value, &Place::WHOLE, &mut notes);
    read.map_err(|error| {
        let field = notes.wrong.unwrap_or_default();
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

    #[derive(Debug, PartialEq, serde::Deserialize)]
    enum Shape {
        Point,
        Circle(u8),
        Line { from: i64, to: Option<f64> },
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let decode = |value| decode::<Vec<Shape>>(value, &mut |_| {});
        let shapes = json!(["Point", {"Circle": 7}, {"Line": {"from": -1, "to": 0.5}}]);
        let line = Shape::Line { from: -1, to: Some(0.5) };
        assert_eq!(decode(shapes), Ok(vec![Shape::Point, Shape::Circle(7), line]));
        let error = |value| decode(value).expect_err("wrong").to_string();
        for (wrong, why) in [
            (json!(["Square"]), "[0]: unknown variant `Square`, expected one of"),
            (json!(["Point", {"Circle": 256}]), "[1].Circle: invalid value: integer `256`"),
            (json!([{"Line": {"to": null}}]), "[0].Line: missing field `from`"),
            (json!([{"Circle": 1, "Point": null}]), "[0]: invalid value: map"),
            (json!([7]), "[0]: invalid type: number, expected string or map"),
            (json!({"Point": null}), "invalid type: map, expected a sequence"),
        ] {
            let said = error(wrong);
            assert!(said.starts_with(why), "{said}");
        }
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
