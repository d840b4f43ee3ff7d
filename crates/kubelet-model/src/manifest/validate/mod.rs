//! Is a defaulted pod one that the API server would have taken?
//!
//! Pure; reports every problem, not the first. Each file covers one area of the
//! pod. Upstream: pkg/apis/core/validation.

mod containers;
mod dns;
mod env;
mod handlers;
mod metadata;
mod mounts;
pub(super) mod network_volumes;
mod payload_volumes;
pub(super) mod names;
mod pod_resources;
mod ports;
mod resources;
mod scheduling;
mod security;
mod volumes;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::problem::{Field, Problem, Report, quote};

/// Everything that is wrong with a defaulted pod.
pub fn validate(pod: &Pod) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check(&pod.metadata, &Field::root().key("metadata"), &mut report);
    let field = Field::root().key("spec");
    match &pod.spec {
        Some(spec) => {
            check_spec(spec, &field, &mut report);
            security::check_annotations(&pod.metadata, spec, &mut report);
        }
        None => report.add(&field, "missing"),
    }
    report.finish()
}

fn check_spec(spec: &PodSpec, field: &Field, report: &mut Report) {
    volumes::check(spec, &field.key("volumes"), report);
    containers::check(spec, field, report);
    ports::check_conflicts(spec, field, report);
    one_of(
        &spec.restart_policy,
        &["Always", "OnFailure", "Never"],
        &field.key("restartPolicy"),
        report,
    );
    one_of(
        &spec.preemption_policy,
        &["PreemptLowerPriority", "Never"],
        &field.key("preemptionPolicy"),
        report,
    );
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        report.add(&field.key("terminationGracePeriodSeconds"), "must not be negative");
    }
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        report.add(&field.key("activeDeadlineSeconds"), "must be between 1 and 2147483647");
    }
    if let Some(resources) = &spec.resources {
        resources::check(resources, &claims(spec), &field.key("resources"), report);
        pod_resources::check(spec, resources, &field.key("resources"), report);
    }
    for (name, quantity) in spec.overhead.iter().flatten() {
        resources::check_quantity(&quantity.0, &field.key("overhead").key(name), report);
    }
    dns::check(spec, field, report);
    scheduling::check(spec, field, report);
    security::check_pod(spec, field, report);
    let subdomain_fields = [
        ("serviceAccountName", &spec.service_account_name),
        ("nodeName", &spec.node_name),
        ("priorityClassName", &spec.priority_class_name),
        ("runtimeClassName", &spec.runtime_class_name),
    ];
    for (index, secret) in spec.image_pull_secrets.iter().flatten().enumerate() {
        // As upstream: one without a name is passed over.
        if !secret.name.is_empty() {
            let field = field.key("imagePullSecrets").index(index).key("name");
            report.check(&field, names::dns_subdomain(&secret.name));
        }
    }
    for (key, value) in subdomain_fields {
        if let Some(value) = given(value) {
            report.check(&field.key(key), names::dns_subdomain(value));
        }
    }
}

/// Names of the pod's resource claims.
fn claims(spec: &PodSpec) -> BTreeSet<&str> {
    spec.resource_claims.iter().flatten().map(|claim| claim.name.as_str()).collect()
}

/// Text that is set and not empty.
fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|text| !text.is_empty())
}

/// Checks a field with a closed list of values.
fn one_of(value: &Option<String>, allowed: &[&str], field: &Field, report: &mut Report) {
    let Some(value) = given(value) else { return };
    if !allowed.contains(&value) {
        let message = format!("{} is not one of {}", quote(value), allowed.join(", "));
        report.add(field, message);
    }
}

/// Reports the second and later uses of a value.
fn unique<'v>(seen: &mut BTreeSet<&'v str>, value: &'v str, field: &Field, report: &mut Report) {
    if !seen.insert(value) {
        report.add(field, format!("{} is used more than once", quote(value)));
    }
}
