//! Names and name resolution: DNS settings, host aliases, host names.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};

use super::super::problem::{Field, Report, quote};
use super::{given, names, one_of};

/// Most name servers, as resolvers read no more.
const NAMESERVERS_MAX: usize = 3;
/// Most search domains.
const SEARCHES_MAX: usize = 32;
/// Most characters of the search list, with separators.
const SEARCH_CHARS_MAX: usize = 2_048;

pub(super) fn check(spec: &PodSpec, field: &Field, report: &mut Report) {
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    one_of(&spec.dns_policy, &policies, &field.key("dnsPolicy"), report);
    let config = field.key("dnsConfig");
    if let Some(dns) = &spec.dns_config {
        check_config(dns, &config, report);
    }
    let servers = spec.dns_config.as_ref().and_then(|config| config.nameservers.as_ref());
    if spec.dns_policy.as_deref() == Some("None") && servers.is_none_or(Vec::is_empty) {
        report.add(&config.key("nameservers"), "needs at least one when dnsPolicy is None");
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let field = field.key("hostAliases").index(index);
        check_ip(&alias.ip, &field.key("ip"), report);
        for (index, name) in alias.hostnames.iter().flatten().enumerate() {
            report.check(&field.key("hostnames").index(index), names::dns_subdomain(name));
        }
    }
    for (key, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(value) = given(value) {
            report.check(&field.key(key), names::dns_label(value));
        }
    }
    if let Some(name) = given(&spec.hostname_override) {
        let field = field.key("hostnameOverride");
        report.check(&field, names::dns_subdomain(name));
        if name.len() > 64 {
            report.add(&field, "must be at most 64 characters, as the kernel stores no more");
        }
        if spec.host_network == Some(true) || spec.set_hostname_as_fqdn == Some(true) {
            report.add(&field, "cannot be set with hostNetwork or setHostnameAsFQDN");
        }
    }
}

fn check_config(config: &PodDNSConfig, field: &Field, report: &mut Report) {
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if servers.len() > NAMESERVERS_MAX {
        let message = format!("at most {NAMESERVERS_MAX} are allowed");
        report.add(&field.key("nameservers"), message);
    }
    for (index, server) in servers.iter().enumerate() {
        check_ip(server, &field.key("nameservers").index(index), report);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    if searches.len() > SEARCHES_MAX {
        let message = format!("at most {SEARCHES_MAX} are allowed");
        report.add(&field.key("searches"), message);
    }
    let characters: usize = searches.iter().map(|search| search.len() + 1).sum();
    if characters.saturating_sub(1) > SEARCH_CHARS_MAX {
        let message = format!("at most {SEARCH_CHARS_MAX} characters in total are allowed");
        report.add(&field.key("searches"), message);
    }
    for (index, search) in searches.iter().enumerate() {
        report.check(&field.key("searches").index(index), names::search_domain(search));
    }
    for (index, option) in config.options.iter().flatten().enumerate() {
        if given(&option.name).is_none() {
            report.add(&field.key("options").index(index).key("name"), "missing");
        }
    }
}

fn check_ip(text: &str, field: &Field, report: &mut Report) {
    if text.parse::<IpAddr>().is_err() {
        report.add(field, format!("{} is not an IP address", quote(text)));
    }
}
