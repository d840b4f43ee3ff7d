//! Values that upstream's decoder accepts in a second form.
//!
//! A quantity may be written as a number (`cpu: 2`), and a null in a map of
//! strings is the empty string. Upstream: apimachinery/pkg/api/resource.

use serde_json::Value;

/// Where a Pod holds quantities; `*` stands for every item or entry.
const QUANTITIES: &[&[&str]] = &[
    &["spec", "containers", "*", "resources", "limits", "*"],
    &["spec", "containers", "*", "resources", "requests", "*"],
    &["spec", "containers", "*", "env", "*", "valueFrom", "resourceFieldRef", "divisor"],
    &["spec", "initContainers", "*", "resources", "limits", "*"],
    &["spec", "initContainers", "*", "resources", "requests", "*"],
    &["spec", "initContainers", "*", "env", "*", "valueFrom", "resourceFieldRef", "divisor"],
    &["spec", "ephemeralContainers", "*", "resources", "limits", "*"],
    &["spec", "ephemeralContainers", "*", "resources", "requests", "*"],
    &["spec", "ephemeralContainers", "*", "env", "*", "valueFrom", "resourceFieldRef", "divisor"],
    &["spec", "resources", "limits", "*"],
    &["spec", "resources", "requests", "*"],
    &["spec", "overhead", "*"],
    &["spec", "volumes", "*", "emptyDir", "sizeLimit"],
    &["spec", "volumes", "*", "downwardAPI", "items", "*", "resourceFieldRef", "divisor"],
    &[
        "spec",
        "volumes",
        "*",
        "projected",
        "sources",
        "*",
        "downwardAPI",
        "items",
        "*",
        "resourceFieldRef",
        "divisor",
    ],
    &[
        "spec",
        "volumes",
        "*",
        "ephemeral",
        "volumeClaimTemplate",
        "spec",
        "resources",
        "requests",
        "*",
    ],
    &[
        "spec",
        "volumes",
        "*",
        "ephemeral",
        "volumeClaimTemplate",
        "spec",
        "resources",
        "limits",
        "*",
    ],
];

/// Maps of strings to strings that people write by hand.
const STRING_MAPS: &[&[&str]] = &[
    &["metadata", "labels", "*"],
    &["metadata", "annotations", "*"],
    &["spec", "nodeSelector", "*"],
];

/// Rewrites second forms into the first.
pub(super) fn to_upstream_types(pod: &mut Value) {
    for path in QUANTITIES {
        rewrite(pod, path, &|value| {
            if let Value::Number(number) = value {
                *value = Value::String(number.to_string());
            }
        });
    }
    for path in STRING_MAPS {
        rewrite(pod, path, &|value| {
            if value.is_null() {
                *value = Value::String(String::new());
            }
        });
    }
}

fn rewrite(value: &mut Value, path: &[&str], change: &dyn Fn(&mut Value)) {
    let Some((step, rest)) = path.split_first() else {
        return change(value);
    };
    match value {
        Value::Array(items) if *step == "*" => {
            items.iter_mut().for_each(|item| rewrite(item, rest, change));
        }
        Value::Object(map) if *step == "*" => {
            map.values_mut().for_each(|item| rewrite(item, rest, change));
        }
        Value::Object(map) => {
            if let Some(item) = map.get_mut(*step) {
                rewrite(item, rest, change);
            }
        }
        _ => {}
    }
}
