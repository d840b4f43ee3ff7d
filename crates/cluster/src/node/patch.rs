//! What turns one Node into another, as a strategic merge patch of its status.
//!
//! Pure. Covers labels, annotations and status; the spec is nobody's business here.
//! Conditions are patched one by one, so that those of others stay theirs. Addresses
//! are declared to be merged by their type, which would lose one of two that share it:
//! once there are some they are replaced. Upstream: component-helpers
//! node/util/status.go, apimachinery strategicpatch.

use serde_json::{Map, Value, json};

use super::fields::{self, Fields};

/// Parts that are patched field by field.
const PARTS: [&str; 2] = ["metadata", "status"];

/// The patch.
pub(super) fn between(old: &Value, new: &Value) -> Value {
    let mut patch = Map::new();
    let nothing = Map::new();
    for part in PARTS {
        let map = |node: &'_ Value| node.get(part).and_then(Value::as_object).cloned();
        let old = map(old).unwrap_or_else(|| nothing.clone());
        let new = map(new).unwrap_or_else(|| nothing.clone());
        let changes = maps(&old, &new, part == "status");
        if !changes.is_empty() {
            patch.insert(part.to_owned(), Value::Object(changes));
        }
    }
    Value::Object(patch)
}

fn maps(old: &Fields, new: &Fields, is_status: bool) -> Fields {
    let mut patch = Map::new();
    for (key, after) in new {
        let before = old.get(key);
        if before == Some(after) || (is_nothing(before) && is_nothing(Some(after))) {
            continue;
        }
        match (before, after) {
            (Some(Value::Array(before)), Value::Array(after))
                if is_status && key == "conditions" =>
            {
                conditions(before, after, &mut patch);
            }
            (Some(Value::Array(before)), Value::Array(after))
                if is_status && key == "addresses" && !before.is_empty() =>
            {
                let mut list = after.clone();
                list.push(json!({"$patch": "replace"}));
                patch.insert(key.clone(), Value::Array(list));
            }
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(key.clone(), Value::Object(maps(before, after, false)));
            }
            _ => {
                patch.insert(key.clone(), after.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        if !is_nothing(old.get(key)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

/// Nothing that a patch could change. An empty text is something: labels have them.
fn is_nothing(value: Option<&Value>) -> bool {
    fields::is_empty(value) && !value.is_some_and(Value::is_string)
}

/// Each condition that changed, with nothing but what changed of it, and their order.
fn conditions(old: &[Value], new: &[Value], patch: &mut Fields) {
    let mut changed = Vec::new();
    let mut order = Vec::new();
    for condition in new {
        let (Some(fields), Some(kind)) = (condition.as_object(), condition.get("type")) else {
            continue;
        };
        order.push(json!({"type": kind}));
        let before = old.iter().find(|condition| condition.get("type") == Some(kind));
        let before = before.and_then(Value::as_object).cloned().unwrap_or_default();
        let mut change = maps(&before, fields, false);
        if !change.is_empty() {
            change.insert("type".to_owned(), kind.clone());
            changed.push(Value::Object(change));
        }
    }
    if !changed.is_empty() {
        patch.insert("conditions".to_owned(), Value::Array(changed));
        patch.insert("$setElementOrder/conditions".to_owned(), Value::Array(order));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: Value, new: Value, expected: Value) {
        let patch = between(&old, &new);
        assert_eq!(patch, expected);
        // The server's own arithmetic agrees.
        let merged =
            apiserver::patch::apply(apiserver::patch::Format::Strategic, "Node", &old, &patch);
        let merged = merged.expect("the patch is valid");
        for part in PARTS {
            let part = |node: &Value| node.get(part).cloned().unwrap_or_else(|| json!({}));
            let (merged, new) = (part(&merged), part(&new));
            assert!(fields::same(Some(&merged), Some(&new)), "{merged} is not {new}");
        }
    }

    #[test]
    fn nothing_changed_is_nothing() {
        let node =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}, "status": {"y": 2}});
        check(node.clone(), node, json!({}));
        let empty = json!({"metadata": {"annotations": {}}, "status": {"images": []}});
        check(json!({}), empty.clone(), json!({}));
        check(empty, json!({}), json!({}));
    }

    #[test]
    fn the_spec_is_left() {
        let patch = between(&json!({"spec": {"podCIDR": "a"}}), &json!({"spec": {}}));
        assert_eq!(patch, json!({}));
    }

    #[test]
    fn maps_field_by_field_and_lists_as_a_whole() {
        check(
            json!({"metadata": {"labels": {"a": "1", "b": "1"}, "annotations": {"x": "y"}},
                "status": {"capacity": {"cpu": "1", "gone": "1"}, "images": [{"names": ["a"]}],
                    "volumesInUse": ["v"]}}),
            json!({"metadata": {"labels": {"a": "2", "b": "1"}, "annotations": {}},
                "status": {"capacity": {"cpu": "1", "new": "1"}, "images": [{"names": ["b"]}],
                    "allocatable": {"cpu": "1"}}}),
            json!({"metadata": {"labels": {"a": "2"}, "annotations": {"x": null}},
                "status": {"capacity": {"new": "1", "gone": null}, "images": [{"names": ["b"]}],
                    "allocatable": {"cpu": "1"}, "volumesInUse": null}}),
        );
    }

    #[test]
    fn an_empty_label_is_one() {
        let patch = between(&json!({}), &json!({"metadata": {"labels": {"role": ""}}}));
        assert_eq!(patch, json!({"metadata": {"labels": {"role": ""}}}));
        let with = json!({"metadata": {"labels": {"role": "", "a": "b"}}});
        let patch = between(&with, &json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(patch, json!({"metadata": {"labels": {"role": null}}}));
    }

    #[test]
    fn conditions_one_by_one() {
        check(
            json!({"status": {"conditions": [
                {"type": "NetworkUnavailable", "status": "False"},
                {"type": "Ready", "status": "False", "lastHeartbeatTime": "1"}]}}),
            json!({"status": {"conditions": [
                {"type": "NetworkUnavailable", "status": "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "1"},
                {"type": "DiskPressure", "status": "False"}]}}),
            json!({"status": {
                "conditions": [{"type": "Ready", "status": "True"},
                    {"type": "DiskPressure", "status": "False"}],
                "$setElementOrder/conditions": [{"type": "NetworkUnavailable"},
                    {"type": "Ready"}, {"type": "DiskPressure"}]}}),
        );
    }

    #[test]
    fn addresses_of_one_type_are_both_kept() {
        let ip = |address: &str| json!({"type": "InternalIP", "address": address});
        let patch = between(
            &json!({"status": {"addresses": [ip("10.0.0.1")]}}),
            &json!({"status": {"addresses": [ip("10.0.0.2"), ip("fd00::2")]}}),
        );
        let expected = json!([ip("10.0.0.2"), ip("fd00::2"), {"$patch": "replace"}]);
        assert_eq!(patch, json!({"status": {"addresses": expected}}));
        let first = json!({"status": {"addresses": [ip("10.0.0.2")]}});
        check(json!({}), first.clone(), first);
    }

    #[test]
    fn types_that_changed_are_replaced() {
        check(
            json!({"status": {"capacity": "odd", "conditions": {"odd": 1}}}),
            json!({"status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "A"}]}}),
            json!({"status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "A"}]}}),
        );
    }
}
