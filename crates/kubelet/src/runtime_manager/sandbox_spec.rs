//! The sandbox configuration of a pod.
//!
//! Pure. Upstream: pkg/kubelet/kuberuntime/kuberuntime_sandbox.go.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::PodSpec;
use kubelet_model::DesiredPod;

use super::executor::PodIdentity;
use super::{hostname, log_paths, sandbox_resources, security, sysctl};
use crate::pleg::labels;
use crate::settings::Settings;

/// What a sandbox's configuration needs besides the pod.
pub(super) struct SandboxFacts<'a> {
    /// What the agent was told.
    pub(super) settings: &'a Settings,
    /// How the pod looks names up.
    pub(super) dns: v1::DnsConfig,
    /// Whose users the pod's are.
    pub(super) users: v1::UserNamespace,
}

/// What the runtime needs to make the pod's sandbox.
pub(super) fn sandbox_config(
    pod: &DesiredPod,
    attempt: u32,
    facts: SandboxFacts<'_>,
) -> Result<v1::PodSandboxConfig, String> {
    let SandboxFacts { settings, dns, users } = facts;
    let spec = pod.spec();
    let meta = &pod.pod().metadata;
    let identity = PodIdentity::of(pod);
    let mut labels: BTreeMap<String, String> = meta.labels.clone().unwrap_or_default();
    labels.extend(identity.labels());
    let hostname = if spec.host_network.unwrap_or(false) {
        String::new()
    } else {
        let name = hostname::of_pod(pod, &settings.cluster_domain);
        hostname::for_kernel(&name, spec.set_hostname_as_fqdn.unwrap_or(false))?
    };
    let log_directory = log_paths::pod_dir(&settings.pod_logs_dir, &identity);
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: identity.name.clone(),
            uid: identity.uid.to_string(),
            namespace: identity.namespace.clone(),
            attempt,
        }),
        hostname,
        log_directory: log_directory.to_string_lossy().into_owned(),
        dns_config: Some(dns),
        port_mappings: port_mappings(spec),
        labels,
        annotations: meta.annotations.clone().unwrap_or_default(),
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(security::of_sandbox(pod, namespaces(spec, users))),
            sysctls: sysctls(spec),
            overhead: Some(sandbox_resources::of_overhead(spec, &settings.resources)),
            resources: Some(sandbox_resources::of_containers(spec, &settings.resources)),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn sysctls(spec: &PodSpec) -> BTreeMap<String, String> {
    let sysctls = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    let sysctls = sysctls.into_iter().flatten();
    sysctls.map(|sysctl| (sysctl::with_dots(&sysctl.name), sysctl.value.clone())).collect()
}

/// The namespaces a pod shares with the node or among its containers.
fn namespaces(spec: &PodSpec, users: v1::UserNamespace) -> v1::NamespaceOption {
    use v1::NamespaceMode::{Container, Node, Pod};
    let node_or_pod = |node: Option<bool>| if node.unwrap_or(false) { Node } else { Pod };
    let pid = match (spec.host_pid.unwrap_or(false), spec.share_process_namespace.unwrap_or(false))
    {
        (true, _) => Node,
        (false, true) => Pod,
        (false, false) => Container,
    };
    v1::NamespaceOption {
        network: node_or_pod(spec.host_network).into(),
        ipc: node_or_pod(spec.host_ipc).into(),
        pid: pid.into(),
        userns_options: Some(users),
        ..Default::default()
    }
}

fn port_mappings(spec: &PodSpec) -> Vec<v1::PortMapping> {
    let ports = spec.containers.iter().flat_map(|c| c.ports.iter().flatten());
    ports
        .map(|port| v1::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => v1::Protocol::Udp,
                Some("SCTP") => v1::Protocol::Sctp,
                _ => v1::Protocol::Tcp,
            }
            .into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

impl PodIdentity {
    /// The labels that tie a runtime object to its pod.
    pub(super) fn labels(&self) -> [(String, String); 3] {
        [
            (labels::POD_NAME.to_owned(), self.name.clone()),
            (labels::POD_NAMESPACE.to_owned(), self.namespace.clone()),
            (labels::POD_UID.to_owned(), self.uid.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use kubelet_model::Source;

    use super::*;
    use crate::runtime_manager::user_namespace;

    fn pod(metadata: &str, spec: &str) -> DesiredPod {
        let json = format!(
            r#"{{"metadata":{{"name":"web-node","namespace":"ns","uid":"u1"{metadata}}},
                "spec":{{{spec}}}}}"#
        );
        let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
        kubelet_model::manifest::default_pod(&mut pod);
        DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
    }

    fn config_of(metadata: &str, spec: &str) -> Result<v1::PodSandboxConfig, String> {
        let settings = Settings { cluster_domain: "c.l".to_owned(), ..Settings::for_node("n") };
        let facts = SandboxFacts {
            settings: &settings,
            dns: v1::DnsConfig { servers: vec!["192.0.2.1".to_owned()], ..Default::default() },
            users: user_namespace::of_host(),
        };
        sandbox_config(&pod(metadata, spec), 3, facts)
    }

    fn config(metadata: &str, spec: &str) -> v1::PodSandboxConfig {
        config_of(metadata, spec).expect("a good pod")
    }

    fn text_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_plain_pod_to_the_letter() {
        let metadata =
            r#","labels":{"app":"web"},"annotations":{"kubernetes.io/config.hash":"u1","a":"b"}"#;
        let expected = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web-node".to_owned(),
                uid: "u1".to_owned(),
                namespace: "ns".to_owned(),
                attempt: 3,
            }),
            hostname: "web-node".to_owned(),
            log_directory: "/var/log/pods/ns_web-node_u1".to_owned(),
            labels: text_map(&[
                ("app", "web"),
                ("io.kubernetes.pod.name", "web-node"),
                ("io.kubernetes.pod.namespace", "ns"),
                ("io.kubernetes.pod.uid", "u1"),
            ]),
            annotations: text_map(&[("a", "b"), ("kubernetes.io/config.hash", "u1")]),
            dns_config: Some(v1::DnsConfig {
                servers: vec!["192.0.2.1".to_owned()],
                ..Default::default()
            }),
            linux: Some(v1::LinuxPodSandboxConfig {
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: v1::NamespaceMode::Pod.into(),
                        pid: v1::NamespaceMode::Container.into(),
                        ipc: v1::NamespaceMode::Pod.into(),
                        userns_options: Some(v1::UserNamespace {
                            mode: v1::NamespaceMode::Node.into(),
                            ..Default::default()
                        }),
                        ..Default::default()
                    }),
                    seccomp: Some(v1::SecurityProfile {
                        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                overhead: Some(v1::LinuxContainerResources::default()),
                resources: Some(v1::LinuxContainerResources {
                    cpu_shares: 2,
                    cpu_period: 100_000,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(config(metadata, ""), expected);
    }

    #[test]
    fn identity_overrides_labels_of_the_pod() {
        let config = config(r#","labels":{"io.kubernetes.pod.uid":"evil"}"#, "");
        assert_eq!(config.labels["io.kubernetes.pod.uid"], "u1");
    }

    #[test]
    fn namespaces_follow_the_spec() {
        let modes = |spec: &str| {
            let options = namespaces(pod("", spec).spec(), user_namespace::of_host());
            format!("{:?} {:?} {:?}", options.network(), options.ipc(), options.pid())
        };
        assert_eq!(modes(""), "Pod Pod Container");
        assert_eq!(modes(r#""hostNetwork":true"#), "Node Pod Container");
        assert_eq!(modes(r#""hostIPC":true"#), "Pod Node Container");
        assert_eq!(modes(r#""hostPID":true"#), "Pod Pod Node");
        assert_eq!(modes(r#""shareProcessNamespace":true"#), "Pod Pod Pod");
    }

    #[test]
    fn hostnames() {
        let name = |spec: &str| config("", spec).hostname;
        assert_eq!(name(""), "web-node");
        assert_eq!(name(r#""hostname":"db""#), "db");
        assert_eq!(name(r#""hostname":"""#), "web-node");
        assert_eq!(name(r#""hostNetwork":true,"hostname":"db""#), "");
        let full = r#""hostname":"db","subdomain":"s","setHostnameAsFQDN":true"#;
        assert_eq!(name(full), "db.s.ns.svc.c.l");
        let long =
            format!(r#""hostname":"{}","subdomain":"s","setHostnameAsFQDN":true"#, "x".repeat(60));
        assert!(config_of("", &long).is_err_and(|error| error.contains("is too long")));
    }

    #[test]
    fn sysctls_are_sent_with_dots() {
        let spec =
            r#""securityContext":{"sysctls":[{"name":"net/ipv4/tcp_syncookies","value":"0"}]}"#;
        let linux = config("", spec).linux.expect("linux");
        assert_eq!(linux.sysctls, text_map(&[("net.ipv4.tcp_syncookies", "0")]));
    }

    fn ports(spec: &str) -> Vec<String> {
        let containers = r#""containers":[
            {"name":"a","ports":[
                {"containerPort":80},
                {"containerPort":53,"protocol":"UDP","hostPort":53,"hostIP":"192.0.2.1"}]},
            {"name":"b"},
            {"name":"c","ports":[{"containerPort":9,"protocol":"SCTP"}]}]"#;
        let mappings = config("", &format!("{containers}{spec}")).port_mappings;
        let text = |m: &v1::PortMapping| {
            format!("{:?} {}:{}->{}", m.protocol(), m.host_ip, m.host_port, m.container_port)
        };
        mappings.iter().map(text).collect()
    }

    #[test]
    fn all_ports_are_sent_mapped_or_not() {
        assert_eq!(ports(""), ["Tcp :0->80", "Udp 192.0.2.1:53->53", "Sctp :0->9"]);
    }

    /// It is for the runtime to know that the node's network needs no mapping.
    #[test]
    fn a_host_network_pods_ports_are_sent_too() {
        assert_eq!(
            ports(r#","hostNetwork":true"#),
            ["Tcp :80->80", "Udp 192.0.2.1:53->53", "Sctp :9->9"]
        );
    }
}
