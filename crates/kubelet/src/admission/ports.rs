//! Ports of the host that pods take. Pure.
//!
//! Upstream: HostPortInfo of kube-scheduler/framework, pkg/scheduler/util.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

use crate::container_manager::amounts::is_sidecar;

/// Stands for all addresses of the host.
const ANY: &str = "0.0.0.0";

/// Ports in use: protocol, number, address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HostPorts(BTreeSet<(String, i32, String)>);

impl HostPorts {
    /// Takes those of a pod.
    pub(super) fn add(&mut self, spec: &PodSpec) {
        self.0.extend(of_pod(spec));
    }

    /// Does the pod want one that is taken?
    pub(super) fn clash(&self, spec: &PodSpec) -> bool {
        let taken = |(protocol, port, ip): (String, i32, String)| {
            self.0.iter().any(|(used_protocol, used_port, used_ip)| {
                let same = *used_protocol == protocol && *used_port == port;
                same && (ip == ANY || used_ip == ANY || *used_ip == ip)
            })
        };
        of_pod(spec).any(taken)
    }
}

/// Of those containers that run for as long as the pod does.
fn of_pod(spec: &PodSpec) -> impl Iterator<Item = (String, i32, String)> {
    let sidecars = spec.init_containers.iter().flatten().filter(|one| is_sidecar(one));
    let ports = sidecars.chain(&spec.containers).flat_map(|one| one.ports.iter().flatten());
    ports.filter_map(|port: &ContainerPort| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let text = |text: &Option<String>, default: &str| {
            let text = text.as_deref().filter(|text| !text.is_empty());
            text.unwrap_or(default).to_owned()
        };
        Some((text(&port.protocol, "TCP"), number, text(&port.host_ip, ANY)))
    })
}
