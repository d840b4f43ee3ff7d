//! The host name a pod has, and the domain behind it.
//!
//! Pure. Upstream: GeneratePodHostNameAndDomain in pkg/kubelet/kubelet_pods.go,
//! GetNodenameForKernel in pkg/kubelet/util.

use kubelet_model::DesiredPod;

/// Longest host name that leaves room for the kernel's terminator.
const HOSTNAME_MAX: usize = 63;
/// Longest full name the kernel takes as its node name.
const FQDN_MAX: usize = 64;

/// A pod's name in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hostname {
    /// The host's part.
    pub(super) host: String,
    /// What follows the first dot; empty if nothing does.
    pub(super) domain: String,
}

/// The name a pod goes by.
pub(super) fn of_pod(pod: &DesiredPod, cluster_domain: &str) -> Hostname {
    let spec = pod.spec();
    let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if let Some(name) = given(&spec.hostname_override) {
        return Hostname { host: cut(&name), domain: String::new() };
    }
    let host = cut(&given(&spec.hostname).unwrap_or_else(|| pod.name().to_owned()));
    let domain = given(&spec.subdomain)
        .map(|sub| format!("{sub}.{}.svc.{cluster_domain}", pod.namespace()))
        .unwrap_or_default();
    Hostname { host, domain }
}

/// What the kernel of the pod is told; an error if it cannot hold it.
pub(super) fn for_kernel(name: &Hostname, as_fqdn: bool) -> Result<String, String> {
    if !as_fqdn || name.domain.is_empty() {
        return Ok(name.host.clone());
    }
    let fqdn = format!("{}.{}", name.host, name.domain);
    if fqdn.len() > FQDN_MAX {
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too \
             long ({FQDN_MAX} characters is the max, {} characters requested)",
            fqdn.len()
        ));
    }
    Ok(fqdn)
}

fn cut(name: &str) -> String {
    if name.len() <= HOSTNAME_MAX {
        return name.to_owned();
    }
    let cut: String = name.chars().take(HOSTNAME_MAX).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::pod;

    fn name(spec: &str) -> String {
        let name = of_pod(&pod(spec), "cluster.local");
        format!("{}|{}", name.host, name.domain)
    }

    #[test]
    fn names_follow_the_spec() {
        let long = format!(r#""hostname":"{}-.{}""#, "x".repeat(61), "y".repeat(10));
        for (spec, expected) in [
            ("", "web-node|"),
            (r#""hostname":"db""#, "db|"),
            (r#""hostname":"""#, "web-node|"),
            (r#""subdomain":"sub""#, "web-node|sub.ns.svc.cluster.local"),
            (r#""hostname":"db","subdomain":"sub""#, "db|sub.ns.svc.cluster.local"),
            (r#""hostname":"db","subdomain":"s","hostnameOverride":"a.b.c""#, "a.b.c|"),
            (&long, &format!("{}|", "x".repeat(61))),
        ] {
            assert_eq!(name(spec), expected, "{spec}");
        }
    }

    #[test]
    fn the_kernel_gets_a_full_name_only_if_asked_and_if_it_fits() {
        let short = of_pod(&pod(r#""hostname":"db","subdomain":"s""#), "c.l");
        assert_eq!(for_kernel(&short, false), Ok("db".to_owned()));
        assert_eq!(for_kernel(&short, true), Ok("db.s.ns.svc.c.l".to_owned()));
        let alone = of_pod(&pod(""), "c.l");
        assert_eq!(for_kernel(&alone, true), Ok("web-node".to_owned()));
        let domain = "d".repeat(61);
        let tight = Hostname { host: "ab".to_owned(), domain: domain.clone() };
        assert_eq!(for_kernel(&tight, true), Ok(format!("ab.{domain}")));
        let long = Hostname { host: "abc".to_owned(), domain };
        let error = for_kernel(&long, true).unwrap_err();
        assert!(error.ends_with("(64 characters is the max, 65 characters requested)"), "{error}");
    }
}
