//! Metadata: name, namespace, uid, labels, annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::problem::{Field, Report};
use super::{given, names};

/// Most bytes of all annotations together.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;
/// Longest name of one directory entry: the pod's log directory carries
/// namespace, name and uid.
const DIRECTORY_NAME_MAX: usize = 255;

pub(super) fn check(meta: &ObjectMeta, field: &Field, report: &mut Report) {
    match given(&meta.name) {
        Some(name) => report.check(&field.key("name"), names::dns_subdomain(name)),
        None => report.add(&field.key("name"), "missing"),
    }
    match given(&meta.namespace) {
        Some(namespace) => report.check(&field.key("namespace"), names::dns_label(namespace)),
        None => report.add(&field.key("namespace"), "missing"),
    }
    if let Some(uid) = given(&meta.uid) {
        report.check(&field.key("uid"), names::pod_uid(uid));
    }
    check_log_directory(meta, field, report);
    for (key, value) in meta.labels.iter().flatten() {
        let field = field.key("labels").key(key);
        report.check(&field, names::qualified_name(key));
        report.check(&field, names::label_value(value));
    }
    let mut bytes = 0;
    for (key, value) in meta.annotations.iter().flatten() {
        bytes += key.len() + value.len();
        let key_field = field.key("annotations").key(key);
        report.check(&key_field, names::qualified_name(&key.to_lowercase()));
    }
    if bytes > ANNOTATION_BYTES_MAX {
        let message = format!("{bytes} bytes in total; at most {ANNOTATION_BYTES_MAX} are allowed");
        report.add(&field.key("annotations"), message);
    }
    if meta.generation.is_some_and(|generation| generation < 0) {
        report.add(&field.key("generation"), "must not be negative");
    }
}

fn check_log_directory(meta: &ObjectMeta, field: &Field, report: &mut Report) {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let total = length(&meta.name) + length(&meta.namespace) + length(&meta.uid) + 2;
    if total > DIRECTORY_NAME_MAX {
        let message = format!(
            "namespace, name with the node's name, and uid have {total} characters together; the \
             pod's log directory allows {DIRECTORY_NAME_MAX}; use a shorter name"
        );
        report.add(&field.key("name"), message);
    }
}
