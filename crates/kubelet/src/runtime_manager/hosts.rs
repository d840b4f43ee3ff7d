//! What a container finds in /etc/hosts.
//!
//! Pure: the content only; `pod_files` writes it. Upstream: ensureHostsFile in
//! pkg/kubelet/kubelet_pods.go.

use std::fmt::Write;

use k8s_openapi::api::core::v1::HostAlias;

use super::hostname::Hostname;

/// The file of a pod with a network of its own.
pub(super) fn managed(ips: &[String], name: &Hostname, aliases: &[HostAlias]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    let Hostname { host, domain } = name;
    for ip in ips {
        // Writing to a String cannot fail.
        let _ = if domain.is_empty() {
            writeln!(text, "{ip}\t{host}")
        } else {
            writeln!(text, "{ip}\t{host}.{domain}\t{host}")
        };
    }
    push_aliases(&mut text, aliases);
    text
}

/// The file of a pod on the node's network: the node's own, and the aliases.
pub(super) fn of_node(node_file: &[u8], aliases: &[HostAlias]) -> Vec<u8> {
    let mut content = b"# Kubernetes-managed hosts file (host network).\n".to_vec();
    content.extend_from_slice(node_file);
    let mut text = String::new();
    push_aliases(&mut text, aliases);
    content.extend_from_slice(text.as_bytes());
    content
}

fn push_aliases(text: &mut String, aliases: &[HostAlias]) {
    if aliases.is_empty() {
        return;
    }
    text.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}\t{names}", alias.ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
        fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\n\
        fe00::2\tip6-allrouters\n";

    fn alias(ip: &str, names: &[&str]) -> HostAlias {
        let hostnames = Some(names.iter().map(|name| (*name).to_owned()).collect());
        HostAlias { ip: ip.to_owned(), hostnames }
    }

    fn named(domain: &str) -> Hostname {
        Hostname { host: "web".to_owned(), domain: domain.to_owned() }
    }

    #[test]
    fn a_pods_own_file() {
        let ips = ["10.0.0.2".to_owned(), "fd00::2".to_owned()];
        let header = format!("# Kubernetes-managed hosts file.\n{LOCAL}");
        assert_eq!(
            managed(&ips, &named(""), &[]),
            format!("{header}10.0.0.2\tweb\nfd00::2\tweb\n")
        );
        let aliases = [alias("1.2.3.4", &["a", "b"]), alias("::5", &["c"])];
        assert_eq!(
            managed(&ips[..1], &named("s.ns.svc.c.l"), &aliases),
            format!(
                "{header}10.0.0.2\tweb.s.ns.svc.c.l\tweb\n\n# Entries added by HostAliases.\n\
                 1.2.3.4\ta\tb\n::5\tc\n"
            )
        );
    }

    #[test]
    fn the_nodes_file_with_aliases() {
        let header = "# Kubernetes-managed hosts file (host network).\n";
        let plain = of_node(b"127.0.0.1 localhost\n", &[]);
        assert_eq!(plain, format!("{header}127.0.0.1 localhost\n").into_bytes());
        let more = of_node(b"x\n", &[alias("1.2.3.4", &["a"])]);
        let expected = format!("{header}x\n\n# Entries added by HostAliases.\n1.2.3.4\ta\n");
        assert_eq!(more, expected.into_bytes());
    }
}
