//! Tolerations, node selector, topology spread and gates. They mean nothing to
//! a node on its own, but a manifest with a mistake in them is still refused
//! everywhere else.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, Toleration};

use super::super::problem::{Field, Report, quote};
use super::{given, names, one_of, unique};

pub(super) fn check(spec: &PodSpec, field: &Field, report: &mut Report) {
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(toleration, &field.key("tolerations").index(index), report);
    }
    for (key, value) in spec.node_selector.iter().flatten() {
        let field = field.key("nodeSelector").key(key);
        report.check(&field, names::qualified_name(key));
        report.check(&field, names::label_value(value));
    }
    for (index, spread) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let field = field.key("topologySpreadConstraints").index(index);
        if spread.max_skew <= 0 {
            report.add(&field.key("maxSkew"), "must be more than 0");
        }
        report.check(&field.key("topologyKey"), names::qualified_name(&spread.topology_key));
        let action = Some(spread.when_unsatisfiable.clone());
        let allowed = ["DoNotSchedule", "ScheduleAnyway"];
        one_of(&action, &allowed, &field.key("whenUnsatisfiable"), report);
    }
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let field = field.key("readinessGates").index(index).key("conditionType");
        report.check(&field, names::qualified_name(&gate.condition_type));
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in spec.scheduling_gates.iter().flatten().enumerate() {
        let field = field.key("schedulingGates").index(index).key("name");
        report.check(&field, names::qualified_name(&gate.name));
        unique(&mut seen, &gate.name, &field, report);
    }
}

fn check_toleration(toleration: &Toleration, field: &Field, report: &mut Report) {
    let operator = given(&toleration.operator).unwrap_or("Equal");
    let value = given(&toleration.value).unwrap_or_default();
    match given(&toleration.key) {
        Some(key) => report.check(&field.key("key"), names::qualified_name(key)),
        None if operator != "Exists" => {
            report.add(&field.key("operator"), "must be Exists when there is no key");
        }
        None => {}
    }
    match operator {
        "Equal" => report.check(&field.key("value"), names::label_value(value)),
        "Exists" if !value.is_empty() => {
            report.add(&field.key("value"), "must be empty when operator is Exists");
        }
        "Exists" => {}
        other => {
            let message = format!("{} is not one of Equal, Exists", quote(other));
            report.add(&field.key("operator"), message);
        }
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    one_of(&toleration.effect, &effects, &field.key("effect"), report);
    let seconds = toleration.toleration_seconds.is_some();
    if seconds && toleration.effect.as_deref() != Some("NoExecute") {
        report.add(&field.key("effect"), "must be NoExecute when tolerationSeconds is set");
    }
}
