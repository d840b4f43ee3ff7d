//! The sandbox configuration of a pod.

use std::collections::BTreeMap;
use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::PodSpec;
use kubelet_model::DesiredPod;

use super::executor::PodIdentity;
use super::log_paths;
use crate::pleg::labels;

/// Longest host name the kernel takes.
const HOSTNAME_MAX: usize = 63;

/// What the runtime needs to make the pod's sandbox.
pub(super) fn sandbox_config(pod: &DesiredPod, attempt: u32, logs: &Path) -> v1::PodSandboxConfig {
    let spec = pod.spec();
    let identity = PodIdentity::of(pod);
    let host_network = spec.host_network.unwrap_or(false);
    let mut labels: BTreeMap<String, String> =
        pod.pod().metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(identity.labels());
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: identity.name.clone(),
            uid: identity.uid.to_string(),
            namespace: identity.namespace.clone(),
            attempt,
        }),
        hostname: if host_network { String::new() } else { hostname(spec, &identity.name) },
        log_directory: log_paths::pod_dir(logs, &identity).to_string_lossy().into_owned(),
        port_mappings: if host_network { Vec::new() } else { port_mappings(spec) },
        labels,
        annotations: pod
            .pod()
            .metadata
            .annotations
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(spec)),
                seccomp: Some(v1::SecurityProfile {
                    profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The namespaces a pod shares with the node or among its containers.
pub(super) fn namespaces(spec: &PodSpec) -> v1::NamespaceOption {
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
        ..Default::default()
    }
}

fn hostname(spec: &PodSpec, pod_name: &str) -> String {
    let name = spec.hostname.as_deref().filter(|name| !name.is_empty()).unwrap_or(pod_name);
    let cut: String = name.chars().take(HOSTNAME_MAX).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
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
