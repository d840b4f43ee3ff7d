//! OpenAPI v3, as far as clients need it to send objects.
//!
//! Pure. Says which addresses exist and that they take `dryRun` and
//! `fieldValidation`: that is what kubectl looks for before it leaves the checking
//! of fields to the server. Tells no schemas, so `kubectl explain` has nothing to
//! explain. Upstream: kube-openapi pkg/handler3.

use serde_json::{Map, Value, json};

use crate::resources::{self, Keeping, RESOURCES, Resource};

/// The document at a path, if there is one.
pub(super) fn answer(path: &str) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["openapi", "v3"] => Some(index()),
        ["openapi", "v3", "api", version] => document("", version),
        ["openapi", "v3", "apis", group, version] => document(group, version),
        _ => None,
    }
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn index() -> Value {
    let mut paths = Map::new();
    for (group, versions) in resources::group_versions() {
        for version in versions {
            let root = root(group, version);
            let address = format!("/openapi/v3/{root}");
            paths.insert(root, json!({"serverRelativeURL": address}));
        }
    }
    json!({"paths": paths})
}

fn document(group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    for resource in RESOURCES.iter().filter(|r| r.group == group && r.version == version) {
        let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let list = format!("/{}/{scope}{}", root(group, version), resource.plural);
        let mut on_list = json!({"post": operation(resource, "post")});
        if resource.keeping == Keeping::Stored {
            on_list["get"] = operation(resource, "list");
            paths.insert(
                format!("{list}/{{name}}"),
                json!({
                    "get": operation(resource, "get"), "put": operation(resource, "put"),
                    "patch": operation(resource, "patch"), "delete": operation(resource, "delete"),
                }),
            );
        }
        paths.insert(list, on_list);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": paths,
        "components": {"schemas": {}},
    }))
}

fn operation(resource: &Resource, action: &str) -> Value {
    let names: &[&str] = match action {
        "post" | "put" | "patch" => &["dryRun", "fieldManager", "fieldValidation"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        "list" => {
            &["continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "watch"]
        }
        _ => &[],
    };
    let parameter =
        |name: &&str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters: Vec<Value> = names.iter().map(parameter).collect();
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        },
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
    })
}
