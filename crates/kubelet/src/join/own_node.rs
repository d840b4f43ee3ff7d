//! The Node as this machine and its configuration make it, for admission.
//!
//! Reads the machine once. Upstream: initialNode in pkg/kubelet/kubelet_node_status.go.

use cluster::node::{
    Devices, Network, NodeFacts, Pressure, Runtime, Troubles, Versions, initial_node,
};
use jiff::Timestamp;
use kubelet_config::{Config, Flags};

use super::{config, facts};
use crate::admission::{NodeView, Rules};
use crate::container_manager::disk_bytes;
use crate::ports::RealFs;

/// What decides about pods here, whether there is an API server or not.
pub(crate) fn admission_rules(config: &Config, flags: &Flags, node_name: &str) -> Rules {
    let gates = |name: &str| config.feature_gates.enabled(name);
    let settings = config::node(config, flags, node_name, &gates);
    let machine = facts::machine(&RealFs);
    let known = machine.cores > 0 && machine.memory_bytes > 0;
    let facts = NodeFacts {
        machine: Ok(machine),
        versions: Ok(Versions::default()),
        network: Network::default(),
        ephemeral_storage_bytes: disk_bytes(&flags.root_dir),
        reserved: config::reserved(config, flags),
        devices: Devices::default(),
        runtime: Runtime::default(),
        images: Ok(Vec::new()),
        pressure: Pressure::default(),
        volumes_in_use: None,
        troubles: Troubles::default(),
    };
    // Its conditions have times, and nobody here reads them.
    let node = initial_node(&settings, &facts, Timestamp::UNIX_EPOCH);
    Rules {
        own_node: known.then(|| NodeView::read(&node)),
        declared_features: settings.declared_features,
        pod_level_resources: gates("PodLevelResources"),
        compares_taints: gates("TaintTolerationComparisonOperators"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_takes_pods() {
        // At the first start that directory is not there yet.
        let args = ["--node-labels=zone=a", "--root-dir=/var/lib/no-such-klet"].map(Into::into);
        let host = kubelet_config::Host { cgroup_v2: true, online_cpus: None };
        let loaded = kubelet_config::load(args, &kubelet_config::Disk, &host).expect("flags");
        let (config, flags) = (loaded.config.expect("a configuration"), loaded.flags);
        let rules = admission_rules(&config, &flags, "n1");
        let node = rules.own_node.expect("a machine");
        assert_eq!(node.name, "n1");
        assert_eq!(node.labels["kubernetes.io/hostname"], "n1");
        assert_eq!((&*node.labels["kubernetes.io/os"], &*node.labels["zone"]), ("linux", "a"));
        assert!(node.allocatable["cpu"] >= 1000 && node.allocatable["memory"] > 1 << 20);
        assert!(node.allocatable["ephemeral-storage"] > 0);
        assert_eq!(node.allocatable["pods"], 110);
        assert!(rules.pod_level_resources && !rules.compares_taints);
        assert!(rules.declared_features.is_some());
    }
}
