//! Events have two APIs and one store.
//!
//! Pure. They are stored in the form of the core API; these two functions rename
//! fields for the other one. Upstream: pkg/apis/events/v1/conversion.go.

use serde_json::Value;

use crate::resources::Resource;

/// Core name and name in `events.k8s.io`.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// An object of a resource in the form in which it is stored.
pub fn to_storage(resource: &Resource, mut object: Value) -> Value {
    if resource.stored_as.is_some() {
        rename(&mut object, "v1", |(core, other)| (other, core));
    }
    object
}

/// A stored object in the form of a resource.
pub fn from_storage(resource: &Resource, mut object: Value) -> Value {
    if resource.stored_as.is_some() {
        rename(&mut object, &resource.api_version(), |pair| pair);
    }
    object
}

type Pair = (&'static str, &'static str);

fn rename(object: &mut Value, api_version: &str, order: impl Fn(Pair) -> Pair) {
    let Some(fields) = object.as_object_mut() else { return };
    for pair in RENAMED {
        let (from, to) = order(*pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    fields.insert("apiVersion".to_owned(), api_version.into());
}
