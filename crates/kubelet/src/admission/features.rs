//! Features that a pod needs of the node. Pure.
//!
//! Upstream: the feature handlers of pkg/kubelet/lifecycle,
//! component-helpers/nodedeclaredfeatures.

use k8s_openapi::api::core::v1::PodSpec;
use kubelet_model::restart;

use super::{Rejection, Rules};
use crate::container_manager::amounts::has_pod_level;

/// Why the pod is refused.
pub(super) fn refuse(spec: &PodSpec, rules: &Rules) -> Option<Rejection> {
    if has_pod_level(spec) && !rules.pod_level_resources {
        let message = "PodLevelResources feature gate is disabled";
        return Some(Rejection::new("PodLevelResourcesNotSupported", message));
    }
    let declared = rules.declared_features.as_ref()?;
    let missing: Vec<&str> =
        needed(spec).into_iter().filter(|name| !declared.iter().any(|has| has == name)).collect();
    (!missing.is_empty()).then(|| {
        let message =
            format!("Pod requires node features that are not available: {}", missing.join(", "));
        Rejection::new("PodFeatureUnsupported", message)
    })
}

/// The features that a pod cannot run without, in upstream's order.
fn needed(spec: &PodSpec) -> Vec<&'static str> {
    let mut names = Vec::new();
    if restart::could_start_over(spec) {
        names.push("RestartAllContainersOnContainerExits");
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        names.push("UserNamespacesHostNetworkSupport");
    }
    names
}
