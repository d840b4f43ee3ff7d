//! Checks of what is kept for the system, and where that is enforced.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, is_set, parse_cpu_list};
use crate::quantity::Quantity;

const ENFORCEMENTS: [&str; 6] = [
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
    "none",
];

impl Check<'_> {
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
                    self.bad(path.clone(), amount, "the kind must be memory or hugepages-<size>");
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
            if !matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pid") {
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
                self.bad(path, shown, format!("must be one of {}", super::quoted(&ENFORCEMENTS)));
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
                self.bad(path, shown, "needs cgroupsPerQOS: true, or set it to [none]");
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
            self.bad(path, cpus, "cannot be used with systemReservedCgroup or kubeReservedCgroup");
        }
        match parse_cpu_list(cpus) {
            Err(wrong) => self.bad(path, format!("{cpus:?}"), wrong),
            Ok(set) => {
                if let Some(online) =
                    self.host.online_cpus.as_ref().filter(|online| !set.is_subset(online))
                {
                    let missing =
                        set.difference(online).map(u32::to_string).collect::<Vec<_>>().join(", ");
                    self.bad(path, cpus, format!("this host has no CPU {missing} online"));
                }
            }
        }
    }
}
