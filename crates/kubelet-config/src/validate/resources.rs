//! Checks of cgroups, reservations and the CPU, memory and topology managers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, parse_cpu_list};
use crate::flags::parse_bool;
use crate::go_duration::GoDuration;
use crate::quantity::Quantity;

const ENFORCEMENTS: [&str; 6] = [
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
    "none",
];
/// Name of a CPU policy option and the gate it needs.
const CPU_OPTIONS: [(&str, Option<&str>); 6] = [
    ("full-pcpus-only", None),
    ("strict-cpu-reservation", None),
    ("prefer-align-cpus-by-uncorecache", None),
    (
        "distribute-cpus-across-numa",
        Some("CPUManagerPolicyBetaOptions"),
    ),
    ("align-by-socket", Some("CPUManagerPolicyAlphaOptions")),
    (
        "distribute-cpus-across-cores",
        Some("CPUManagerPolicyAlphaOptions"),
    ),
];
const NUMA_NODES_DEFAULT: i64 = 8;
const IDS_UNIT: i64 = 65_536;

fn is_set(text: &Option<String>) -> bool {
    text.as_deref().is_some_and(|text| !text.is_empty())
}

impl Check<'_> {
    pub(super) fn resources(&mut self) {
        let c = self.c;
        if is_set(&c.system_cgroups) && !is_set(&c.cgroup_root) {
            let shown = c.system_cgroups.clone().unwrap_or_default();
            self.bad("systemCgroups", shown, "needs cgroupRoot to be set as well");
        }
        let driver = c.cgroup_driver.as_deref().unwrap_or_default();
        if !matches!(driver, "cgroupfs" | "systemd") {
            self.advise(
                "cgroupDriver",
                format!("{driver:?} is neither cgroupfs nor systemd; cgroupfs is used"),
            );
        }
        self.quota_period();
        if c.fail_cgroup_v1 == Some(true) && !self.host.cgroup_v2 {
            let wrong =
                "this host uses cgroup v1; boot it with cgroup v2, or set failCgroupV1: false";
            self.bad("failCgroupV1", true, wrong);
        }
        if c.single_process_oom_kill == Some(false) && !self.host.cgroup_v2 {
            self.bad(
                "singleProcessOOMKill",
                false,
                "cgroup v1 cannot kill a whole container; leave it unset or true",
            );
        }
        let swap = c
            .memory_swap
            .as_ref()
            .and_then(|swap| swap.swap_behavior.clone())
            .unwrap_or_default();
        self.one_of(
            "memorySwap.swapBehavior",
            Some(&swap),
            &["", "NoSwap", "LimitedSwap"],
        );
        if swap == "LimitedSwap" && !self.host.cgroup_v2 {
            self.bad(
                "memorySwap.swapBehavior",
                "\"LimitedSwap\"",
                "needs a host with cgroup v2",
            );
        }
        if let Some(factor) = c
            .memory_throttling_factor
            .filter(|factor| !(*factor > 0.0 && *factor <= 1.0))
        {
            self.bad(
                "memoryThrottlingFactor",
                factor,
                "must be more than 0 and at most 1",
            );
        }
        self.one_of(
            "memoryReservationPolicy",
            c.memory_reservation_policy.as_ref(),
            &["None", "TieredReservation"],
        );
        let tiered = c.memory_reservation_policy.as_deref() == Some("TieredReservation");
        if tiered && !self.gates.enabled("MemoryQoS") {
            self.bad(
                "memoryReservationPolicy",
                "\"TieredReservation\"",
                "needs the feature gate MemoryQoS",
            );
        }
        let ids = c.user_namespaces.as_ref().and_then(|user| user.ids_per_pod);
        if let Some(ids) =
            ids.filter(|ids| *ids < IDS_UNIT || *ids % IDS_UNIT != 0 || *ids > i64::from(u32::MAX))
        {
            self.bad(
                "userNamespaces.idsPerPod",
                ids,
                "must be a multiple of 65536 below 4294967296",
            );
        }
    }

    fn quota_period(&mut self) {
        let path = "cpuCFSQuotaPeriod";
        let period = self.c.cpu_cfs_quota_period.unwrap_or_default();
        if self.gates.enabled("CustomCPUCFSQuotaPeriod") {
            self.range(
                path,
                Some(period),
                GoDuration::from_millis(1),
                GoDuration::from_secs(1),
            );
        } else if period != GoDuration::from_millis(100) {
            self.bad(
                path,
                period,
                "anything but 100ms needs the feature gate CustomCPUCFSQuotaPeriod",
            );
        }
    }

    pub(super) fn reservations(&mut self) {
        let c = self.c;
        self.reserved("systemReserved", c.system_reserved.as_ref());
        self.reserved("kubeReserved", c.kube_reserved.as_ref());
        self.enforcement();
        let cpus = c.reserved_system_cpus.as_deref().unwrap_or_default();
        if !cpus.is_empty() {
            self.reserved_cpus(cpus);
        }
        let mut seen = BTreeSet::new();
        for (index, reservation) in c.reserved_memory.iter().flatten().enumerate() {
            for (kind, amount) in &reservation.limits {
                let path = format!("reservedMemory[{index}].limits[{kind}]");
                if kind != "memory" && !kind.starts_with("hugepages-") {
                    self.bad(
                        path.clone(),
                        amount,
                        "the kind must be memory or hugepages-<size>",
                    );
                }
                if amount.is_zero() {
                    self.bad(path.clone(), amount, "must not be zero");
                }
                if !seen.insert((reservation.numa_node, kind.clone())) {
                    self.bad(
                        path,
                        amount,
                        format!("NUMA node {} names it twice", reservation.numa_node),
                    );
                }
            }
        }
    }

    fn reserved(&mut self, field: &str, map: Option<&BTreeMap<String, String>>) {
        for (resource, amount) in map.into_iter().flatten() {
            let path = format!("{field}[{resource}]");
            if !matches!(
                resource.as_str(),
                "cpu" | "memory" | "ephemeral-storage" | "pid"
            ) {
                self.bad(
                    path,
                    amount,
                    "only cpu, memory, ephemeral-storage and pid can be reserved",
                );
                continue;
            }
            match amount.parse::<Quantity>() {
                Err(error) => self.bad(path, format!("{amount:?}"), error.to_string()),
                Ok(quantity) if quantity.is_negative() => {
                    self.bad(path, amount, "must not be negative")
                }
                Ok(_) => {}
            }
        }
    }

    fn enforcement(&mut self) {
        let c = self.c;
        let path = "enforceNodeAllocatable";
        let list = c.enforce_node_allocatable.as_deref().unwrap_or_default();
        let has = |name: &str| list.iter().any(|item| item == name);
        let mut seen = BTreeSet::new();
        for item in list {
            let shown = format!("{item:?}");
            if !seen.insert(item) {
                self.bad(path, shown, "is listed twice");
                continue;
            }
            let group = item.strip_suffix("-compressible").unwrap_or(item);
            let cgroup = match group {
                "system-reserved" => {
                    Some(("systemReservedCgroup", is_set(&c.system_reserved_cgroup)))
                }
                "kube-reserved" => Some(("kubeReservedCgroup", is_set(&c.kube_reserved_cgroup))),
                _ => None,
            };
            if !ENFORCEMENTS.contains(&item.as_str()) {
                self.bad(
                    path,
                    shown,
                    format!("must be one of {}", super::quoted(&ENFORCEMENTS)),
                );
                continue;
            }
            if item == "none" {
                if list.len() > 1 {
                    self.bad(path, shown, "cannot stand with others");
                }
                continue;
            }
            if let Some((field, false)) = cgroup {
                self.bad(path, &shown, format!("needs {field} to name a cgroup"));
            }
            if c.cgroups_per_qos == Some(false) {
                self.bad(
                    path,
                    shown,
                    "needs cgroupsPerQOS: true, or set it to [none]",
                );
            }
        }
        for group in ["system-reserved", "kube-reserved"] {
            if has(group) && has(&format!("{group}-compressible")) {
                self.bad(
                    path,
                    format!("{group:?}"),
                    format!("cannot stand with {group}-compressible"),
                );
            }
        }
    }

    fn reserved_cpus(&mut self, cpus: &str) {
        let path = "reservedSystemCPUs";
        if is_set(&self.c.system_reserved_cgroup) || is_set(&self.c.kube_reserved_cgroup) {
            self.bad(
                path,
                cpus,
                "cannot be used with systemReservedCgroup or kubeReservedCgroup",
            );
        }
        match parse_cpu_list(cpus) {
            Err(wrong) => self.bad(path, format!("{cpus:?}"), wrong),
            Ok(set) => {
                if let Some(online) = self
                    .host
                    .online_cpus
                    .as_ref()
                    .filter(|online| !set.is_subset(online))
                {
                    let missing = set
                        .difference(online)
                        .map(u32::to_string)
                        .collect::<Vec<_>>()
                        .join(", ");
                    self.bad(path, cpus, format!("this host has no CPU {missing} online"));
                }
            }
        }
    }

    pub(super) fn managers(&mut self) {
        let c = self.c;
        self.one_of(
            "cpuManagerPolicy",
            c.cpu_manager_policy.as_ref(),
            &["none", "static"],
        );
        self.one_of(
            "memoryManagerPolicy",
            c.memory_manager_policy.as_ref(),
            &["None", "Static"],
        );
        let policies = ["none", "best-effort", "restricted", "single-numa-node"];
        self.one_of(
            "topologyManagerPolicy",
            c.topology_manager_policy.as_ref(),
            &policies,
        );
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
                    self.bad(
                        path.clone(),
                        value,
                        format!("needs the feature gate {gate}"),
                    );
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
                    _ => Some(format!(
                        "must be a whole number of {NUMA_NODES_DEFAULT} or more"
                    )),
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
            self.advise(
                "qosReserved",
                "has no effect without the feature gate QOSReserved",
            );
        }
        for (resource, value) in reserved.into_iter().flatten() {
            let path = format!("qosReserved[{resource}]");
            let percent = value
                .strip_suffix('%')
                .and_then(|number| number.parse::<u8>().ok());
            if resource != "memory" {
                self.bad(path, value, "only memory can be reserved");
            } else if percent.is_none_or(|percent| percent > 100) {
                self.bad(
                    path,
                    format!("{value:?}"),
                    "must be a percentage from 0% to 100%",
                );
            }
        }
    }
}
