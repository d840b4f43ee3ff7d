//! Environment variables and where their values come from.

use k8s_openapi::api::core::v1::{
    EnvVar, EnvVarSource, FileKeySelector, PodSpec, ResourceFieldSelector,
};

use super::super::problem::{Field, Report, quote};
use super::containers::View;
use super::{given, names};
use crate::quantity::Quantity;

/// Pod fields an environment variable may take its value from.
const POD_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn check(container: &View<'_>, spec: &PodSpec, field: &Field, report: &mut Report) {
    for (index, env) in container.env.iter().flatten().enumerate() {
        check_variable(env, spec, &field.key("env").index(index), report);
    }
    for (index, from) in container.env_from.iter().flatten().enumerate() {
        let field = field.key("envFrom").index(index);
        if let Some(prefix) = given(&from.prefix) {
            report.check(&field.key("prefix"), names::env_name(prefix));
        }
        let config_map = from.config_map_ref.as_ref().map(|source| &source.name);
        let secret = from.secret_ref.as_ref().map(|source| &source.name);
        if config_map.is_some() == secret.is_some() {
            report.add(&field, "must have exactly one of configMapRef and secretRef");
        }
        for (key, name) in [("configMapRef", config_map), ("secretRef", secret)] {
            if let Some(name) = name {
                report.check(&field.key(key).key("name"), names::dns_subdomain(name));
            }
        }
    }
}

fn check_variable(env: &EnvVar, spec: &PodSpec, field: &Field, report: &mut Report) {
    report.check(&field.key("name"), names::env_name(&env.name));
    let Some(source) = &env.value_from else {
        return;
    };
    let field = field.key("valueFrom");
    if given(&env.value).is_some() {
        report.add(&field, "cannot be set together with value");
    }
    check_source(source, &field, report);
    if let Some(selector) = &source.file_key_ref {
        check_file(selector, spec, &field.key("fileKeyRef"), report);
    }
}

/// A file that containers of the pod write, and so in a volume that is theirs alone.
fn check_file(selector: &FileKeySelector, spec: &PodSpec, field: &Field, report: &mut Report) {
    report.check(&field.key("key"), names::env_name(&selector.key));
    if selector.path.is_empty() {
        report.add(&field.key("path"), "missing");
    }
    report.check(&field.key("path"), names::no_backsteps(&selector.path));
    let (name, field) = (&selector.volume_name, field.key("volumeName"));
    match spec.volumes.iter().flatten().find(|volume| volume.name == *name) {
        _ if name.is_empty() => report.add(&field, "missing"),
        None => report.add(&field, format!("no volume is named {}", quote(name))),
        Some(volume) if volume.empty_dir.is_none() => {
            report.add(&field, format!("volume {} is not an emptyDir", quote(name)));
        }
        Some(_) => {}
    }
}

fn check_source(source: &EnvVarSource, field: &Field, report: &mut Report) {
    let sources = [
        source.config_map_key_ref.is_some(),
        source.field_ref.is_some(),
        source.file_key_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.secret_key_ref.is_some(),
    ];
    if sources.into_iter().filter(|set| *set).count() != 1 {
        report.add(field, "must have exactly one source");
    }
    if let Some(selector) = &source.field_ref {
        let path = selector.field_path.as_str();
        let field = field.key("fieldRef").key("fieldPath");
        if !check_subscript(path, &field, report) && !POD_FIELDS.contains(&path) {
            let message = format!("{} cannot be an environment variable", quote(path));
            report.add(&field, message);
        }
    }
    let keys = [
        ("configMapKeyRef", source.config_map_key_ref.as_ref().map(|r| (&r.name, &r.key))),
        ("secretKeyRef", source.secret_key_ref.as_ref().map(|r| (&r.name, &r.key))),
    ];
    for (name, reference) in keys {
        let Some((object, key)) = reference else {
            continue;
        };
        let field = field.key(name);
        report.check(&field.key("name"), names::dns_subdomain(object));
        if key.is_empty() {
            report.add(&field.key("key"), "missing");
        }
    }
    if let Some(selector) = &source.resource_field_ref {
        check_resource(selector, &field.key("resourceFieldRef"), report);
    }
}

/// Is it one label or annotation, such as `metadata.labels['key']`? Then its key
/// is checked.
pub(super) fn check_subscript(path: &str, field: &Field, report: &mut Report) -> bool {
    let subscript = ["metadata.labels['", "metadata.annotations['"]
        .iter()
        .any(|prefix| path.starts_with(prefix) && path.ends_with("']"));
    if subscript {
        check_key(path, field, report);
    }
    subscript
}

/// The key in `metadata.labels['key']`.
fn check_key(path: &str, field: &Field, report: &mut Report) {
    let key = path.strip_suffix("']").and_then(|path| path.split_once("['"));
    if let Some((map, key)) = key {
        let lower = key.to_lowercase();
        let key = if map == "metadata.annotations" { &lower } else { key };
        report.check(field, names::qualified_name(key));
    }
}

pub(super) fn check_resource(selector: &ResourceFieldSelector, field: &Field, report: &mut Report) {
    let resource = selector.resource.as_str();
    let name = resource.strip_prefix("limits.").or_else(|| resource.strip_prefix("requests."));
    let known = name.is_some_and(|name| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
    });
    if resource.is_empty() {
        report.add(&field.key("resource"), "missing");
    } else if !known {
        let message = format!("{} cannot be an environment variable", quote(resource));
        report.add(&field.key("resource"), message);
    }
    let divisors: &[&str] = match name {
        Some("cpu") => &["1m", "1"],
        _ => &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"],
    };
    let Some(text) = selector.divisor.as_ref().map(|divisor| divisor.0.as_str()) else { return };
    let divisor = Quantity::parse(text);
    let good = |allowed: &&str| Quantity::parse(allowed) == divisor;
    if !divisor.is_some_and(Quantity::is_zero) && !divisors.iter().any(good) {
        let message = format!("{} is not one of {}", quote(text), divisors.join(", "));
        report.add(&field.key("divisor"), message);
    }
}
