//! Names that objects may have.
//!
//! Pure. Upstream: apimachinery pkg/api/validation and pkg/util/validation.

use crate::error::Cause;
use crate::resources::Resource;

/// What is wrong with a name of a resource's object, if anything.
pub(super) fn check(resource: &Resource, name: &str) -> Option<Cause> {
    let complaint = match (resource.group, resource.plural) {
        ("rbac.authorization.k8s.io", _) => path_segment(name),
        // Names of bundles may hold colons: `example.com:foo`; those of requests capital
        // letters and underlines: `node-csr-...`.
        ("certificates.k8s.io", "clustertrustbundles" | "certificatesigningrequests") => {
            path_segment(name)
        }
        ("", "namespaces") => label(name),
        ("", "services") => label(name),
        _ => subdomain(name),
    }?;
    Some(Cause::invalid("metadata.name", name, complaint))
}

fn path_segment(name: &str) -> Option<&'static str> {
    match name {
        "." | ".." => Some("may not be '.' or '..'"),
        _ if name.contains(['/', '%']) => Some("may not contain '/' or '%'"),
        _ => None,
    }
}

fn label(name: &str) -> Option<&'static str> {
    (name.len() > 63 || !is_label(name)).then_some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
         and must start and end with an alphanumeric character, and be at most 63 of them",
    )
}

fn subdomain(name: &str) -> Option<&'static str> {
    (name.len() > 253 || !name.split('.').all(is_label)).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
         or '.', and must start and end with an alphanumeric character, and be at most 253 of them",
    )
}

fn is_label(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(plain) && name.ends_with(plain) && name.chars().all(|c| plain(c) || c == '-')
}
