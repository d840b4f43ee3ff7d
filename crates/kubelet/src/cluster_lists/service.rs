//! Pure: the variables by which containers find services.
//!
//! Upstream: getServiceEnvVarMap in pkg/kubelet/kubelet_pods.go, pkg/kubelet/envvars.

use std::collections::BTreeMap;

use serde_json::Value;

use super::list::Kept;

/// Pods of every namespace are told of this one: it is the API server.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// A service that has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    ip: String,
    ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Port {
    name: String,
    protocol: String,
    port: u16,
}

/// Nothing of a service without an address or without ports.
pub(super) fn read(service: &Value) -> Option<Service> {
    let spec = &service["spec"];
    let ip = spec["clusterIP"].as_str().filter(|ip| !ip.is_empty() && *ip != "None")?;
    let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| {
        Some(Port {
            name: port["name"].as_str().unwrap_or_default().to_owned(),
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned(),
            port: u16::try_from(port["port"].as_u64()?).ok()?,
        })
    });
    let service = Service { ip: ip.to_owned(), ports: ports.collect() };
    (!service.ports.is_empty()).then_some(service)
}

/// The variables for a pod: those of the API server's service, and, with `links`, of the
/// services of its namespace, which come first where both have the name.
pub(super) fn variables(
    services: &Kept<Service>,
    namespace: &str,
    links: bool,
) -> Vec<(String, String)> {
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    let master = (MASTER.0.to_owned(), MASTER.1.to_owned());
    if let Some(service) = services.get(&master) {
        chosen.insert(MASTER.1, service);
    }
    if links {
        let first = (namespace.to_owned(), String::new());
        let own = services.range(first..).take_while(|((of, _), _)| of == namespace);
        chosen.extend(own.map(|((_, name), service)| (name.as_str(), service)));
    }
    let mut all = BTreeMap::new();
    for (name, service) in chosen {
        all.extend(of_service(name, service));
    }
    all.into_iter().collect()
}

fn of_service(name: &str, Service { ip, ports }: &Service) -> Vec<(String, String)> {
    let prefix = variable_name(name);
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.clone() };
    let mut all = vec![(format!("{prefix}_SERVICE_HOST"), ip.clone())];
    for (at, Port { name, protocol, port }) in ports.iter().enumerate() {
        let lower = protocol.to_lowercase();
        let url = format!("{lower}://{host}:{port}");
        if at == 0 {
            all.push((format!("{prefix}_SERVICE_PORT"), port.to_string()));
            all.push((format!("{prefix}_PORT"), url.clone()));
        }
        if !name.is_empty() {
            let name = variable_name(name);
            all.push((format!("{prefix}_SERVICE_PORT_{name}"), port.to_string()));
        }
        let of_port = format!("{prefix}_PORT_{port}_{}", protocol.to_uppercase());
        all.push((format!("{of_port}_PROTO"), lower));
        all.push((format!("{of_port}_PORT"), port.to_string()));
        all.push((format!("{of_port}_ADDR"), ip.clone()));
        all.push((of_port, url));
    }
    all
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn services() -> Kept<Service> {
        let service = |ip: &str, ports: Value| json!({"spec": {"clusterIP": ip, "ports": ports}});
        let one = |port: u16| json!([{"port": port}]);
        let all = [
            ("default", "kubernetes", service("10.0.0.1", json!([{"name": "https", "port": 443}]))),
            ("default", "other", service("10.0.0.2", one(80))),
            (
                "ns",
                "my-db",
                service(
                    "fd00::1",
                    json!([
                        {"name": "sql", "port": 5432, "protocol": "TCP"},
                        {"name": "gossip-x", "port": 53, "protocol": "UDP"},
                    ]),
                ),
            ),
            ("ns", "headless", service("None", one(80))),
            ("ns", "outside", service("", one(80))),
            ("ns", "portless", service("10.0.0.3", json!([]))),
            ("ns2", "next", service("10.0.0.4", one(80))),
        ];
        let read = |(namespace, name, object): &(&str, &str, Value)| {
            Some(((str::to_owned(namespace), str::to_owned(name)), read(object)?))
        };
        all.iter().filter_map(read).collect()
    }

    fn text(namespace: &str, links: bool) -> Vec<String> {
        let all = variables(&services(), namespace, links);
        all.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    const KUBERNETES: [&str; 8] = [
        "KUBERNETES_PORT=tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1",
        "KUBERNETES_PORT_443_TCP_PORT=443",
        "KUBERNETES_PORT_443_TCP_PROTO=tcp",
        "KUBERNETES_SERVICE_HOST=10.0.0.1",
        "KUBERNETES_SERVICE_PORT=443",
        "KUBERNETES_SERVICE_PORT_HTTPS=443",
    ];

    #[test]
    fn every_pod_finds_the_api_server() {
        assert_eq!(text("elsewhere", true), KUBERNETES);
        assert_eq!(text("ns", false), KUBERNETES);
    }

    #[test]
    fn services_of_the_namespace_that_have_an_address() {
        let of_db = [
            "MY_DB_PORT=tcp://[fd00::1]:5432",
            "MY_DB_PORT_53_UDP=udp://[fd00::1]:53",
            "MY_DB_PORT_53_UDP_ADDR=fd00::1",
            "MY_DB_PORT_53_UDP_PORT=53",
            "MY_DB_PORT_53_UDP_PROTO=udp",
            "MY_DB_PORT_5432_TCP=tcp://[fd00::1]:5432",
            "MY_DB_PORT_5432_TCP_ADDR=fd00::1",
            "MY_DB_PORT_5432_TCP_PORT=5432",
            "MY_DB_PORT_5432_TCP_PROTO=tcp",
            "MY_DB_SERVICE_HOST=fd00::1",
            "MY_DB_SERVICE_PORT=5432",
            "MY_DB_SERVICE_PORT_GOSSIP_X=53",
            "MY_DB_SERVICE_PORT_SQL=5432",
        ];
        let expected: Vec<&str> = KUBERNETES.iter().chain(&of_db).copied().collect();
        assert_eq!(text("ns", true), expected);
    }
}
