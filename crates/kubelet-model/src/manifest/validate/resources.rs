//! Resource requests, limits and claims.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ResourceRequirements;

use super::super::problem::{Field, Report, quote};
use super::{names, unique};
use crate::quantity::Quantity;

pub(super) fn check(
    resources: &ResourceRequirements,
    claims: &BTreeSet<&str>,
    field: &Field,
    report: &mut Report,
) {
    for (name, limit) in resources.limits.iter().flatten() {
        let field = field.key("limits").key(name);
        check_name(name, &field, report);
        check_quantity(&limit.0, &field, report);
    }
    for (name, request) in resources.requests.iter().flatten() {
        let field = field.key("requests").key(name);
        check_name(name, &field, report);
        let Some(request) = check_quantity(&request.0, &field, report) else {
            continue;
        };
        let limit = resources.limits.as_ref().and_then(|limits| limits.get(name));
        let Some(limit) = limit else {
            if !may_overcommit(name) {
                report.add(&field, "needs an equal limit");
            }
            continue;
        };
        // A limit that is no quantity has its own problem.
        let Some(parsed) = Quantity::parse(&limit.0) else {
            continue;
        };
        if request > parsed {
            report.add(&field, format!("is more than the limit of {}", quote(&limit.0)));
        } else if request != parsed && !may_overcommit(name) {
            report.add(&field, format!("must equal the limit of {}", quote(&limit.0)));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, claim) in resources.claims.iter().flatten().enumerate() {
        let field = field.key("claims").index(index).key("name");
        if !claims.contains(claim.name.as_str()) {
            report.add(&field, format!("no resource claim is named {}", quote(&claim.name)));
        }
        if claim.request.is_none() {
            unique(&mut seen, &claim.name, &field, report);
        }
    }
}

/// Checks that text is a quantity of at least zero.
pub(super) fn check_quantity(text: &str, field: &Field, report: &mut Report) -> Option<Quantity> {
    let quantity = Quantity::parse(text);
    match quantity {
        None => {
            let message = format!("{} is not a quantity such as 100m, 2 or 1.5Gi", quote(text));
            report.add(field, message);
        }
        Some(quantity) if quantity.is_negative() => report.add(field, "must not be negative"),
        Some(_) => {}
    }
    quantity
}

fn check_name(name: &str, field: &Field, report: &mut Report) {
    let native = matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.strip_prefix("hugepages-").is_some_and(|size| Quantity::parse(size).is_some());
    if native {
        return;
    }
    report.check(field, names::qualified_name(name));
    if !name.contains('/') {
        report.add(field, "not a resource of containers; others are written as domain/name");
    }
}

/// Only the kernel's shared resources may be promised more than once.
fn may_overcommit(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
}
