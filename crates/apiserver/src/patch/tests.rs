//! Tables of patches.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn strategic(kind: &str, object: Value, patch: Value) -> Value {
    apply(Format::Strategic, kind, &object, &patch).unwrap()
}

fn containers(list: Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[test]
fn keyed_lists_are_merged_by_their_key() {
    let old = containers(json!([
        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "args": ["x", "y"]},
        {"name": "b", "image": "b:1"},
    ]));
    let patch = containers(json!([
        {"name": "a", "image": "a:2", "args": ["z"],
         "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]},
        {"name": "c", "image": "c:1"},
    ]));
    let expected = containers(json!([
        {"name": "a", "image": "a:2", "args": ["z"],
         "env": [{"name": "X", "value": "3"}, {"name": "Y", "value": "2"}]},
        {"name": "b", "image": "b:1"},
        {"name": "c", "image": "c:1"},
    ]));
    assert_eq!(strategic("Pod", old, patch), expected);
}

#[test]
fn directives() {
    let two = || containers(json!([{"name": "a", "x": 1}, {"name": "b", "x": 2}]));
    let table = [
        (
            two(),
            containers(json!([{"name": "a", "$patch": "delete"}])),
            containers(json!([{"name": "b", "x": 2}])),
        ),
        (
            two(),
            containers(json!([{"$patch": "replace"}, {"name": "c"}])),
            containers(json!([{"name": "c"}])),
        ),
        // Nothing is merged by key then, and items with directives are no items.
        (
            two(),
            containers(json!([
                {"name": "c", "x": 1}, {"$patch": "replace"}, {"name": "c", "x": 2}, {"y": 1},
                {"name": "a", "$patch": "delete"}, {"name": "d", "$patch": "replace"},
            ])),
            containers(json!([{"name": "c", "x": 1}, {"name": "c", "x": 2}, {"y": 1}])),
        ),
        (
            two(),
            containers(json!([{"name": "a", "x": null}])),
            containers(json!([{"name": "a"}, {"name": "b", "x": 2}])),
        ),
        (
            two(),
            json!({"spec": {"$patch": "replace", "nodeName": "n"}}),
            json!({"spec": {"nodeName": "n"}}),
        ),
        (
            two(),
            json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
            "containers": [{"name": "c", "x": 3}]}}),
            containers(
                json!([{"name": "c", "x": 3}, {"name": "b", "x": 2}, {"name": "a", "x": 1}]),
            ),
        ),
        (
            json!({"metadata": {"finalizers": ["x", "y"]}}),
            json!({"metadata": {"finalizers": ["z", "y"], "$deleteFromPrimitiveList/finalizers": ["x"]}}),
            json!({"metadata": {"finalizers": ["y", "z"]}}),
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
        ),
    ];
    for (old, patch, expected) in table {
        assert_eq!(strategic("Pod", old, patch.clone()), expected, "{patch}");
    }
}

#[test]
fn conditions_of_nodes_and_lists_without_keys() {
    let old = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "X"}],
        "images": [{"names": ["a"]}]}});
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["b"]}]}});
    let expected = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X"}],
        "images": [{"names": ["b"]}]}});
    assert_eq!(strategic("Node", old, patch), expected);
}

#[test]
fn what_a_patch_adds_has_neither_nulls_nor_directives() {
    let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "x": null,
        "containers": [{"name": "a", "y": null}, {"name": "b", "$patch": "delete"}]}});
    assert_eq!(strategic("Pod", json!({}), patch), containers(json!([{"name": "a"}])));
}

#[test]
fn strategic_nonsense_is_refused() {
    for patch in [
        containers(json!([{"image": "x"}])),
        containers(json!(["x"])),
        json!({"$patch": "destroy"}),
        json!({"spec": {"$retainKeys": 3}}),
        json!([]),
    ] {
        assert!(apply(Format::Strategic, "Pod", &json!({"spec": {}}), &patch).is_err(), "{patch}");
    }
}

#[test]
fn merge_and_json_patches() {
    let old = json!({"a": [1, 2], "b": {"c": 1, "d": 2}});
    let merged = apply(Format::Merge, "Pod", &old, &json!({"a": [3], "b": {"c": null}})).unwrap();
    assert_eq!(merged, json!({"a": [3], "b": {"d": 2}}));
    let operations =
        json!([{"op": "test", "path": "/a/0", "value": 1}, {"op": "remove", "path": "/a/0"}]);
    assert_eq!(apply(Format::Json, "Pod", &old, &operations).unwrap()["a"], json!([2]));
    let failing = json!([{"op": "test", "path": "/a/0", "value": 7}]);
    assert!(matches!(apply(Format::Json, "Pod", &old, &failing), Err(PatchError::Refused(_))));
    assert!(matches!(apply(Format::Json, "Pod", &old, &json!({})), Err(PatchError::Unreadable(_))));
}

#[test]
fn copies_of_copies_end() {
    let object = json!({"a": {"x": "y".repeat(100)}});
    let wide: Vec<Value> =
        (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/a/{n}")})).collect();
    assert!(matches!(
        apply(Format::Json, "Pod", &object, &wide.into()),
        Err(PatchError::Refused(_))
    ));
    let mut path = "/a".to_owned();
    let mut deep = Vec::new();
    for _ in 0..20 {
        deep.push(json!({"op": "copy", "from": "/a", "path": format!("{path}/b")}));
        path = format!("{path}{}", "/b".repeat(path.len() / 2));
    }
    assert!(matches!(
        apply(Format::Json, "Pod", &object, &deep.into()),
        Err(PatchError::Refused(_))
    ));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!(null),
        json!(1),
        json!("a"),
        json!("delete"),
        json!("replace"),
    ]);
    leaf.prop_recursive(5, 30, 4, |inner| {
        let key = prop::sample::select(vec![
            "spec",
            "containers",
            "name",
            "env",
            "metadata",
            "finalizers",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "labels",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn a_strategic_patch_never_panics_and_leaves_no_directive(old in any_value(), patch in any_value()) {
        if let Ok(new) = apply(Format::Strategic, "Pod", &json!({}), &json!({"metadata": patch})) {
            prop_assert!(!new["metadata"].as_object().is_some_and(|map| map.keys().any(|k| k.starts_with('$'))));
        }
        let _ = apply(Format::Strategic, "Pod", &old, &patch);
    }
}
