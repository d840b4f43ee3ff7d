//! Resources of the whole pod: which, and how they bound its containers'.
//!
//! Upstream: validatePodResources in pkg/apis/core/validation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::super::problem::{Field, Report, quote};
use crate::quantity::Quantity;

type Amounts = Option<BTreeMap<String, Text>>;

pub(super) fn check(
    spec: &PodSpec,
    resources: &ResourceRequirements,
    field: &Field,
    report: &mut Report,
) {
    if resources.claims.is_some() {
        report.add(&field.key("claims"), "a pod's own resources cannot have claims");
    }
    for (key, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for name in amounts.iter().flatten().map(|(name, _)| name) {
            if !matches!(name.as_str(), "cpu" | "memory") && !name.starts_with("hugepages-") {
                let message = "only cpu, memory and hugepages can be given to the whole pod";
                report.add(&field.key(key).key(name), message);
            }
        }
    }
    for (name, request) in resources.requests.iter().flatten() {
        let together = together(&spec.containers, name, |r| &r.requests);
        if Quantity::parse(&request.0).is_some_and(|request| request.milli() < together) {
            let message = "must be at least what the containers request together";
            report.add(&field.key("requests").key(name), message);
        }
    }
    for (name, limit) in resources.limits.iter().flatten() {
        let Some(parsed) = Quantity::parse(&limit.0) else { continue };
        let huge = name.starts_with("hugepages-");
        if huge && parsed.milli() < together(&spec.containers, name, |r| &r.limits) {
            let message = "must be at least the containers' limits together";
            report.add(&field.key("limits").key(name), message);
        }
        for (index, container) in spec.containers.iter().enumerate() {
            let own = container.resources.as_ref().and_then(|r| r.limits.as_ref()?.get(name));
            if own.and_then(|own| Quantity::parse(&own.0)).is_some_and(|own| own > parsed) {
                let path = Field::root().key("spec").key("containers").index(index);
                let message = format!("is more than the pod's limit of {}", quote(&limit.0));
                report.add(&path.key("resources").key("limits").key(name), message);
            }
        }
    }
}

/// Thousandths of a resource that all containers ask for.
fn together(
    containers: &[Container],
    name: &str,
    of: impl Fn(&ResourceRequirements) -> &Amounts,
) -> i64 {
    let resources = containers.iter().filter_map(|container| container.resources.as_ref());
    let amounts = resources.filter_map(|resources| of(resources).as_ref()?.get(name));
    amounts
        .filter_map(|text| Quantity::parse(&text.0))
        .fold(0, |sum: i64, amount| sum.saturating_add(amount.milli()))
}
