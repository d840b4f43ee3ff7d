//! Taints and tolerations. Pure.
//!
//! Upstream: component-helpers/scheduling/corev1/helpers.go, api/core/v1/toleration.go.

use k8s_openapi::api::core::v1::{PodSpec, Toleration};

use super::Taint;

/// Does some toleration of the pod suffer this taint?
pub(super) fn tolerates(spec: &PodSpec, taint: &Taint, compares: bool) -> bool {
    spec.tolerations.iter().flatten().any(|toleration| suffers(toleration, taint, compares))
}

fn suffers(toleration: &Toleration, taint: &Taint, compares: bool) -> bool {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, value) = (said(&toleration.key), said(&toleration.value));
    let effect = said(&toleration.effect);
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => value == taint.value,
        "Exists" => true,
        operator @ ("Lt" | "Gt") if compares => match (number(&value), number(&taint.value)) {
            (Some(bound), Some(number)) if operator == "Lt" => number < bound,
            (Some(bound), Some(number)) => number > bound,
            _ => false,
        },
        _ => false,
    }
}

/// A number as the API knows it: no plus, no leading zeros.
fn number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
