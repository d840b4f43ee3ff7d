//! Reading and writing fields of objects by path.
//!
//! Pure. Absent fields read as null or empty text, as Go's zero values do.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at a dotted path, or null.
pub fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, key| value.get(key).unwrap_or(&NULL))
}

/// The text at a dotted path, or empty text.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// Whether the value at a dotted path is empty text or an empty list.
pub fn is_empty(object: &Value, path: &str) -> bool {
    match at(object, path) {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Whether the list at a dotted path is absent or empty.
pub fn is_empty_list(object: &Value, path: &str) -> bool {
    items(object, path).is_empty()
}

/// The items at a dotted path, or none.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// The text items at a dotted path.
pub fn texts<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a str> {
    items(object, path).iter().filter_map(Value::as_str)
}

/// Sets the value at a dotted path, making objects on the way.
pub fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    let mut here = object;
    for key in path.split('.') {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[key];
    }
    *here = value.into();
}

/// Removes the value at a dotted path and returns it, or null.
pub fn remove(object: &mut Value, path: &str) -> Value {
    let (parent, key) = match path.rsplit_once('.') {
        Some((parent, key)) => (parent.split('.').try_fold(object, |v, k| v.get_mut(k)), key),
        None => (Some(object), path),
    };
    parent.and_then(Value::as_object_mut).and_then(|map| map.remove(key)).unwrap_or_default()
}

/// Copies the value at a path from one object to another; absent there, it is removed here.
pub fn copy(from: &Value, to: &mut Value, path: &str) {
    match at(from, path) {
        Value::Null => drop(remove(to, path)),
        value => set(to, path, value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_reach_through_absent_fields() {
        let mut object = json!({"metadata": {"name": "web"}});
        assert_eq!(text(&object, "metadata.name"), "web");
        assert_eq!(text(&object, "spec.nodeName"), "");
        set(&mut object, "spec.nodeName", "n1");
        assert_eq!(remove(&mut object, "metadata.name"), json!("web"));
        assert_eq!(remove(&mut object, "status.phase"), Value::Null);
        assert_eq!(object, json!({"metadata": {}, "spec": {"nodeName": "n1"}}));
    }

    #[test]
    fn copying_an_absent_field_removes_it() {
        let mut to = json!({"status": {"phase": "Running"}});
        copy(&json!({}), &mut to, "status");
        assert_eq!(to, json!({}));
    }
}
