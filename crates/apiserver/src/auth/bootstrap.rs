//! Roles and bindings that every cluster starts with.
//!
//! Pure; data. They are stored like any other object and may be changed. The roles
//! of nodes are bound to nobody: upstream's Node authorizer, which is not here, takes
//! the place of the binding, and whoever runs the server binds them as it likes.
//! Upstream: plugin/pkg/auth/authorizer/rbac/bootstrappolicy.

use serde_json::{Value, json};

use super::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};

/// Cluster roles and their bindings.
pub fn bootstrap_objects() -> Vec<Value> {
    let mut objects = Vec::new();
    for (name, groups, rules) in [
        (
            "cluster-admin",
            vec![MASTERS],
            json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]),
        ),
        (
            "system:discovery",
            vec![AUTHENTICATED],
            json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez",
                "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]),
        ),
        (
            "system:basic-user",
            vec![AUTHENTICATED],
            json!([
                {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
                 "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                {"apiGroups": ["authentication.k8s.io"], "verbs": ["create"],
                 "resources": ["selfsubjectreviews"]},
            ]),
        ),
        (
            "system:public-info-viewer",
            vec![AUTHENTICATED, UNAUTHENTICATED],
            json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
                "verbs": ["get"]}]),
        ),
        (
            "system:service-account-issuer-discovery",
            vec!["system:serviceaccounts"],
            json!([{"nonResourceURLs": ["/.well-known/openid-configuration",
                "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"],
                "verbs": ["get"]}]),
        ),
    ] {
        objects.push(object("ClusterRole", name, json!({"rules": rules})));
        let subjects: Vec<Value> = groups
            .iter()
            .map(|group| json!({"kind": "Group", "name": group, "apiGroup": GROUP}))
            .collect();
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        let binding = json!({"roleRef": role, "subjects": subjects});
        objects.push(object("ClusterRoleBinding", name, binding));
    }
    for (name, rules) in node_roles() {
        objects.push(object("ClusterRole", name, json!({"rules": rules})));
    }
    objects
}

/// What nodes, and those who are to become nodes, need.
fn node_roles() -> Vec<(&'static str, Value)> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let read = &["get", "list", "watch"][..];
    let request = &["create", "get", "list", "watch"][..];
    let certificates = "certificates.k8s.io";
    let requests = &["certificatesigningrequests"][..];
    let node = json!([
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule(
            "authorization.k8s.io",
            &["subjectaccessreviews", "localsubjectaccessreviews"],
            &["create"]
        ),
        rule("", &["services", "pods", "secrets", "configmaps"], read),
        rule("", &["nodes"], &["create", "get", "list", "watch", "update", "patch"]),
        rule("", &["nodes/status", "pods/status"], &["update", "patch"]),
        rule("", &["events"], &["create", "update", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "update", "patch"]),
        rule("", &["pods"], &["create", "delete"]),
        rule("", &["pods/eviction", "serviceaccounts/token"], &["create"]),
        rule(
            "",
            &["persistentvolumeclaims", "persistentvolumes", "endpoints", "serviceaccounts"],
            &["get"]
        ),
        rule("", &["persistentvolumeclaims/status"], &["get", "update", "patch"]),
        rule(certificates, requests, request),
        rule(certificates, &["clustertrustbundles"], read),
        rule(certificates, &["podcertificaterequests"], request),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch", "delete"]),
        rule("storage.k8s.io", &["volumeattachments"], &["get"]),
        rule("storage.k8s.io", &["csidrivers"], read),
        rule("storage.k8s.io", &["csinodes"], &["get", "create", "update", "patch", "delete"]),
        rule("node.k8s.io", &["runtimeclasses"], read),
    ]);
    let approved = |part: &str| json!([rule(certificates, &[part], &["create"])]);
    vec![
        ("system:node", node),
        ("system:node-bootstrapper", json!([rule(certificates, requests, request)])),
        (
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            approved("certificatesigningrequests/nodeclient"),
        ),
        (
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            approved("certificatesigningrequests/selfnodeclient"),
        ),
    ]
}

const GROUP: &str = "rbac.authorization.k8s.io";

fn object(kind: &str, name: &str, fields: Value) -> Value {
    let mut object = fields;
    object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    object
}
