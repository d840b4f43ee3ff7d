//! Reading and writing fields of objects, whatever they turn out to hold. Pure.
//!
//! Objects come from a server: where a map is expected there may be anything, which
//! reads as nothing and is replaced when written.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Fields of an object.
pub(super) type Fields = Map<String, Value>;

/// The text at a path such as `/metadata/name`; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The texts of a list.
pub(super) fn texts(object: &Value, path: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for item in list(object, path) {
        if let Some(text) = item.as_str() {
            texts.push(text.to_owned());
        }
    }
    texts
}

/// The items of a list.
pub(super) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The map of that name, made if it is not there.
pub(super) fn map<'a>(object: &'a mut Fields, name: &str) -> &'a mut Fields {
    as_map(object.entry(name).or_insert(Value::Null))
}

/// The value as a map, made one if it is none.
pub(super) fn as_map(value: &mut Value) -> &mut Fields {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("it was made a map"),
    }
}

/// Writes a list, or removes the field if the list is empty, as servers do.
pub(super) fn put_list(fields: &mut Fields, name: &str, items: Vec<Value>) {
    if items.is_empty() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), Value::Array(items));
    }
}

/// Writes a text.
pub(super) fn put_text(fields: &mut Fields, name: &str, text: &str) {
    fields.insert(name.to_owned(), Value::from(text));
}

/// Nothing, or a text, list or map of nothing: servers do not tell them apart.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

/// Do two values say the same, whether they leave out what is empty or not?
pub(super) fn same(old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            old.keys().chain(new.keys()).all(|key| same(old.get(key), new.get(key)))
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            let mut pairs = old.iter().zip(new);
            old.len() == new.len() && pairs.all(|(old, new)| same(Some(old), Some(new)))
        }
        _ => old == new || (is_empty(old) && is_empty(new)),
    }
}

/// A time as objects have it.
pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as leases have it.
pub(super) fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_map_reads_as_nothing_and_is_replaced() {
        let mut object = json!({"metadata": [1], "status": {"a": "b", "l": ["x", 7]}});
        assert_eq!(text(&object, "/metadata/name"), "");
        assert_eq!(text(&object, "/status/a"), "b");
        assert_eq!(texts(&object, "/status/l"), ["x"]);
        map(as_map(&mut object), "metadata").insert("name".into(), "n".into());
        assert_eq!(object["metadata"], json!({"name": "n"}));
    }

    #[test]
    fn empty_is_absent() {
        for value in [json!(null), json!([]), json!({}), json!("")] {
            assert!(is_empty(Some(&value)) && same(Some(&value), None), "{value}");
        }
        for value in [json!(0), json!(false), json!([null])] {
            assert!(!is_empty(Some(&value)) && !same(None, Some(&value)), "{value}");
        }
        let old = json!([{"names": null, "name": "", "size": 1}]);
        assert!(same(Some(&old), Some(&json!([{"names": [], "size": 1}]))));
        assert!(!same(Some(&old), Some(&json!([{"names": ["x"], "size": 1}]))));
        assert!(!same(Some(&old), Some(&json!([{"size": 1}, {}]))));
    }

    #[test]
    fn times() {
        let at: Timestamp = "2026-01-02T03:04:05.006007008Z".parse().expect("a time");
        assert_eq!(seconds(at), "2026-01-02T03:04:05Z");
        assert_eq!(micros(at), "2026-01-02T03:04:05.006007Z");
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
