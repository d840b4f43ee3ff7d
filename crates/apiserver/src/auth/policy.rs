//! RBAC: whether rules allow a request.
//!
//! Pure: a policy is made from the stored roles and bindings.
//! Upstream: plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/validation.

use std::collections::BTreeMap;

use serde_json::Value;

use super::User;
use crate::json;

/// What a request wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// For example `get`.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Resource; empty for requests of a path.
    pub resource: String,
    /// Part of it.
    pub subresource: String,
    /// Namespace; empty means all, or none.
    pub namespace: String,
    /// Name, if one is asked for.
    pub name: String,
    /// Path of a request that is for no resource.
    pub path: String,
}

impl Attributes {
    /// Why a user may not do this, in upstream's words.
    pub fn refusal(&self, user: &User) -> String {
        let (verb, name) = (&self.verb, &user.name);
        if self.resource.is_empty() {
            return format!("User {name:?} cannot {verb} path {:?}", self.path);
        }
        let resource = match self.subresource.as_str() {
            "" => self.resource.clone(),
            part => format!("{}/{part}", self.resource),
        };
        let scope = match self.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let group = &self.group;
        format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
    }
}

/// Whether a request is allowed, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is.
    pub allowed: bool,
    /// Why, for humans.
    pub reason: String,
}

/// The stored objects that a policy is made from.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) roles: Vec<Value>,
    pub(super) cluster_roles: Vec<Value>,
    pub(super) role_bindings: Vec<Value>,
    pub(super) cluster_role_bindings: Vec<Value>,
}

/// Who may do what.
#[derive(Debug, Default)]
pub(super) struct Policy {
    everywhere: Vec<Grant>,
    in_namespace: BTreeMap<String, Vec<Grant>>,
}

#[derive(Debug)]
struct Grant {
    /// What grants it, for humans.
    source: String,
    subjects: Vec<Value>,
    rules: Vec<Value>,
    namespace: String,
}

impl Policy {
    pub(super) fn new(objects: &Objects) -> Self {
        let mut policy = Self::default();
        for binding in &objects.cluster_role_bindings {
            policy.everywhere.push(grant(binding, objects));
        }
        for binding in &objects.role_bindings {
            let namespace = json::text(binding, "metadata.namespace").to_owned();
            policy.in_namespace.entry(namespace).or_default().push(grant(binding, objects));
        }
        policy
    }

    pub(super) fn decide(&self, user: &User, wanted: &Attributes) -> Decision {
        let local =
            self.in_namespace.get(&wanted.namespace).filter(|_| !wanted.resource.is_empty());
        let grants = self.everywhere.iter().chain(local.into_iter().flatten());
        for grant in grants {
            let subject = grant.subjects.iter().find(|s| is_meant(s, user, &grant.namespace));
            let Some(subject) = subject else { continue };
            if grant.rules.iter().any(|rule| allows(rule, wanted)) {
                let (kind, name) = (json::text(subject, "kind"), json::text(subject, "name"));
                let reason = format!("RBAC: allowed by {} to {kind} {name:?}", grant.source);
                return Decision { allowed: true, reason };
            }
        }
        Decision { allowed: false, reason: String::new() }
    }
}

fn grant(binding: &Value, objects: &Objects) -> Grant {
    let namespace = json::text(binding, "metadata.namespace").to_owned();
    let (kind, name) = (json::text(binding, "roleRef.kind"), json::text(binding, "roleRef.name"));
    let named = |role: &&Value| json::text(role, "metadata.name") == name;
    let role = match kind {
        "Role" => objects
            .roles
            .iter()
            .filter(|role| json::text(role, "metadata.namespace") == namespace)
            .find(named),
        _ => objects.cluster_roles.iter().find(named),
    };
    let own = json::text(binding, "metadata.name");
    let own = match namespace.as_str() {
        "" => format!("ClusterRoleBinding {own:?}"),
        namespace => format!("RoleBinding \"{own}/{namespace}\""),
    };
    Grant {
        source: format!("{own} of {kind} {name:?}"),
        subjects: json::items(binding, "subjects").to_vec(),
        rules: role.map(|role| json::items(role, "rules").to_vec()).unwrap_or_default(),
        namespace,
    }
}

fn is_meant(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = json::text(subject, "name");
    match json::text(subject, "kind") {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let own = json::text(subject, "namespace");
            let namespace = if own.is_empty() { namespace } else { own };
            user.name == super::jwt::subject(namespace, name)
        }
        _ => false,
    }
}

fn allows(rule: &Value, wanted: &Attributes) -> bool {
    let holds = |list: &str, value: &str| {
        json::texts(rule, list).any(|known| known == "*" || known == value)
    };
    if !holds("verbs", &wanted.verb) {
        return false;
    }
    if wanted.resource.is_empty() {
        return json::texts(rule, "nonResourceURLs").any(|known| match known.strip_suffix('*') {
            Some(prefix) => wanted.path.starts_with(prefix),
            None => wanted.path == known,
        });
    }
    let resource = match wanted.subresource.as_str() {
        "" => wanted.resource.clone(),
        part => format!("{}/{part}", wanted.resource),
    };
    let any_with_part = format!("*/{}", wanted.subresource);
    let resources = holds("resources", &resource)
        || (!wanted.subresource.is_empty()
            && json::texts(rule, "resources").any(|known| known == any_with_part));
    let mut names = json::texts(rule, "resourceNames").peekable();
    holds("apiGroups", &wanted.group)
        && resources
        && (names.peek().is_none() || names.any(|name| name == wanted.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy() -> Policy {
        let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
        Policy::new(&Objects {
            cluster_roles: vec![
                role(
                    "node",
                    json!([
                        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "patch"]},
                        {"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"], "verbs": ["get"]},
                        {"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]},
                    ]),
                ),
                role(
                    "scale",
                    json!([{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["*"]}]),
                ),
            ],
            roles: vec![json!({"metadata": {"name": "cm", "namespace": "a"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]})],
            cluster_role_bindings: vec![json!({"metadata": {"name": "nodes"},
                "roleRef": {"kind": "ClusterRole", "name": "node"},
                "subjects": [{"kind": "Group", "name": "system:nodes"}]})],
            role_bindings: vec![
                json!({"metadata": {"name": "b", "namespace": "a"},
                    "roleRef": {"kind": "Role", "name": "cm"},
                    "subjects": [{"kind": "ServiceAccount", "name": "app"}]}),
                json!({"metadata": {"name": "s", "namespace": "a"},
                    "roleRef": {"kind": "ClusterRole", "name": "scale"},
                    "subjects": [{"kind": "User", "name": "ann"}]}),
            ],
        })
    }

    #[test]
    fn rules_and_subjects() {
        let node = User::new("system:node:n1", ["system:nodes"]);
        let app = User::new("system:serviceaccount:a:app", []);
        let ann = User::new("ann", []);
        for (user, verb, resource, namespace, name, expected) in [
            (&node, "get", "pods", "x", "web", true),
            (&node, "patch", "pods/status", "x", "web", true),
            (&node, "delete", "pods", "x", "web", false),
            (&node, "get", "pods/log", "x", "web", false),
            (&node, "get", "nodes", "", "n1", true),
            (&node, "get", "nodes", "", "n2", false),
            (&node, "list", "nodes", "", "", false),
            (&app, "list", "configmaps", "a", "", true),
            (&app, "list", "configmaps", "b", "", false),
            (&app, "list", "configmaps", "", "", false),
            (&ann, "update", "deployments/scale", "a", "d", true),
            (&ann, "update", "deployments", "a", "d", false),
        ] {
            let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
            let wanted = Attributes {
                verb: verb.into(),
                resource: resource.into(),
                subresource: part.into(),
                namespace: namespace.into(),
                name: name.into(),
                ..Attributes::default()
            };
            let decision = policy().decide(user, &wanted);
            assert_eq!(decision.allowed, expected, "{} {wanted:?}", user.name);
        }
    }

    #[test]
    fn paths() {
        let node = User::new("x", ["system:nodes"]);
        let path = |path: &str| Attributes {
            verb: "get".into(),
            path: path.into(),
            ..Attributes::default()
        };
        assert!(policy().decide(&node, &path("/healthz/etcd")).allowed);
        assert!(!policy().decide(&node, &path("/version")).allowed);
        let refusal = path("/version").refusal(&node);
        assert_eq!(refusal, r#"User "x" cannot get path "/version""#);
    }
}
