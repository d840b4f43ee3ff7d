//! What the pods may use together: the machine less what is reserved.
//!
//! Pure. Upstream: pkg/kubelet/cm/node_container_manager_linux.go.

use std::collections::BTreeMap;

use cgroups::Limits;
use kubelet_model::quantity::Quantity;

use super::plan::cpu_shares;

/// What the machine has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Thousandths of processors.
    pub cpu_milli: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Processes; `None` if the kernel does not tell.
    pub pids: Option<i64>,
    /// Bytes of huge pages by page size.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// What is kept from pods, as far as it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Thousandths of processors.
    pub cpu_milli: Option<i64>,
    /// Memory.
    pub memory_bytes: Option<i64>,
    /// Processes.
    pub pids: Option<i64>,
}

/// More is reserved than there is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource}: {reserved} are reserved, but the machine has {capacity}; lower systemReserved or kubeReserved"
)]
pub struct OverReserved {
    /// Which resource.
    pub resource: &'static str,
    /// How much.
    pub reserved: i64,
    /// Of how much.
    pub capacity: i64,
}

impl Reserved {
    /// From `systemReserved` or `kubeReserved`, which have been checked.
    pub fn parse(map: Option<&BTreeMap<String, String>>) -> Self {
        let get = |name: &str| Quantity::parse(map?.get(name)?);
        Self {
            cpu_milli: get("cpu").map(Quantity::milli),
            memory_bytes: get("memory").map(Quantity::units),
            pids: get("pid").map(Quantity::units),
        }
    }

    /// Limits of the group that the reserved amounts are for. Compressible resources
    /// are those whose lack slows, but does not kill.
    pub fn group(&self, compressible_only: bool) -> Limits {
        let all = !compressible_only;
        Limits {
            cpu_shares: self.cpu_milli.map(cpu_shares),
            memory_bytes: self.memory_bytes.filter(|_| all),
            pids: self.pids.filter(|_| all),
            huge_pages: all.then(BTreeMap::new),
            ..Limits::default()
        }
    }

    fn plus(self, other: Self) -> Self {
        let sum = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (None, None) => None,
            _ => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            cpu_milli: sum(self.cpu_milli, other.cpu_milli),
            memory_bytes: sum(self.memory_bytes, other.memory_bytes),
            pids: sum(self.pids, other.pids),
        }
    }
}

/// Limits of the group of all pods. Without enforcement the reserved amounts are
/// left to them, but the shares are set: the kernel's own would starve them.
pub fn pods_group(capacity: &Capacity, system: Reserved, kube: Reserved, enforced: bool) -> Limits {
    let reserved = if enforced { system.plus(kube) } else { Reserved::default() };
    let left = |has: i64, taken: Option<i64>| has.saturating_sub(taken.unwrap_or(0)).max(0);
    Limits {
        cpu_shares: Some(cpu_shares(left(capacity.cpu_milli, reserved.cpu_milli))),
        memory_bytes: Some(left(capacity.memory_bytes, reserved.memory_bytes)),
        pids: capacity.pids.map(|pids| left(pids, reserved.pids)),
        huge_pages: Some(capacity.huge_pages.clone()),
        ..Limits::default()
    }
}

/// What one container may use at the most, if nothing else limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocatable {
    /// Thousandths of processors.
    pub cpu_milli: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Of the node's own disk; nothing where pods' use of it is not limited.
    pub storage_bytes: i64,
}

impl Allocatable {
    /// The machine less what is reserved, less the memory that must stay free, less
    /// the memory that is tied up in huge pages. Whoever knows the disk adds it.
    pub fn of(capacity: &Capacity, system: Reserved, kube: Reserved, keep_free: i64) -> Self {
        let reserved = system.plus(kube);
        let left = |has: i64, taken: i64| has.saturating_sub(taken).max(0);
        let memory = reserved.memory_bytes.unwrap_or(0).saturating_add(keep_free);
        let huge = capacity.huge_pages.values().copied().fold(0, u64::saturating_add);
        Self {
            cpu_milli: left(capacity.cpu_milli, reserved.cpu_milli.unwrap_or(0)),
            memory_bytes: left(
                left(capacity.memory_bytes, memory),
                i64::try_from(huge).unwrap_or(i64::MAX),
            ),
            storage_bytes: 0,
        }
    }
}

/// Memory that must stay free by `evictionHard`, which has been checked: an amount,
/// or a part of what there is. `0%` and `100%` say that there is no such threshold.
pub fn kept_free(thresholds: Option<&BTreeMap<String, String>>, capacity: &Capacity) -> i64 {
    let threshold = thresholds.and_then(|all| all.get("memory.available"));
    let Some(threshold) = threshold.map(|text| text.trim()) else { return 0 };
    match threshold.strip_suffix('%') {
        None => Quantity::parse(threshold).map_or(0, Quantity::units).max(0),
        Some("0" | "100") => 0,
        Some(percent) => {
            let part = f64::from(percent.parse::<f32>().unwrap_or(0.0) / 100.0);
            // Upstream rounds just so; no machine has as much memory as would matter.
            (capacity.memory_bytes as f64 * part) as i64
        }
    }
}

/// Is there as much as is reserved?
pub fn check(capacity: &Capacity, system: Reserved, kube: Reserved) -> Result<(), OverReserved> {
    let reserved = system.plus(kube);
    for (resource, has, taken) in [
        ("cpu (thousandths)", Some(capacity.cpu_milli), reserved.cpu_milli),
        ("memory", Some(capacity.memory_bytes), reserved.memory_bytes),
        ("pid", capacity.pids, reserved.pids),
    ] {
        if let (Some(capacity), Some(reserved)) = (has, taken)
            && reserved > capacity
        {
            return Err(OverReserved { resource, reserved, capacity });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Reserved {
        let map = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Reserved::parse(Some(&map))
    }

    fn capacity() -> Capacity {
        Capacity {
            cpu_milli: 4000,
            memory_bytes: 8 << 30,
            pids: Some(32_768),
            huge_pages: BTreeMap::from([(2 << 20, 64 << 20)]),
        }
    }

    #[test]
    fn reservations_are_kept_from_pods() {
        let system = map(&[("cpu", "500m"), ("memory", "1Gi"), ("pid", "1000")]);
        let kube = map(&[("cpu", "500m"), ("ephemeral-storage", "1Gi")]);
        let limits = pods_group(&capacity(), system, kube, true);
        assert_eq!(limits.cpu_shares, Some(3072));
        assert_eq!(limits.memory_bytes, Some(7 << 30));
        assert_eq!(limits.pids, Some(31_768));
        assert_eq!(limits.huge_pages, Some(BTreeMap::from([(2 << 20, 64 << 20)])));
        assert_eq!(limits.cpu_quota_us, None);
        let limits = pods_group(&capacity(), system, kube, false);
        assert_eq!((limits.cpu_shares, limits.memory_bytes), (Some(4096), Some(8 << 30)));
        let all = map(&[("memory", "9Gi")]);
        assert_eq!(pods_group(&capacity(), all, kube, true).memory_bytes, Some(0));
    }

    #[test]
    fn reserved_groups() {
        let system = map(&[("cpu", "500m"), ("memory", "1Gi"), ("pid", "10")]);
        let all = system.group(false);
        assert_eq!(
            (all.cpu_shares, all.memory_bytes, all.pids),
            (Some(512), Some(1 << 30), Some(10))
        );
        let slow = system.group(true);
        assert_eq!(slow, Limits { cpu_shares: Some(512), ..Limits::default() });
        assert_eq!(Reserved::parse(None).group(true), Limits::default());
    }

    #[test]
    fn a_container_may_use_what_is_left() {
        let system = map(&[("cpu", "500m"), ("memory", "1Gi")]);
        let kube = map(&[("cpu", "250m")]);
        let left = Allocatable::of(&capacity(), system, kube, 100 << 20);
        assert_eq!(left.cpu_milli, 3250);
        assert_eq!(left.memory_bytes, (7 << 30) - (100 << 20) - (64 << 20));
        let all = Allocatable::of(&capacity(), Reserved::default(), Reserved::default(), 0);
        assert_eq!((all.cpu_milli, all.memory_bytes), (4000, (8 << 30) - (64 << 20)));
        let none = Allocatable::of(&capacity(), map(&[("memory", "8Gi")]), kube, 1);
        assert_eq!(none.memory_bytes, 0);
    }

    #[test]
    fn memory_that_stays_free() {
        let of = |text: &str| {
            let map = BTreeMap::from([("memory.available".to_owned(), text.to_owned())]);
            kept_free(Some(&map), &capacity())
        };
        assert_eq!(of("100Mi"), 100 << 20);
        assert_eq!(of("25%"), 2 << 30);
        assert_eq!((of("0%"), of("100%")), (0, 0));
        assert_eq!(kept_free(Some(&BTreeMap::new()), &capacity()), 0);
        assert_eq!(kept_free(None, &capacity()), 0);
    }

    #[test]
    fn too_much_is_refused() {
        let half = map(&[("memory", "5Gi")]);
        assert_eq!(check(&capacity(), half, Reserved::default()), Ok(()));
        let error = check(&capacity(), half, half).unwrap_err();
        assert_eq!(error.resource, "memory");
        assert!(check(&capacity(), map(&[("pid", "32769")]), half).is_err());
        let unknown = Capacity { pids: None, ..capacity() };
        assert_eq!(check(&unknown, map(&[("pid", "32769")]), half), Ok(()));
    }
}
