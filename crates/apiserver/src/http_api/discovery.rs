//! What this server serves: groups, versions, resources, and its own version.
//!
//! Pure. Both forms: one document per group and version, and all at once.
//! Upstream: apiserver pkg/endpoints/discovery, pkg/server/routes/version.go.

use serde_json::{Value, json};

use super::response::{self, Response};
use crate::resources::{self, RESOURCES, Resource};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The document at a path, if there is one.
pub(super) fn answer(path: &str, aggregated: bool) -> Option<Response> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let document = match segments.as_slice() {
        ["api"] if aggregated => return Some(all(|group| group.is_empty())),
        ["apis"] if aggregated => return Some(all(|group| !group.is_empty())),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        ["apis"] => {
            let named = resources::group_versions().into_iter().filter(|(g, _)| !g.is_empty());
            let groups: Vec<Value> =
                named.map(|(group, versions)| describe(group, &versions)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", group] => {
            let (group, versions) =
                resources::group_versions().into_iter().find(|(known, _)| known == group)?;
            let mut document = describe(group, &versions);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        ["api", version] => list("", version)?,
        ["apis", group, version] => list(group, version)?,
        ["version"] => version(),
        _ => return None,
    };
    Some(response::json(200, &document))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": format!("v1.36.4+klet{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Where the keys of service account tokens are.
pub(super) fn openid(issuer: &str) -> Value {
    json!({
        "issuer": issuer, "jwks_uri": format!("{issuer}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

fn describe(group: &str, versions: &[&str]) -> Value {
    let entry =
        |version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let entries: Vec<Value> = versions.iter().map(|version| entry(version)).collect();
    let preferred = entries.first().cloned().unwrap_or_default();
    json!({"name": group, "versions": entries, "preferredVersion": preferred})
}

fn of(group: &str, version: &str) -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(move |r| r.group == group && r.version == version)
}

fn list(group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    for resource in of(group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular,
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": resource.verbs(),
        });
        if !resource.short.is_empty() {
            entry["shortNames"] = json!(resource.short);
        }
        if is_in_all(resource) {
            entry["categories"] = json!(["all"]);
        }
        entries.push(entry);
        for part in resource.subresources {
            let (verbs, own) = (part_verbs(*part), part.own_kind());
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, part.name()), "singularName": "",
                "namespaced": resource.namespaced, "verbs": verbs,
                "kind": own.map_or(resource.kind, |(_, _, kind)| kind),
            });
            if let Some((group, version, _)) = own {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        return None;
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries,
    }))
}

fn is_in_all(resource: &Resource) -> bool {
    resource.group.is_empty() && matches!(resource.plural, "pods" | "services")
}

fn part_verbs(part: resources::Subresource) -> &'static [&'static str] {
    if part.own_kind().is_some() { &["create"] } else { &["get", "patch", "update"] }
}

/// Every group at once.
fn all(wanted: impl Fn(&str) -> bool) -> Response {
    let groups = resources::group_versions().into_iter().filter(|(group, _)| wanted(group));
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = of(group, version).map(aggregate).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    });
    response::raw(200, AGGREGATED, document.to_string())
}

fn aggregate(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let own = kind(resource.group, resource.version, resource.kind);
    let parts: Vec<Value> = resource
        .subresources
        .iter()
        .map(|part| {
            let shown = part.own_kind().map_or_else(|| own.clone(), |(g, v, k)| kind(g, v, k));
            json!({"subresource": part.name(), "responseKind": shown, "verbs": part_verbs(*part)})
        })
        .collect();
    let mut entry = json!({
        "resource": resource.plural, "singularResource": resource.singular, "responseKind": own,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "verbs": resource.verbs(), "shortNames": resource.short,
    });
    if !parts.is_empty() {
        entry["subresources"] = parts.into();
    }
    if is_in_all(resource) {
        entry["categories"] = json!(["all"]);
    }
    entry
}
