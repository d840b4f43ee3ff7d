//! Which sysctls a pod may set.
//!
//! Pure. Safe ones belong to a namespace of the pod and touch no other pod; the
//! node's owner may allow more. Upstream: pkg/kubelet/sysctl.

use k8s_openapi::api::core::v1::PodSpec;

/// Kernel versions since which these belong to a namespace.
const SAFE: &[(&str, (u32, u32))] = &[
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// Settings of the IPC namespace, besides `fs.mqueue.*`.
const IPC: &[&str] = &[
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// The kernel namespace a sysctl belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// The name with dots between its parts. Where slashes separate, dots are part
/// of a name, such as that of a network interface.
pub(super) fn with_dots(name: &str) -> String {
    if name.find(['.', '/']).is_none_or(|at| name[at..].starts_with('.')) {
        return name.to_owned();
    }
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// Why the pod's sysctls are refused; `None` if all are allowed.
pub(crate) fn forbidden(
    spec: &PodSpec,
    allowed_unsafe: &[String],
    kernel: (u32, u32),
) -> Option<String> {
    let sysctls = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    sysctls.into_iter().flatten().find_map(|sysctl| {
        let name = with_dots(&sysctl.name);
        let Some(namespace) = allowed(&name, allowed_unsafe, kernel) else {
            return Some(format!("forbidden sysctl: {name:?} not allowlisted"));
        };
        let with_host = |namespace| {
            Some(format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled"))
        };
        match namespace {
            Namespace::Ipc if spec.host_ipc == Some(true) => with_host("IPC"),
            Namespace::Net if spec.host_network == Some(true) => with_host("Net"),
            _ => None,
        }
    })
}

/// The namespace of an allowed sysctl.
fn allowed(name: &str, allowed_unsafe: &[String], kernel: (u32, u32)) -> Option<Namespace> {
    if SAFE.iter().any(|(safe, since)| *safe == name && kernel >= *since) {
        return namespace_of(name);
    }
    allowed_unsafe.iter().find_map(|pattern| {
        let pattern = with_dots(pattern);
        match pattern.split_once('*') {
            Some((prefix, _)) => namespace_of(prefix).filter(|_| name.starts_with(prefix)),
            None => namespace_of(name).filter(|_| pattern == name),
        }
    })
}

fn namespace_of(name: &str) -> Option<Namespace> {
    if IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

/// A pattern of the configuration that names no sysctl of a namespace.
pub(crate) fn unusable_pattern(patterns: &[String]) -> Option<&String> {
    patterns.iter().find(|pattern| {
        let pattern = with_dots(pattern);
        let name = pattern.split_once('*').map_or(pattern.as_str(), |(prefix, _)| prefix);
        namespace_of(name).is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::pod;

    fn check(name: &str, spec: &str, allowed: &[&str]) -> Option<String> {
        let pod = pod(&format!(
            r#""securityContext":{{"sysctls":[{{"name":"{name}","value":"1"}}]}}{spec}"#
        ));
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        forbidden(pod.spec(), &allowed, (4, 10))
    }

    #[test]
    fn names_are_written_with_dots() {
        for (name, expected) in [
            ("net.ipv4.conf.eth0/1.x", "net.ipv4.conf.eth0/1.x"),
            ("net/ipv4/conf/eth0.1/x", "net.ipv4.conf.eth0/1.x"),
            ("net/ipv4/tcp_syncookies", "net.ipv4.tcp_syncookies"),
            ("plain", "plain"),
        ] {
            assert_eq!(with_dots(name), expected);
        }
    }

    #[test]
    fn only_safe_and_allowed_ones_pass() {
        for (name, spec, allowed, refused) in [
            ("net.ipv4.tcp_syncookies", "", &[][..], None),
            ("net/ipv4/tcp_syncookies", "", &[], None),
            ("kernel.shm_rmid_forced", "", &[], None),
            // Of its namespace only since 4.15.
            ("net.ipv4.tcp_rmem", "", &[], Some("\"net.ipv4.tcp_rmem\" not allowlisted")),
            ("kernel.msgmax", "", &[], Some("\"kernel.msgmax\" not allowlisted")),
            ("kernel.msgmax", "", &["kernel.msg*"], None),
            ("kernel.shm_next_id", "", &["kernel.shm*"], None),
            ("net.core.somaxconn", "", &["net.core.*"], None),
            (
                "net.core.somaxconn",
                "",
                &["net.ipv4.*"],
                Some("\"net.core.somaxconn\" not allowlisted"),
            ),
            ("fs.mqueue.msg_max", "", &["fs.mqueue.*"], None),
            (
                "net.ipv4.tcp_syncookies",
                r#","hostNetwork":true"#,
                &[],
                Some("\"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"),
            ),
            (
                "kernel.shm_rmid_forced",
                r#","hostIPC":true"#,
                &[],
                Some("\"kernel.shm_rmid_forced\" not allowed with host IPC enabled"),
            ),
        ] {
            let expected = refused.map(|text| format!("forbidden sysctl: {text}"));
            assert_eq!(check(name, spec, allowed), expected, "{name} {spec} {allowed:?}");
        }
    }

    #[test]
    fn patterns_must_belong_to_a_namespace() {
        let list = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        assert_eq!(unusable_pattern(&list(&["net.*", "kernel.sem", "fs/mqueue/*"])), None);
        let bad = list(&["net.*", "vm.swappiness"]);
        assert_eq!(unusable_pattern(&bad).map(String::as_str), Some("vm.swappiness"));
    }
}
