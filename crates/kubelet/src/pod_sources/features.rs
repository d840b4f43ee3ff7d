//! Features of the node that an update of a pod needs. Pure.
//!
//! Only resources of a pod that exists can change in ways that a node may not know.
//! Upstream: InferForUpdate of component-helpers/nodedeclaredfeatures, HandlePodUpdates of
//! pkg/kubelet/kubelet.go.

use k8s_openapi::api::core::v1::{Container, PodSpec};

const OF_PODS: &str = "InPlacePodLevelResourcesVerticalScaling";
const OF_INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";

/// What this change of a pod's spec needs, in upstream's order.
pub(super) fn needed(before: &PodSpec, after: &PodSpec) -> Vec<&'static str> {
    let mut names = Vec::new();
    if before.resources != after.resources {
        names.push(OF_PODS);
    }
    let pairs = before.init_containers.iter().flatten().zip(after.init_containers.iter().flatten());
    let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let mut plain = pairs.filter(|(old, _)| !is_sidecar(old));
    if plain.any(|(old, new)| old.resources != new.resources) {
        names.push(OF_INIT_CONTAINERS);
    }
    names
}

/// What is told of an update that needs features which the node does not declare.
pub(super) fn complaint(needed: &[&'static str], declared: Option<&[String]>) -> Option<String> {
    // With the gate NodeDeclaredFeatures off nothing is looked at.
    let declared = declared?;
    let has = |name: &str| declared.iter().any(|has| has == name);
    let missing: Vec<&str> = needed.iter().copied().filter(|name| !has(name)).collect();
    (!missing.is_empty()).then(|| {
        format!("Pod requires node features that are not available: {}", missing.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(pod: &Value, init: &Value, sidecar: &Value) -> PodSpec {
        let spec = json!({
            "resources": pod,
            "containers": [{"name": "app"}],
            "initContainers": [
                {"name": "i", "resources": init},
                {"name": "s", "restartPolicy": "Always", "resources": sidecar},
            ],
        });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn what_changes_need() {
        let (none, some) = (json!(null), json!({"limits": {"cpu": "1"}}));
        let before = spec(&none, &none, &none);
        for (after, expected) in [
            (spec(&none, &none, &none), vec![]),
            (spec(&none, &none, &some), vec![]),
            (spec(&some, &none, &none), vec![OF_PODS]),
            (spec(&none, &some, &none), vec![OF_INIT_CONTAINERS]),
            (spec(&some, &some, &some), vec![OF_PODS, OF_INIT_CONTAINERS]),
        ] {
            assert_eq!(needed(&before, &after), expected);
            assert_eq!(needed(&after, &before), expected);
        }
    }

    #[test]
    fn what_the_node_declares_is_no_complaint() {
        let both = [OF_PODS, OF_INIT_CONTAINERS];
        let text = |missing: &str| {
            Some(format!("Pod requires node features that are not available: {missing}"))
        };
        assert_eq!(complaint(&both, None), None);
        assert_eq!(complaint(&both, Some(&[])), text(&both.join(", ")));
        assert_eq!(complaint(&both, Some(&[OF_PODS.to_owned()])), text(OF_INIT_CONTAINERS));
        assert_eq!(complaint(&both, Some(&both.map(str::to_owned))), None);
        assert_eq!(complaint(&[], Some(&[])), None);
    }
}
