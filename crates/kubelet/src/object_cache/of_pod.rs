//! Which objects a pod's containers and images need. Volumes name their own. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use kubelet_model::{DesiredPod, ObjectKey, ObjectKind};

/// ConfigMaps and Secrets of variables, and Secrets that images are pulled with.
pub fn pod_objects(pod: &DesiredPod) -> BTreeSet<ObjectKey> {
    let spec = pod.spec();
    let mut keys = Keys { namespace: pod.namespace(), found: BTreeSet::new() };
    let init = spec.init_containers.iter().flatten();
    for container in spec.containers.iter().chain(init) {
        keys.of_container(&container.env, &container.env_from);
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        keys.of_container(&container.env, &container.env_from);
    }
    for secret in spec.image_pull_secrets.iter().flatten() {
        keys.add(ObjectKind::Secret, &secret.name);
    }
    keys.found
}

struct Keys<'a> {
    namespace: &'a str,
    found: BTreeSet<ObjectKey>,
}

impl Keys<'_> {
    fn add(&mut self, kind: ObjectKind, name: &str) {
        if !name.is_empty() {
            self.found.insert(ObjectKey::new(kind, self.namespace, name));
        }
    }

    fn of_container(&mut self, env: &Option<Vec<EnvVar>>, whole: &Option<Vec<EnvFromSource>>) {
        for source in env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(of) = &source.config_map_key_ref {
                self.add(ObjectKind::ConfigMap, &of.name);
            }
            if let Some(of) = &source.secret_key_ref {
                self.add(ObjectKind::Secret, &of.name);
            }
        }
        for source in whole.iter().flatten() {
            if let Some(of) = &source.config_map_ref {
                self.add(ObjectKind::ConfigMap, &of.name);
            }
            if let Some(of) = &source.secret_ref {
                self.add(ObjectKind::Secret, &of.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubelet_model::Source;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_that_names_one() {
        let from = |kind: &str, name: &str| json!({"name": "V", "valueFrom": {kind: {"name": name, "key": "k"}}});
        let pod = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
            "spec": {
                "initContainers": [{"name": "i", "env": [from("secretKeyRef", "s1")]}],
                "containers": [
                    {"name": "c", "env": [from("configMapKeyRef", "m1"), {"name": "X", "value": "y"}]},
                    {"name": "d", "envFrom": [{"configMapRef": {"name": "m2"}}, {"secretRef": {"name": "s2"}}]},
                ],
                "ephemeralContainers": [{"name": "e", "env": [from("secretKeyRef", "s3")]}],
                "imagePullSecrets": [{"name": "s4"}, {}],
            },
        });
        let pod = serde_json::from_value(pod).unwrap();
        let pod = DesiredPod::new(Source::Api, Arc::new(pod)).unwrap();
        let found: Vec<String> = pod_objects(&pod).iter().map(ToString::to_string).collect();
        let wanted = [
            "ConfigMap ns/m1",
            "ConfigMap ns/m2",
            "Secret ns/s1",
            "Secret ns/s2",
            "Secret ns/s3",
            "Secret ns/s4",
        ];
        assert_eq!(found, wanted);
    }
}
