//! Addresses of the node and of the pod. Pure.

use std::net::IpAddr;

use super::generate::Facts;

/// The most addresses a pod or its node has: one per family.
const ADDRESSES_MAX: usize = 2;

/// The node's addresses, primary first.
pub(super) fn host_ips(facts: &Facts<'_>) -> Vec<String> {
    facts.node_ips.iter().take(ADDRESSES_MAX).cloned().collect()
}

/// The pod's addresses, the node's primary family first.
pub(super) fn pod_ips(facts: &Facts<'_>) -> Vec<String> {
    let before = || {
        let ips = facts.before.and_then(|b| b.pod_ips.as_ref()).into_iter().flatten();
        ips.map(|ip| ip.ip.clone()).collect::<Vec<_>>()
    };
    if facts.pod.spec().host_network.unwrap_or(false) {
        return host_network_ips(before(), &host_ips(facts));
    }
    let seen = facts.seen.sandboxes.iter().find(|s| !s.ips.is_empty());
    // A pod that has lost its sandbox keeps its address until it has a new one.
    seen.map_or_else(before, |sandbox| one_per_family(&sandbox.ips, facts.node_ips))
}

/// Once set, the addresses stay; a second family may join them.
fn host_network_ips(mut ips: Vec<String>, host: &[String]) -> Vec<String> {
    if ips.is_empty() {
        ips.extend(host.first().cloned());
    }
    if let ([only], Some(second)) = (&ips[..], host.get(1))
        && family(only) != family(second)
    {
        ips.push(second.clone());
    }
    ips
}

/// The first address of the node's primary family, then the first of the other.
/// What is no address is left out.
fn one_per_family(ips: &[String], node: &[String]) -> Vec<String> {
    let primary = node.first().and_then(|ip| family(ip)).unwrap_or(Family::V4);
    let first = |wanted: bool| {
        let mut parsed = ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
        parsed.find(|ip| (of(ip) == primary) == wanted).map(|ip| ip.to_string())
    };
    first(true).into_iter().chain(first(false)).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

fn family(text: &str) -> Option<Family> {
    text.parse::<IpAddr>().ok().map(|ip| of(&ip))
}

fn of(ip: &IpAddr) -> Family {
    if ip.is_ipv4() { Family::V4 } else { Family::V6 }
}
