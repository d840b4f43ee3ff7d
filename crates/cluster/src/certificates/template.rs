//! What a certificate is wanted for: whose, and for which names. Pure data.
//!
//! Upstream: pkg/kubelet/certificate/kubelet.go (templates).

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::parse::Leaf;

/// The group of nodes.
const NODES: &str = "system:nodes";

/// What a certificate is wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Whose.
    pub common_name: String,
    /// The group they belong to.
    pub organization: String,
    /// Names of the server.
    pub dns_names: BTreeSet<String>,
    /// Addresses of the server.
    pub addresses: BTreeSet<IpAddr>,
}

impl Template {
    /// A node as a client of its API server.
    pub fn client(node: &str) -> Self {
        Self {
            common_name: format!("system:node:{node}"),
            organization: NODES.to_owned(),
            dns_names: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }

    /// A node as a server, by the addresses of its object: types and values. None
    /// without an IP address, unless `dns_only`.
    pub fn serving(node: &str, addresses: &[(&str, &str)], dns_only: bool) -> Option<Self> {
        let mut wanted = Self::client(node);
        for (kind, value) in addresses {
            let address = value.parse::<IpAddr>().ok();
            match (*kind, address) {
                ("Hostname" | "InternalIP" | "ExternalIP", Some(address)) => {
                    wanted.addresses.insert(address);
                }
                ("Hostname", None) | ("InternalDNS" | "ExternalDNS", _) if !value.is_empty() => {
                    wanted.dns_names.insert((*value).to_owned());
                }
                _ => {}
            }
        }
        let enough = !wanted.addresses.is_empty() || (dns_only && !wanted.dns_names.is_empty());
        enough.then_some(wanted)
    }

    /// What a certificate lacks of this; more than is wanted is no fault.
    pub fn missing_in(&self, leaf: &Leaf) -> Option<String> {
        if leaf.common_name != self.common_name {
            return Some(format!("it is of {:?}, not of {:?}", leaf.common_name, self.common_name));
        }
        if !leaf.organizations.contains(&self.organization) {
            return Some(format!("it lacks the group {}", self.organization));
        }
        if let Some(name) = self.dns_names.difference(&leaf.dns_names).next() {
            return Some(format!("it lacks the name {name}"));
        }
        let address = self.addresses.difference(&leaf.addresses).next();
        address.map(|address| format!("it lacks the address {address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::test_parts::issued;

    #[test]
    fn addresses_of_a_node_become_names_and_addresses() {
        type Case<'a> = (&'a [(&'a str, &'a str)], bool, Option<&'a str>);
        let cases: [Case<'_>; 6] = [
            (&[], true, None),
            (&[("Hostname", "n1")], false, None),
            (&[("Hostname", "n1")], true, Some("n1 |")),
            (&[("InternalIP", "10.0.0.1"), ("Hostname", "n1")], false, Some("n1 | 10.0.0.1")),
            (
                &[("ExternalDNS", "x"), ("InternalDNS", "i"), ("ExternalIP", "fd00::1")],
                false,
                Some("i x | fd00::1"),
            ),
            (
                &[("InternalIP", "odd"), ("Hostname", "10.0.0.2"), ("Other", "1.1.1.1")],
                false,
                Some("| 10.0.0.2"),
            ),
        ];
        for (addresses, dns_only, expected) in cases {
            let wanted = Template::serving("n1", addresses, dns_only).map(|wanted| {
                let names = wanted.dns_names.into_iter().collect::<Vec<_>>().join(" ");
                let addresses: Vec<_> = wanted.addresses.iter().map(ToString::to_string).collect();
                format!("{names} | {}", addresses.join(" ")).trim().to_owned()
            });
            assert_eq!(wanted.as_deref(), expected, "{addresses:?}");
        }
    }

    #[test]
    fn more_than_is_wanted_is_no_fault() {
        let of = |user: &str, names: &[&str]| {
            Leaf::parse(&issued(user, names, 0, 9).certificate).unwrap()
        };
        let addresses = [("InternalIP", "10.0.0.1"), ("Hostname", "n1")];
        let wanted = Template::serving("n1", &addresses, false).unwrap();
        let missing = |leaf| wanted.missing_in(&leaf).unwrap_or_default();
        assert_eq!(missing(of("system:node:n1", &["n1", "n2", "10.0.0.1", "10.0.0.2"])), "");
        assert!(missing(of("system:node:n2", &["n1", "10.0.0.1"])).contains("\"system:node:n2\""));
        assert!(missing(of("system:node:n1", &["10.0.0.1"])).contains("name n1"));
        assert!(missing(of("system:node:n1", &["n1"])).contains("address 10.0.0.1"));
    }
}
