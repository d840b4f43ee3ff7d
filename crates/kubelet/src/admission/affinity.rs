//! Node selectors and required node affinity. Pure.
//!
//! Upstream: component-helpers/scheduling/corev1/nodeaffinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use super::NodeView;

/// The one field of a Node that terms may name.
const NAME: &str = "metadata.name";

/// Does the node have what the pod's selector and its required affinity ask for?
pub(super) fn matches(spec: &PodSpec, node: &NodeView) -> bool {
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| node.labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    // Any of the terms will do; a pod with none that says anything fits nowhere.
    required.is_none_or(|required| {
        required.node_selector_terms.iter().any(|term| matches_term(term, node))
    })
}

fn matches_term(term: &NodeSelectorTerm, node: &NodeView) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    // One that makes no sense spoils its term, whatever the others say.
    let expressions = expressions.iter().map(|one| matches_label(one, &node.labels));
    let fields = fields.iter().map(|one| matches_field(one, &node.name));
    expressions.chain(fields).all(|answer| answer == Some(true))
}

/// `None` if the requirement makes no sense.
fn matches_label(one: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> Option<bool> {
    let values = one.values.as_deref().unwrap_or_default();
    let label = labels.get(&one.key);
    let named = || label.is_some_and(|label| values.contains(label));
    let number = |text: &str| text.parse::<i64>().ok();
    match one.operator.as_str() {
        "In" => (!values.is_empty()).then(named),
        "NotIn" => (!values.is_empty()).then(|| !named()),
        "Exists" => values.is_empty().then_some(label.is_some()),
        "DoesNotExist" => values.is_empty().then_some(label.is_none()),
        operator @ ("Gt" | "Lt") => {
            let [bound] = values else { return None };
            let bound = number(bound)?;
            let label = label.and_then(|label| number(label));
            let holds = |label| if operator == "Gt" { label > bound } else { label < bound };
            Some(label.is_some_and(holds))
        }
        _ => None,
    }
}

fn matches_field(one: &NodeSelectorRequirement, name: &str) -> Option<bool> {
    let [value] = one.values.as_deref().unwrap_or_default() else { return None };
    let field = if one.key == NAME { name } else { "" };
    match one.operator.as_str() {
        "In" => Some(field == value),
        "NotIn" => Some(field != value),
        _ => None,
    }
}
