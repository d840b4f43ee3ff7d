//! What a pod may learn about itself: fields and resources as text, in variables
//! and in files.
//!
//! Pure. Upstream: podFieldSelectorRuntimeValue in pkg/kubelet/kubelet_pods.go,
//! pkg/fieldpath, pkg/api/v1/resource.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceFieldSelector};
use kubelet_model::quantity::Quantity;
use kubelet_model::{DesiredPod, quote};

use crate::container_manager::allocatable::Allocatable;

/// The node's own disk.
const STORAGE: &str = "ephemeral-storage";

/// Facts about the node and the pod's place on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Addresses of the pod.
    pub(super) pod_ips: &'a [String],
    /// Addresses of the node, primary first.
    pub(super) node_ips: &'a [String],
    /// What the node gives to a container that nothing else limits.
    pub(super) allocatable: Allocatable,
}

/// The value of a field of the pod.
pub(super) fn field(pod: &DesiredPod, path: &str, place: &Place<'_>) -> Result<String, String> {
    let spec = pod.spec();
    let meta = &pod.pod().metadata;
    let ips = sorted(place.pod_ips, place.node_ips);
    Ok(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_string(),
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => node_ip(place)?.clone(),
        "status.hostIPs" => {
            node_ip(place)?;
            place.node_ips.join(",")
        }
        "status.podIP" => ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => ips.join(","),
        _ => {
            let (map, key) =
                subscript(path).ok_or_else(|| format!("unsupported fieldPath: {path}"))?;
            let entries = match map {
                "metadata.labels" => &meta.labels,
                "metadata.annotations" => &meta.annotations,
                _ => return Err(format!("fieldPath {path:?} does not support subscript")),
            };
            entries.as_ref().and_then(|entries| entries.get(key)).cloned().unwrap_or_default()
        }
    })
}

/// `a['b']` is `a` and `b`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

fn node_ip<'a>(place: &Place<'a>) -> Result<&'a String, String> {
    place
        .node_ips
        .first()
        .ok_or_else(|| "the node's address is not known; set --node-ip".to_owned())
}

/// One address of each family, that of the node's first address in front.
fn sorted(pod_ips: &[String], node_ips: &[String]) -> Vec<String> {
    let is_v6 = |ip: &&String| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    let v6_first = node_ips.first().as_ref().is_some_and(is_v6);
    let first_of = |v6: bool| pod_ips.iter().find(|ip| is_v6(ip) == v6).cloned();
    [v6_first, !v6_first].into_iter().filter_map(first_of).collect()
}

/// The value of a container's request or limit, in units of the divisor.
pub(super) fn resource(
    spec: &PodSpec,
    own: &Container,
    selector: &ResourceFieldSelector,
    place: &Place<'_>,
) -> Result<String, String> {
    let (container, defaulted) = match selector.container_name.as_deref().unwrap_or_default() {
        "" => (own, true),
        name => named(spec, name).ok_or_else(|| format!("container {name} not found"))?,
    };
    amount(container, selector, |name| defaulted.then(|| default_limit(spec, name, place)))
}

/// A field of the pod as the content of a file: as upstream, all labels or
/// annotations can be had there, and nothing that only a running pod has.
pub(crate) fn file_field(pod: &DesiredPod, path: &str) -> Result<String, String> {
    let meta = &pod.pod().metadata;
    let lines = |entries: &Option<BTreeMap<String, String>>| {
        let line = |(key, value): (&String, &String)| format!("{key}={}", quote::go(value));
        entries.iter().flatten().map(line).collect::<Vec<_>>().join("\n")
    };
    match path {
        "metadata.labels" => Ok(lines(&meta.labels)),
        "metadata.annotations" => Ok(lines(&meta.annotations)),
        _ if path.starts_with("metadata.") => {
            let allocatable = Allocatable::default();
            field(pod, path, &Place { pod_ips: &[], node_ips: &[], allocatable })
        }
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// A container's request or limit as the content of a file; a limit that is not
/// set is what the node gives.
pub(crate) fn file_resource(
    spec: &PodSpec,
    selector: &ResourceFieldSelector,
    allocatable: Allocatable,
) -> Result<String, String> {
    let name = selector.container_name.as_deref().unwrap_or_default();
    let (container, _) = named(spec, name).ok_or_else(|| format!("container {name} not found"))?;
    amount(container, selector, |name| match name {
        "cpu" => Some(allocatable.cpu_milli),
        "memory" => Some(allocatable.memory_bytes),
        STORAGE => Some(allocatable.storage_bytes),
        _ => None,
    })
}

/// A request or limit in units of the divisor; `default` is that of a limit.
fn amount(
    container: &Container,
    selector: &ResourceFieldSelector,
    default: impl FnOnce(&str) -> Option<i64>,
) -> Result<String, String> {
    let unsupported = || format!("unsupported container resource : {}", selector.resource);
    let (kind, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    if !matches!(name, "cpu" | "memory" | STORAGE) && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let map = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    let set = map.and_then(|map| map.get(name)).and_then(|text| Quantity::parse(&text.0));
    let scale = if name == "cpu" { Quantity::milli } else { Quantity::units };
    let value = match set.filter(|quantity| !quantity.is_zero()) {
        Some(quantity) => scale(quantity),
        None if kind == "limits" => default(name).unwrap_or(0),
        None => 0,
    };
    let divisor = selector.divisor.as_ref().and_then(|text| Quantity::parse(&text.0));
    let divisor = divisor.filter(|divisor| !divisor.is_zero() && !divisor.is_negative());
    let divisor = divisor.map_or(if name == "cpu" { 1_000 } else { 1 }, scale).max(1);
    let whole = value / divisor + i64::from(value % divisor > 0);
    Ok(whole.to_string())
}

/// What an unlimited container may use: what the pod may, else what the node gives.
fn default_limit(spec: &PodSpec, name: &str, place: &Place<'_>) -> i64 {
    let of_pod = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let of_pod = of_pod.and_then(|limits| limits.get(name));
    let of_pod = of_pod.and_then(|text| Quantity::parse(&text.0)).filter(|q| !q.is_zero());
    match (name, of_pod) {
        ("cpu", Some(limit)) => limit.milli(),
        ("cpu", None) => place.allocatable.cpu_milli,
        ("memory", Some(limit)) => limit.units(),
        ("memory", None) => place.allocatable.memory_bytes,
        (STORAGE, _) => place.allocatable.storage_bytes,
        _ => 0,
    }
}

/// A container by name, and whether its missing limits default to the node's.
fn named<'s>(spec: &'s PodSpec, name: &str) -> Option<(&'s Container, bool)> {
    let regular = spec.containers.iter().map(|container| (container, true));
    let init = spec.init_containers.iter().flatten().map(|container| (container, false));
    regular.chain(init).find(|(container, _)| container.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::pod_with;

    const NODE: Allocatable =
        Allocatable { cpu_milli: 3_500, memory_bytes: 1 << 30, storage_bytes: 5 << 30 };

    fn ips(list: &[&str]) -> Vec<String> {
        list.iter().map(|ip| (*ip).to_owned()).collect()
    }

    #[test]
    fn fields() {
        let pod = pod_with(
            r#","labels":{"app":"web"},"annotations":{"a/b":"c d"}"#,
            "",
            r#""nodeName":"n1""#,
        );
        let (pod_ips, node_ips) = (ips(&["10.0.0.2", "fd00::2"]), ips(&["192.0.2.1", "fd00::1"]));
        let place = Place { pod_ips: &pod_ips, node_ips: &node_ips, allocatable: NODE };
        for (path, expected) in [
            ("metadata.name", "web-node"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u1"),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['a/b']", "c d"),
            ("spec.nodeName", "n1"),
            ("spec.serviceAccountName", ""),
            ("status.hostIP", "192.0.2.1"),
            ("status.hostIPs", "192.0.2.1,fd00::1"),
            ("status.podIP", "10.0.0.2"),
            ("status.podIPs", "10.0.0.2,fd00::2"),
        ] {
            assert_eq!(field(&pod, path, &place).as_deref(), Ok(expected), "{path}");
        }
        assert!(field(&pod, "spec.priority", &place).is_err());
        assert!(field(&pod, "spec.x['y']", &place).is_err());
        let v6 = ips(&["fd00::1"]);
        let place = Place { node_ips: &v6, ..place };
        assert_eq!(field(&pod, "status.podIPs", &place).as_deref(), Ok("fd00::2,10.0.0.2"));
        let place = Place { node_ips: &[], ..place };
        assert!(field(&pod, "status.hostIP", &place).is_err());
    }

    #[test]
    fn resources() {
        let container = r#","resources":{"limits":{"cpu":"1500m","memory":"3Mi"},"requests":{"cpu":"1","hugepages-2Mi":"4Mi","ephemeral-storage":"2Gi"}}"#;
        let pod = pod_with("", container, r#""initContainers":[{"name":"i","image":"i"}]"#);
        let place = Place { pod_ips: &[], node_ips: &[], allocatable: NODE };
        let read = |of: &str, container: &str, divisor: &str| {
            let json = format!(
                r#"{{"resource":"{of}","containerName":"{container}","divisor":"{divisor}"}}"#
            );
            let selector = serde_json::from_str(&json).expect("a selector");
            resource(pod.spec(), &pod.spec().containers[0], &selector, &place)
        };
        for (of, container, divisor, expected) in [
            ("limits.cpu", "", "", "2"),
            ("limits.cpu", "", "1m", "1500"),
            ("limits.cpu", "app", "0", "2"),
            ("requests.cpu", "", "", "1"),
            ("limits.memory", "", "", "3145728"),
            ("limits.memory", "", "1Mi", "3"),
            ("limits.memory", "", "2Mi", "2"),
            ("requests.memory", "", "", "3145728"),
            ("requests.hugepages-2Mi", "", "1Mi", "4"),
            ("limits.cpu", "i", "", "0"),
            ("requests.ephemeral-storage", "", "1Mi", "2048"),
            ("limits.ephemeral-storage", "", "1Gi", "5"),
            ("limits.ephemeral-storage", "i", "", "0"),
        ] {
            let got = read(of, container, divisor);
            assert_eq!(got.as_deref(), Ok(expected), "{of} of {container:?} by {divisor:?}");
        }
        assert!(read("limits.gpu", "", "").is_err());
        assert!(read("limits.cpu", "none", "").is_err());
    }

    #[test]
    fn files() {
        let pod = pod_with(
            r#","labels":{"b":"2","a":"x"},"annotations":{"k":"say \"hi\"\n\u0001é"}"#,
            r#","resources":{"limits":{"cpu":"1500m"}}"#,
            "",
        );
        for (path, expected) in [
            ("metadata.name", "web-node"),
            ("metadata.uid", "u1"),
            ("metadata.labels", "a=\"x\"\nb=\"2\""),
            ("metadata.annotations", "k=\"say \\\"hi\\\"\\n\\x01é\""),
            ("metadata.labels['b']", "2"),
        ] {
            assert_eq!(file_field(&pod, path).as_deref(), Ok(expected), "{path}");
        }
        assert!(file_field(&pod, "status.podIP").is_err());
        let read = |of: &str, container: &str| {
            let json = format!(r#"{{"resource":"{of}","containerName":"{container}"}}"#);
            let selector = serde_json::from_str(&json).expect("a selector");
            file_resource(pod.spec(), &selector, NODE)
        };
        assert_eq!(read("limits.cpu", "app").as_deref(), Ok("2"));
        assert_eq!(read("limits.memory", "app").as_deref(), Ok("1073741824"));
        assert_eq!(read("requests.memory", "app").as_deref(), Ok("0"));
        assert_eq!(read("limits.ephemeral-storage", "app").as_deref(), Ok("5368709120"));
        assert_eq!(read("limits.cpu", "none"), Err("container none not found".to_owned()));
    }

    #[test]
    fn missing_limits_are_the_pods_then_what_the_node_gives() {
        let place = Place { pod_ips: &[], node_ips: &[], allocatable: NODE };
        let read = |pod: &DesiredPod, of: &str| {
            let selector = ResourceFieldSelector { resource: of.to_owned(), ..Default::default() };
            resource(pod.spec(), &pod.spec().containers[0], &selector, &place)
        };
        let plain = pod_with("", "", "");
        assert_eq!(read(&plain, "limits.cpu").as_deref(), Ok("4"), "rounded up");
        assert_eq!(read(&plain, "limits.memory").as_deref(), Ok("1073741824"));
        let limited = pod_with("", "", r#""resources":{"limits":{"cpu":"2","memory":"1Ki"}}"#);
        assert_eq!(read(&limited, "limits.cpu").as_deref(), Ok("2"));
        assert_eq!(read(&limited, "limits.memory").as_deref(), Ok("1024"));
    }
}
