//! Volumes whose files the agent writes: configMap, secret, downwardAPI, projected.
//!
//! Upstream: validateVolumeSource and below in pkg/apis/core/validation.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, Volume};

use super::super::problem::{Field, Report, quote};
use super::{env, given, names};

/// Fields of the pod that may be files.
const POD_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

pub(super) fn check(volume: &Volume, field: &Field, report: &mut Report) {
    if let Some(source) = &volume.config_map {
        let field = field.key("configMap");
        check_mode(source.default_mode, &field.key("defaultMode"), report);
        check_name(&source.name, &field.key("name"), report);
        check_items(&source.items, &field, report);
    }
    if let Some(source) = &volume.secret {
        let field = field.key("secret");
        check_mode(source.default_mode, &field.key("defaultMode"), report);
        let name = source.secret_name.as_deref().unwrap_or_default();
        check_name(name, &field.key("secretName"), report);
        check_items(&source.items, &field, report);
    }
    if let Some(source) = &volume.downward_api {
        let field = field.key("downwardAPI");
        check_mode(source.default_mode, &field.key("defaultMode"), report);
        check_files(&source.items, &field, report);
    }
    if let Some(source) = &volume.projected {
        check_projected(source, &field.key("projected"), report);
    }
}

fn check_projected(projected: &ProjectedVolumeSource, field: &Field, report: &mut Report) {
    check_mode(projected.default_mode, &field.key("defaultMode"), report);
    let mut paths = BTreeSet::new();
    for (index, source) in projected.sources.iter().flatten().enumerate() {
        let field = field.key("sources").index(index);
        let kinds = [
            source.config_map.is_some(),
            source.secret.is_some(),
            source.downward_api.is_some(),
            source.service_account_token.is_some(),
            source.cluster_trust_bundle.is_some(),
            source.pod_certificate.is_some(),
        ];
        if kinds.into_iter().filter(|set| *set).count() > 1 {
            report.add(&field, "may not specify more than 1 volume type per source");
        }
        let objects = [
            ("configMap", source.config_map.as_ref().map(|of| (&of.name, &of.items))),
            ("secret", source.secret.as_ref().map(|of| (&of.name, &of.items))),
        ];
        for (key, object) in objects {
            let Some((name, items)) = object else { continue };
            let field = field.key(key);
            check_name(name, &field.key("name"), report);
            check_items(items, &field, report);
            let named = items.iter().flatten().map(|item| item.path.as_str());
            check_conflicts(named, &mut paths, &field, report);
        }
        if let Some(downward) = &source.downward_api {
            let field = field.key("downwardAPI");
            check_files(&downward.items, &field, report);
            let named = downward.items.iter().flatten().map(|item| item.path.as_str());
            check_conflicts(named, &mut paths, &field, report);
        }
    }
}

fn check_conflicts<'p>(
    named: impl Iterator<Item = &'p str>,
    paths: &mut BTreeSet<&'p str>,
    field: &Field,
    report: &mut Report,
) {
    for (index, path) in named.enumerate() {
        if !path.is_empty() && !paths.insert(path) {
            let field = field.key("items").index(index).key("path");
            report.add(&field, format!("conflicting duplicate paths: {}", quote(path)));
        }
    }
}

fn check_name(name: &str, field: &Field, report: &mut Report) {
    if name.is_empty() {
        report.add(field, "missing");
    } else {
        report.check(field, names::dns_subdomain(name));
    }
}

fn check_items(items: &Option<Vec<KeyToPath>>, field: &Field, report: &mut Report) {
    for (index, item) in items.iter().flatten().enumerate() {
        let field = field.key("items").index(index);
        if item.key.is_empty() {
            report.add(&field.key("key"), "missing");
        }
        check_path(&item.path, &field.key("path"), report);
        check_mode(item.mode, &field.key("mode"), report);
    }
}

fn check_files(items: &Option<Vec<DownwardAPIVolumeFile>>, field: &Field, report: &mut Report) {
    for (index, item) in items.iter().flatten().enumerate() {
        let field = field.key("items").index(index);
        check_path(&item.path, &field.key("path"), report);
        check_mode(item.mode, &field.key("mode"), report);
        match (&item.field_ref, &item.resource_field_ref) {
            (Some(_), Some(_)) => {
                let message = "fieldRef and resourceFieldRef can not be specified simultaneously";
                report.add(&field, message);
            }
            (None, None) => {
                report.add(&field, "one of fieldRef and resourceFieldRef is required");
            }
            (Some(selector), None) => {
                let field = field.key("fieldRef").key("fieldPath");
                let path = selector.field_path.as_str();
                if !env::check_subscript(path, &field, report) && !POD_FIELDS.contains(&path) {
                    report.add(&field, format!("{} cannot be a file", quote(path)));
                }
            }
            (None, Some(selector)) => {
                let field = field.key("resourceFieldRef");
                if given(&selector.container_name).is_none() {
                    report.add(&field.key("containerName"), "missing");
                }
                env::check_resource(selector, &field, report);
            }
        }
    }
}

/// A path in the volume; names that begin with `..` are the agent's.
fn check_path(path: &str, field: &Field, report: &mut Report) {
    if path.is_empty() {
        report.add(field, "missing");
        return;
    }
    report.check(field, names::descending_path(path));
    // A path that climbs is told already.
    if path.starts_with("..") && names::descending_path(path).is_ok() {
        report.add(field, "must not start with '..'");
    }
}

fn check_mode(mode: Option<i32>, field: &Field, report: &mut Report) {
    if mode.is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        report.add(field, "must be between 0 and 0777");
    }
}
