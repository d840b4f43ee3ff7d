//! The node's addresses: which of those there are it shows to others.
//!
//! Pure. Upstream: NodeAddress of pkg/kubelet/nodestatus/setters.go and validateNodeIP
//! of pkg/kubelet/kubelet_node_status.go.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::facts::Network;
use super::fields;
use super::settings::NodeSettings;

/// Tells an external cloud provider which address was asked for.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";

impl NodeSettings {
    /// Whether the node's name has to be looked up, and the default route.
    pub fn looks_up_name(&self) -> bool {
        specified(self.node_ips.first()).is_none()
            && sloppy_ip(&self.hostname).is_none()
            && !(self.external_cloud && self.node_ips.is_empty())
    }
}

/// Writes the addresses into a Node, and the annotation about them.
///
/// # Errors
/// Why they stay as they are.
pub(super) fn set(
    node: &mut Value,
    settings: &NodeSettings,
    network: &Network,
) -> Result<(), String> {
    let first = specified(settings.node_ips.first());
    let second = specified(settings.node_ips.get(1));
    for (ip, word) in [(first, "nodeIP"), (second, "secondaryNodeIP")] {
        if let Some(ip) = ip {
            check(ip, &network.interfaces)
                .map_err(|why| format!("failed to validate {word}: {why}"))?;
        }
    }
    annotate(node, settings.external_cloud, first, second);
    let has_addresses = !fields::list(node, "/status/addresses").is_empty();
    let mut chosen = Vec::new();
    if settings.external_cloud && has_addresses {
        return Ok(());
    }
    if !(settings.external_cloud && settings.node_ips.is_empty()) {
        chosen.push(match first {
            Some(ip) => ip,
            None => find(settings, network)?,
        });
        // One of two that is no address means that its family is preferred, no more.
        chosen.extend(first.and(second));
    }
    let mut addresses = Vec::new();
    for ip in chosen {
        addresses.push(json!({"type": "InternalIP", "address": ip.to_string()}));
    }
    addresses.push(json!({"type": "Hostname", "address": settings.hostname}));
    let status = fields::map(fields::as_map(node), "status");
    fields::put_list(status, "addresses", addresses);
    Ok(())
}

fn annotate(node: &mut Value, external: bool, first: Option<IpAddr>, second: Option<IpAddr>) {
    if let (true, Some(first)) = (external, first) {
        let mut provided = first.to_string();
        if let Some(second) = second {
            provided = format!("{provided},{second}");
        }
        let metadata = fields::map(fields::as_map(node), "metadata");
        fields::put_text(fields::map(metadata, "annotations"), PROVIDED, &provided);
    } else if let Some(Value::Object(annotations)) = node.pointer_mut("/metadata/annotations") {
        annotations.remove(PROVIDED);
    }
}

/// An address where none was asked for.
fn find(settings: &NodeSettings, network: &Network) -> Result<IpAddr, String> {
    if let Some(ip) = sloppy_ip(&settings.hostname) {
        return Ok(ip);
    }
    let prefers_v4 = settings.node_ips.first().is_none_or(|ip| ip.to_canonical().is_ipv4());
    let mut found = None;
    let mut why = None;
    for ip in &network.by_name {
        let ip = ip.to_canonical();
        match check(ip, &network.interfaces) {
            Ok(()) if ip.is_ipv4() == prefers_v4 => return Ok(ip),
            Ok(()) => found = found.or(Some(ip)),
            Err(error) => why = Some(error),
        }
    }
    if let Some(ip) = found {
        return Ok(ip);
    }
    let why = match &network.by_route {
        Some(Ok(ip)) => return Ok(ip.to_canonical()),
        Some(Err(error)) => error.clone(),
        None => why.unwrap_or_else(|| "no address was found".to_owned()),
    };
    Err(format!("can't get ip address of node {}. error: {why}", settings.name))
}

/// An address that is one: not that of every interface.
fn specified(ip: Option<&IpAddr>) -> Option<IpAddr> {
    ip.map(IpAddr::to_canonical).filter(|ip| !ip.is_unspecified())
}

/// Can others reach the node by this address?
fn check(ip: IpAddr, interfaces: &[IpAddr]) -> Result<(), String> {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let wrong = if ip.is_loopback() {
        "nodeIP can't be loopback address"
    } else if ip.is_multicast() {
        "nodeIP can't be a multicast address"
    } else if is_link_local {
        "nodeIP can't be a link-local unicast address"
    } else if ip.is_unspecified() {
        "nodeIP can't be an all zeros address"
    } else if interfaces.iter().any(|own| own.to_canonical() == ip) {
        return Ok(());
    } else {
        return Err(format!("node IP: \"{ip}\" not found in the host's network interfaces"));
    };
    Err(wrong.to_owned())
}

/// An address as upstream reads it: zeros may lead.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::test_parts::settings;

    fn ips(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|ip| ip.parse().expect("an address")).collect()
    }

    /// `given | external? | hostname | interfaces | by name | by route`.
    fn chosen(case: &str) -> String {
        let parts: Vec<&str> = case.split('|').map(str::trim).collect();
        let mut settings = settings();
        settings.node_ips = ips(parts[0]);
        settings.external_cloud = parts[1] == "external";
        settings.hostname = parts[2].to_owned();
        let by_route = match parts[5] {
            "" => None,
            ip => Some(ip.parse().map_err(|_| ip.to_owned())),
        };
        let network = Network { interfaces: ips(parts[3]), by_name: ips(parts[4]), by_route };
        let mut node = json!({"metadata": {"annotations": {PROVIDED: "old"}}});
        match set(&mut node, &settings, &network) {
            Err(why) => why,
            Ok(()) => {
                let mut said = Vec::new();
                for address in fields::list(&node, "/status/addresses") {
                    said.push(fields::text(address, "/address").to_owned());
                }
                if let Some(Value::String(ip)) = node["metadata"]["annotations"].get(PROVIDED) {
                    said.push(format!("({ip})"));
                }
                said.join(" ")
            }
        }
    }

    #[test]
    fn addresses_are_chosen_as_upstream_does() {
        let missing = "failed to validate nodeIP: node IP: \"10.0.0.1\" not found in the host's \
            network interfaces";
        let table = [
            ("10.0.0.1 | | h | 10.0.0.1 | | ", "10.0.0.1 h"),
            ("10.0.0.1 fd00::1 | | h | 10.0.0.1 fd00::1 | | ", "10.0.0.1 fd00::1 h"),
            ("10.0.0.1 | | h | 10.0.0.2 | | ", missing),
            (
                "127.0.0.1 | | h | 127.0.0.1 | | ",
                "failed to validate nodeIP: nodeIP can't be loopback address",
            ),
            (
                "10.0.0.1 ff02::1 | | h | 10.0.0.1 | | ",
                "failed to validate secondaryNodeIP: nodeIP can't be a multicast address",
            ),
            (
                "fe80::1 | | h | fe80::1 | | ",
                "failed to validate nodeIP: nodeIP can't be a link-local unicast address",
            ),
            (" | | 010.0.0.7 | | | ", "10.0.0.7 010.0.0.7"),
            (" | | h | 10.0.0.1 fd00::1 | fd00::1 10.0.0.1 | ", "10.0.0.1 h"),
            (":: | | h | 10.0.0.1 fd00::1 | 10.0.0.1 fd00::1 | ", "fd00::1 h"),
            (" | | h | fd00::1 | fd00::1 10.0.0.1 | 10.0.0.9", "fd00::1 h"),
            (" | | h | 10.0.0.1 | 127.0.1.1 | 10.0.0.9", "10.0.0.9 h"),
            (" | | h | | | no route", "can't get ip address of node n1. error: no route"),
            (
                " | | h | | 127.0.1.1 | ",
                "can't get ip address of node n1. error: nodeIP can't be loopback address",
            ),
            ("::ffff:10.0.0.1 | | h | 10.0.0.1 | | ", "10.0.0.1 h"),
            (" | external | h | | | 10.0.0.9", "h"),
            ("0.0.0.0 | external | h | | | 10.0.0.9", "10.0.0.9 h"),
            ("10.0.0.1 | external | h | 10.0.0.1 | | ", "10.0.0.1 h (10.0.0.1)"),
            (
                "10.0.0.1 fd00::1 | external | h | 10.0.0.1 fd00::1 | | ",
                "10.0.0.1 fd00::1 h (10.0.0.1,fd00::1)",
            ),
        ];
        for (case, expected) in table {
            assert_eq!(chosen(case), expected, "{case}");
        }
    }

    #[test]
    fn what_a_cloud_has_written_stays() {
        let mut settings = settings();
        (settings.external_cloud, settings.node_ips) = (true, Vec::new());
        let cloud = json!([{"type": "ExternalIP", "address": "1.2.3.4"}]);
        let mut node = json!({"status": {"addresses": cloud}});
        set(&mut node, &settings, &Network::default()).expect("nothing to do");
        assert_eq!(node, json!({"status": {"addresses": cloud}}));
    }

    #[test]
    fn names_are_looked_up_only_if_need_be() {
        let mut settings = settings();
        settings.node_ips = Vec::new();
        assert!(settings.looks_up_name());
        settings.external_cloud = true;
        assert!(!settings.looks_up_name());
        settings.node_ips = ips("0.0.0.0");
        assert!(settings.looks_up_name());
        settings.hostname = "10.0.0.1".to_owned();
        assert!(!settings.looks_up_name());
        (settings.hostname, settings.node_ips) = ("h".to_owned(), ips("10.0.0.1"));
        assert!(!settings.looks_up_name());
    }
}
