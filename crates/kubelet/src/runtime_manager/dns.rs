//! How a pod looks names up.
//!
//! Pure: the node's resolver file comes in as text, warnings go out as data.
//! Upstream: pkg/kubelet/network/dns.

use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::{PodDNSConfig, PodDNSConfigOption};
use kubelet_model::DesiredPod;

use crate::settings::Settings;

/// Resolver files are this long at the most.
pub(crate) const RESOLV_CONF_BYTES_MAX: usize = 10 * 1024 * 1024;
const SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARS_MAX: usize = 2_048;
const SEARCH_DOMAIN_MAX: usize = 253;
/// Search domains that a pod gets besides its node's, where there is a cluster domain.
const CLUSTER_SEARCHES: usize = 3;

/// What a user should know of a pod's name resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// The pod wants the cluster's DNS and there is none.
    MissingClusterDns,
    /// Something did not fit.
    Trimmed(String),
}

/// The resolver settings of a pod. `host` is the node's resolver file, parsed.
pub(super) fn of_pod(
    pod: &DesiredPod,
    settings: &Settings,
    host: v1::DnsConfig,
) -> (v1::DnsConfig, Vec<Notice>) {
    let mut notices = Vec::new();
    let spec = pod.spec();
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let cluster = match policy {
        "None" | "Default" => false,
        "ClusterFirst" => !spec.host_network.unwrap_or(false),
        _ => true,
    };
    let mut config = if policy == "None" {
        v1::DnsConfig::default()
    } else if cluster && !settings.cluster_dns.is_empty() {
        of_cluster(pod, settings, host)
    } else {
        if cluster {
            notices.push(Notice::MissingClusterDns);
        }
        of_host(settings, host)
    };
    if let Some(own) = &spec.dns_config {
        append(&mut config, own);
    }
    fit(&mut config, &mut notices);
    (config, notices)
}

fn of_cluster(pod: &DesiredPod, settings: &Settings, host: v1::DnsConfig) -> v1::DnsConfig {
    let domain = &settings.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        let namespace = pod.namespace();
        searches.push(format!("{namespace}.svc.{domain}"));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    searches.extend(host.searches);
    if !domain.is_empty() {
        unique(&mut searches);
    }
    v1::DnsConfig {
        servers: settings.cluster_dns.clone(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

/// The node's own settings; without a resolver file, lookups end at home.
fn of_host(settings: &Settings, host: v1::DnsConfig) -> v1::DnsConfig {
    if settings.resolv_conf.is_some() {
        return host;
    }
    let loopback = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" };
    let mut servers: Vec<String> =
        settings.node_ips.iter().map(|ip| loopback(ip).to_owned()).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    v1::DnsConfig { servers, searches: vec![".".to_owned()], ..host }
}

fn append(config: &mut v1::DnsConfig, own: &PodDNSConfig) {
    config.servers.extend(own.nameservers.iter().flatten().cloned());
    unique(&mut config.servers);
    config.searches.extend(own.searches.iter().flatten().cloned());
    unique(&mut config.searches);
    for PodDNSConfigOption { name, value } in own.options.iter().flatten() {
        let name = name.as_deref().unwrap_or_default();
        let option = match value.as_deref() {
            None | Some("") => name.to_owned(),
            Some(value) => format!("{name}:{value}"),
        };
        set_option(&mut config.options, option);
    }
}

/// Adds an option, or replaces the one of the same name where it stands.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|known| name(known) == name(&option)) {
        Some(known) => *known = option,
        None => options.push(option),
    }
}

fn unique(list: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    list.retain(|item| seen.insert(item.clone()));
}

/// Cuts what resolvers would not read, or crash on.
fn fit(config: &mut v1::DnsConfig, notices: &mut Vec<Notice>) {
    if config.servers.len() > SERVERS_MAX {
        config.servers.truncate(SERVERS_MAX);
        notices.push(Notice::Trimmed(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
             nameserver line is: {}",
            config.servers.join(" ")
        )));
    }
    let before = config.searches.len();
    config.searches.truncate(SEARCHES_MAX);
    config.searches.retain(|domain| domain.len() <= SEARCH_DOMAIN_MAX);
    let length = |searches: &[String]| searches.iter().map(|s| s.len() + 1).sum::<usize>();
    while length(&config.searches) > SEARCH_CHARS_MAX + 1 {
        config.searches.pop();
    }
    if config.searches.len() < before {
        notices.push(Notice::Trimmed(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied \
             search line is: {}",
            config.searches.join(" ")
        )));
    }
}

/// Does the node's own resolver file say more than pods can be given? In upstream's
/// words, for an event about the node.
pub(crate) fn limits_problem(text: &str, path: &Path, settings: &Settings) -> Option<String> {
    let searches = match parse(text) {
        Ok(config) => config.searches,
        Err(problem) => return Some(problem),
    };
    let file = path.display();
    let of_cluster = if settings.cluster_domain.is_empty() { 0 } else { CLUSTER_SEARCHES };
    let count_max = SEARCHES_MAX - of_cluster;
    if searches.len() > count_max {
        Some(format!(
            "Resolv.conf file '{file}' contains search line consisting of more than {count_max} domains!"
        ))
    } else if searches.iter().any(|domain| domain.len() > SEARCH_DOMAIN_MAX) {
        Some(format!(
            "Resolv.conf file \"{file}\" contains a search path which length is more than allowed {SEARCH_DOMAIN_MAX} chars!"
        ))
    } else if searches.join(" ").len() > SEARCH_CHARS_MAX {
        Some(format!(
            "Resolv.conf file '{file}' contains search line which length is more than allowed {SEARCH_CHARS_MAX} chars!"
        ))
    } else {
        None
    }
}

/// Reads a resolver file. Servers add up, the last search line wins, options
/// of one name replace each other.
pub(super) fn parse(text: &str) -> Result<v1::DnsConfig, String> {
    let mut config = v1::DnsConfig::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => match words.next() {
                Some(server) => config.servers.push(server.to_owned()),
                None => return Err("nameserver list is empty".to_owned()),
            },
            Some("search") => {
                let domains = words.filter(|domain| *domain != ".");
                config.searches = domains
                    .map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned())
                    .collect();
            }
            Some("options") => {
                words.for_each(|option| set_option(&mut config.options, option.to_owned()));
            }
            _ => {}
        }
    }
    Ok(config)
}

#[cfg(test)]
#[path = "dns/tests.rs"]
mod tests;
