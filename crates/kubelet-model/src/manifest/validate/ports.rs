//! Ports: ranges, names, and host ports that two containers claim.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

use super::super::problem::{Field, Report, quote};
use super::{given, names, one_of, unique};

pub(super) fn check(ports: &Option<Vec<ContainerPort>>, field: &Field, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().flatten().enumerate() {
        let field = field.index(index);
        if let Some(name) = given(&port.name) {
            report.check(&field.key("name"), names::port_name(name));
            unique(&mut seen, name, &field.key("name"), report);
        }
        report.check(&field.key("containerPort"), names::port_number(port.container_port));
        if let Some(host) = port.host_port.filter(|port| *port != 0) {
            report.check(&field.key("hostPort"), names::port_number(host));
        }
        one_of(&port.protocol, &["TCP", "UDP", "SCTP"], &field.key("protocol"), report);
        if let Some(ip) = given(&port.host_ip)
            && ip.parse::<std::net::IpAddr>().is_err()
        {
            let message = format!("{} is not an IP address", quote(ip));
            report.add(&field.key("hostIP"), message);
        }
    }
}

/// Host ports claimed twice, and container ports that differ from host ports on
/// the host's network.
pub(super) fn check_conflicts(spec: &PodSpec, field: &Field, report: &mut Report) {
    let mut claimed = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let field = field.key("containers").index(index).key("ports");
        check_claims(&container.ports, &mut claimed, &field, report);
        check_host_network(spec, &container.ports, &field, report);
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let field = field.key("initContainers").index(index).key("ports");
        // Init containers run one after the other.
        check_claims(&container.ports, &mut BTreeSet::new(), &field, report);
        check_host_network(spec, &container.ports, &field, report);
    }
}

fn check_claims<'p>(
    ports: &'p Option<Vec<ContainerPort>>,
    claimed: &mut BTreeSet<(&'p str, &'p str, i32)>,
    field: &Field,
    report: &mut Report,
) {
    for (index, port) in ports.iter().flatten().enumerate() {
        let Some(host) = port.host_port.filter(|port| *port != 0) else {
            continue;
        };
        let protocol = given(&port.protocol).unwrap_or("TCP");
        let ip = given(&port.host_ip).unwrap_or_default();
        if !claimed.insert((protocol, ip, host)) {
            let message = format!("{protocol} port {host} is claimed more than once");
            report.add(&field.index(index).key("hostPort"), message);
        }
    }
}

fn check_host_network(
    spec: &PodSpec,
    ports: &Option<Vec<ContainerPort>>,
    field: &Field,
    report: &mut Report,
) {
    if spec.host_network != Some(true) {
        return;
    }
    for (index, port) in ports.iter().flatten().enumerate() {
        if port.host_port != Some(port.container_port) {
            let message = "must equal hostPort when hostNetwork is true";
            report.add(&field.index(index).key("containerPort"), message);
        }
    }
}
