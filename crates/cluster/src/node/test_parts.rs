//! A plain node for tests of this module.

use std::time::Duration;

use super::facts::*;
use super::settings::NodeSettings;

pub(crate) fn settings() -> NodeSettings {
    NodeSettings {
        name: "n1".to_owned(),
        hostname: "host1".to_owned(),
        node_ips: vec!["10.0.0.1".parse().expect("an address")],
        external_cloud: false,
        labels: Vec::new(),
        taints: Vec::new(),
        register: true,
        provider_id: String::new(),
        controller_attaches: true,
        max_pods: 110,
        pods_per_core: 0,
        max_images: 50,
        isolates_local_storage: true,
        port: 10250,
        version: "v1.36.4".to_owned(),
        declared_features: None,
        update_every: Duration::from_secs(10),
        report_every: Duration::from_secs(300),
        lease_seconds: 40,
    }
}

pub(crate) fn facts() -> NodeFacts {
    let handler = |name: &str, user_namespaces| RuntimeHandler {
        name: name.to_owned(),
        recursive_read_only_mounts: true,
        user_namespaces,
    };
    NodeFacts {
        machine: Ok(Machine {
            machine_id: "m".to_owned(),
            system_uuid: "s".to_owned(),
            boot_id: "b".to_owned(),
            cores: 4,
            memory_bytes: 8 << 30,
            swap_bytes: 0,
            huge_pages: Vec::new(),
        }),
        versions: Ok(Versions { kernel: "6.1".to_owned(), os_image: "Debian".to_owned() }),
        network: Network {
            interfaces: vec!["10.0.0.1".parse().expect("an address")],
            ..Network::default()
        },
        ephemeral_storage_bytes: Some(100 << 30),
        reserved: Reserved {
            cpu_milli: 100,
            memory_bytes: 100 << 20,
            ephemeral_storage_bytes: 10 << 30,
        },
        devices: Devices::default(),
        runtime: Runtime {
            name: "containerd".to_owned(),
            version: Some("2.1".to_owned()),
            handlers: vec![handler("runc", true), handler("", false)],
            supplemental_groups_policy: None,
        },
        images: Ok(Vec::new()),
        pressure: Pressure::default(),
        volumes_in_use: Some(Vec::new()),
        troubles: Troubles::default(),
    }
}
