//! Syntax of label keys, label values and taints.
//!
//! Pure. Upstream: apimachinery/pkg/util/validation, pkg/util/taints.

const NAME_MAX: usize = 63;
const PREFIX_MAX: usize = 253;

fn is_name(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner) && bytes.len() <= NAME_MAX
}

fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= PREFIX_MAX && text.split('.').all(label)
}

/// What is wrong with a label key.
pub(crate) fn key_problem(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Some(
            "the part before / must be a DNS name in lower case of at most 253 characters",
        );
    }
    if !is_name(name) {
        return Some(
            "the name must be 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
        );
    }
    None
}

/// What is wrong with a label value.
pub(crate) fn value_problem(value: &str) -> Option<&'static str> {
    if value.is_empty() || is_name(value) {
        return None;
    }
    Some(
        "a value must be at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    )
}

/// What is wrong with a taint.
pub(crate) fn taint_problems(key: &str, value: &str, effect: &str) -> Vec<&'static str> {
    let mut problems: Vec<_> = key_problem(key).into_iter().chain(value_problem(value)).collect();
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        problems.push("the effect must be NoSchedule, PreferNoSchedule or NoExecute");
    }
    problems
}

/// Whether a label is in Kubernetes' own namespaces, where a node may not choose freely.
pub(crate) fn is_kubernetes(key: &str) -> bool {
    in_domain(key, "kubernetes.io") || in_domain(key, "k8s.io")
}

/// Whether a node may set that label of Kubernetes' own.
pub(crate) fn is_allowed_on_node(key: &str) -> bool {
    const ALLOWED: [&str; 11] = [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    ALLOWED.contains(&key)
        || in_domain(key, "kubelet.kubernetes.io")
        || in_domain(key, "node.kubernetes.io")
}

fn in_domain(key: &str, domain: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return false;
    };
    namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_syntax() {
        for good in ["a", "example.com/role", "a-b_c.d", "A1"] {
            assert_eq!(key_problem(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "a/b/c", "Example.com/role", "/x", "x/", "a b", &"x".repeat(64)]
        {
            assert!(key_problem(bad).is_some(), "{bad}");
        }
        assert_eq!(value_problem(""), None);
        assert!(value_problem("a b").is_some());
    }

    #[test]
    fn kubernetes_namespaces() {
        assert!(is_kubernetes("kubernetes.io/x") && is_kubernetes("a.k8s.io/x"));
        assert!(!is_kubernetes("notkubernetes.io/x") && !is_kubernetes("role"));
        assert!(
            is_allowed_on_node("node.kubernetes.io/role")
                && is_allowed_on_node("a.kubelet.kubernetes.io/b")
        );
        assert!(!is_allowed_on_node("node-role.kubernetes.io/control-plane"));
    }
}
