//! Checks of the CPU, memory and topology managers.

use super::Check;
use crate::flags::parse_bool;

/// Name of a CPU policy option and the gate it needs.
const CPU_OPTIONS: [(&str, Option<&str>); 6] = [
    ("full-pcpus-only", None),
    ("strict-cpu-reservation", None),
    ("prefer-align-cpus-by-uncorecache", None),
    ("distribute-cpus-across-numa", Some("CPUManagerPolicyBetaOptions")),
    ("align-by-socket", Some("CPUManagerPolicyAlphaOptions")),
    ("distribute-cpus-across-cores", Some("CPUManagerPolicyAlphaOptions")),
];
const NUMA_NODES_DEFAULT: i64 = 8;

impl Check<'_> {
    pub(super) fn managers(&mut self) {
        let c = self.c;
        self.one_of("cpuManagerPolicy", c.cpu_manager_policy.as_ref(), &["none", "static"]);
        self.one_of("memoryManagerPolicy", c.memory_manager_policy.as_ref(), &["None", "Static"]);
        let policies = ["none", "best-effort", "restricted", "single-numa-node"];
        self.one_of("topologyManagerPolicy", c.topology_manager_policy.as_ref(), &policies);
        self.one_of(
            "topologyManagerScope",
            c.topology_manager_scope.as_ref(),
            &["container", "pod"],
        );
        for (name, value) in c.cpu_manager_policy_options.iter().flatten() {
            let path = format!("cpuManagerPolicyOptions[{name}]");
            match CPU_OPTIONS.iter().find(|(known, _)| known == name) {
                None => {
                    let known = CPU_OPTIONS.map(|(name, _)| name);
                    self.bad(
                        path.clone(),
                        value,
                        format!("the option must be one of {}", super::quoted(&known)),
                    );
                }
                Some((_, Some(gate))) if !self.gates.enabled(gate) => {
                    self.bad(path.clone(), value, format!("needs the feature gate {gate}"));
                }
                Some(_) => {}
            }
            if let Err(wrong) = parse_bool(value) {
                self.bad(path, format!("{value:?}"), wrong);
            }
        }
        for (name, value) in c.topology_manager_policy_options.iter().flatten() {
            let path = format!("topologyManagerPolicyOptions[{name}]");
            let wrong = match name.as_str() {
                "prefer-closest-numa-nodes" => parse_bool(value).err(),
                "max-allowable-numa-nodes" => match value.parse::<i64>() {
                    Ok(nodes) if nodes >= NUMA_NODES_DEFAULT => None,
                    _ => Some(format!("must be a whole number of {NUMA_NODES_DEFAULT} or more")),
                },
                _ => Some(
                    "the option must be prefer-closest-numa-nodes or max-allowable-numa-nodes"
                        .to_owned(),
                ),
            };
            if let Some(wrong) = wrong {
                self.bad(path, format!("{value:?}"), wrong);
            }
        }
        self.qos_reserved();
    }

    fn qos_reserved(&mut self) {
        let reserved = self.c.qos_reserved.as_ref();
        if reserved.is_some_and(|map| !map.is_empty()) && !self.gates.enabled("QOSReserved") {
            self.advise("qosReserved", "has no effect without the feature gate QOSReserved");
        }
        for (resource, value) in reserved.into_iter().flatten() {
            let path = format!("qosReserved[{resource}]");
            let percent = value.strip_suffix('%').and_then(|number| number.parse::<u8>().ok());
            if resource != "memory" {
                self.bad(path, value, "only memory can be reserved");
            } else if percent.is_none_or(|percent| percent > 100) {
                self.bad(path, format!("{value:?}"), "must be a percentage from 0% to 100%");
            }
        }
    }
}
