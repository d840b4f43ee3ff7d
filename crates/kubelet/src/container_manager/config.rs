//! From the checked configuration and the machine to rules and groups.

use std::path::{Path, PathBuf};

use cgroups::{Address, Driver, Hierarchy, Version};
use kubelet_config::Config;

use super::allocatable::{Allocatable, Reserved, kept_free};
use super::executor::{Enforced, NodeGroups};
use super::machine;
use super::rules::{Rules, Swap};

const MOUNT: &str = "/sys/fs/cgroup";
/// Where the kernel lists huge page sizes.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Where machines mount control groups.
pub(crate) fn mount() -> &'static Path {
    Path::new(MOUNT)
}

/// The configured driver; the runtime's own word comes before it.
pub(crate) fn driver(config: &Config) -> Driver {
    match config.wire().cgroup_driver.as_deref() {
        Some("systemd") => Driver::Systemd,
        _ => Driver::Cgroupfs,
    }
}

/// How requests and limits reach the kernel.
pub(crate) fn rules(config: &Config) -> Rules {
    let wire = config.wire();
    let hierarchy = Hierarchy::detect(Path::new(MOUNT)).ok();
    let unified = hierarchy.as_ref().is_some_and(|found| found.version() == Version::V2);
    let limits_swap =
        hierarchy.is_some_and(|found| found.limits_swap(&machine::own_group(Path::new("/"))));
    let behavior = wire.memory_swap.as_ref().and_then(|swap| swap.swap_behavior.as_deref());
    let period = wire.cpu_cfs_quota_period.unwrap_or_default().to_std();
    Rules {
        pod_groups: wire.cgroups_per_qos.unwrap_or(true),
        pod_pids: wire.pod_pids_limit.filter(|pids| *pids > 0),
        cpu_quota: wire.cpu_cfs_quota.unwrap_or(true),
        cpu_period_us: u64::try_from(period.as_micros()).unwrap_or(u64::MAX),
        huge_page_sizes: huge_page_sizes(),
        unified,
        oom_ends_container: unified && !wire.single_process_oom_kill.unwrap_or(false),
        swap: match (limits_swap, behavior) {
            (false, _) => Swap::Unlimitable,
            (true, Some("LimitedSwap")) => Swap::Limited { bytes: swap_bytes() },
            (true, _) => Swap::None,
        },
    }
}

/// The machine's groups.
pub(crate) fn node_groups(config: &Config) -> NodeGroups {
    let wire = config.wire();
    let group = |name: &Option<String>| name.clone().unwrap_or_default();
    NodeGroups {
        mount: PathBuf::from(MOUNT),
        root: group(&wire.cgroup_root),
        capacity: machine::capacity(Path::new("/")),
        system: (
            Reserved::parse(wire.system_reserved.as_ref()),
            group(&wire.system_reserved_cgroup),
        ),
        kube: (Reserved::parse(wire.kube_reserved.as_ref()), group(&wire.kube_reserved_cgroup)),
        enforced: Enforced::parse(wire.enforce_node_allocatable.as_deref().unwrap_or_default()),
        huge_page_sizes: huge_page_sizes(),
        systemd: Address::usual(),
    }
}

/// What one container may use at the most. The memory that must stay free counts,
/// unless it is to be `ignored` here.
pub(crate) fn allocatable(config: &Config, eviction_ignored: bool) -> Allocatable {
    let wire = config.wire();
    let capacity = machine::capacity(Path::new("/"));
    let thresholds = wire.eviction_hard.as_ref().filter(|_| !eviction_ignored);
    let system = Reserved::parse(wire.system_reserved.as_ref());
    let kube = Reserved::parse(wire.kube_reserved.as_ref());
    Allocatable::of(&capacity, system, kube, kept_free(thresholds, &capacity))
}

fn huge_page_sizes() -> Vec<u64> {
    cgroups::huge_page_sizes(Path::new(HUGE_PAGES)).unwrap_or_default()
}

fn swap_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalswap.saturating_mul(u64::from(info.mem_unit.max(1)))
}
