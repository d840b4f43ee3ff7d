//! What a pod gets of its service account: a token, and secrets for pulls.
//!
//! Pure. Upstream: plugin/pkg/admission/serviceaccount.

use serde_json::{Value, json};

use super::pods::MIRROR;
use crate::json;

/// Where containers find the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a token lasts, as upstream asks for: an hour and a little.
const SECONDS: i64 = 3607;

/// The service account that a new pod is to be given something of, if any.
pub fn account_of(pod: &Value) -> Option<&str> {
    let mirror = json::at(pod, "metadata.annotations").get(MIRROR).is_some();
    (!mirror).then(|| json::text(pod, "spec.serviceAccountName"))
}

/// The pod with what its account gives it. `suffix` makes the volume's name its own.
pub fn with_account(pod: &Value, account: &Value, suffix: &str) -> Value {
    let mut pod = pod.clone();
    if json::is_empty_list(&pod, "spec.imagePullSecrets")
        && !json::is_empty_list(account, "imagePullSecrets")
    {
        json::set(&mut pod, "spec.imagePullSecrets", account["imagePullSecrets"].clone());
    }
    let wanted = json::at(&pod, "spec.automountServiceAccountToken")
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool());
    if wanted == Some(false) {
        return pod;
    }
    let volume = format!("kube-api-access-{suffix}");
    let mount = json!({"name": volume, "mountPath": MOUNT, "readOnly": true});
    let mut mounted = false;
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let taken = |mount: &Value| mount["mountPath"] == MOUNT;
            let mut mounts = json::items(container, "volumeMounts").to_vec();
            if !mounts.iter().any(taken) {
                mounts.push(mount.clone());
                json::set(container, "volumeMounts", mounts);
                mounted = true;
            }
        }
    }
    if mounted {
        let mut volumes = json::items(&pod, "spec.volumes").to_vec();
        volumes.push(json!({"name": volume, "projected": token_sources()}));
        json::set(&mut pod, "spec.volumes", volumes);
    }
    pod
}

fn token_sources() -> Value {
    let certificates =
        json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": SECONDS}},
        {"configMap": certificates},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_unless_somebody_objects() {
        let with = |pod_says: Value, account_says: Value, mounts: Value| {
            let pod = json!({"spec": {"automountServiceAccountToken": pod_says,
                "containers": [{"name": "a", "volumeMounts": mounts}]}});
            let account = json!({"automountServiceAccountToken": account_says});
            let pod = with_account(&pod, &account, "x");
            let mounts = json::items(&pod["spec"]["containers"][0], "volumeMounts").len();
            (json::items(&pod, "spec.volumes").len(), mounts)
        };
        for (pod, account, mounts, expected) in [
            (json!(null), json!(null), json!([]), (1, 1)),
            (json!(false), json!(true), json!([]), (0, 0)),
            (json!(true), json!(false), json!([]), (1, 1)),
            (json!(null), json!(false), json!([]), (0, 0)),
            (json!(null), json!(null), json!([{"mountPath": MOUNT}]), (0, 1)),
        ] {
            let shown = format!("{pod} {account} {mounts}");
            assert_eq!(with(pod, account, mounts), expected, "{shown}");
        }
    }

    #[test]
    fn secrets_for_pulls_come_from_the_account_unless_the_pod_has_its_own() {
        let account = json!({"imagePullSecrets": [{"name": "a"}]});
        let plain = with_account(&json!({"spec": {}}), &account, "x");
        assert_eq!(plain["spec"]["imagePullSecrets"], json!([{"name": "a"}]));
        let own = json!({"spec": {"imagePullSecrets": [{"name": "b"}]}});
        assert_eq!(
            with_account(&own, &account, "x")["spec"]["imagePullSecrets"],
            json!([{"name": "b"}])
        );
    }

    #[test]
    fn a_mirror_of_a_nodes_own_pod_gets_nothing() {
        let mirror = json!({"metadata": {"annotations": {MIRROR: "x"}}});
        assert_eq!(account_of(&mirror), None);
    }
}
