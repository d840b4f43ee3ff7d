//! The pods' groups on a real machine.
//!
//! Owns the cgroup driver once it is known. Upstream:
//! pkg/kubelet/cm/pod_container_manager_linux.go, node_container_manager_linux.go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cgroups::{
    Address, CgroupError, CgroupName, Driver, Hierarchy, Limits, SHARES_MIN, Systemd, Tree,
};
use kubelet_model::PodUid;

use super::allocatable::{self, Capacity, OverReserved, Reserved};
use super::qos::QosClass;
use crate::ports::{PodCgroupSpec, PodCgroups};

/// The group of all pods.
const PODS: &str = "kubepods";
const POD_PREFIX: &str = "pod";
/// As good as no limit on huge pages.
const HUGE_PAGES_UNBOUNDED: u64 = 1 << 62;

/// What of `enforceNodeAllocatable` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enforced {
    /// On pods.
    pub pods: bool,
    /// On the system's group.
    pub system: bool,
    /// On the Kubernetes daemons' group.
    pub kube: bool,
    /// On the system's group, processors only.
    pub system_compressible: bool,
    /// On the Kubernetes daemons' group, processors only.
    pub kube_compressible: bool,
}

impl Enforced {
    /// From `enforceNodeAllocatable`, which has been checked.
    pub fn parse(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|given| given == name);
        Self {
            pods: has("pods"),
            system: has("system-reserved"),
            kube: has("kube-reserved"),
            system_compressible: has("system-reserved-compressible"),
            kube_compressible: has("kube-reserved-compressible"),
        }
    }
}

/// A reservation that is enforced on a group of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// Whose it is, as events say it: `System` or `Kube`.
    pub whose: &'static str,
    /// Only processors, whose lack slows but does not kill.
    pub compressible_only: bool,
    /// The group, as it is configured.
    pub group: &'a str,
    amount: Reserved,
}

/// What the configuration says about the machine's groups.
#[derive(Debug, Clone)]
pub struct NodeGroups {
    /// Where control groups are mounted: `/sys/fs/cgroup`.
    pub mount: PathBuf,
    /// Group above all pods (`cgroupRoot`).
    pub root: String,
    /// What the machine has.
    pub capacity: Capacity,
    /// `systemReserved` and the group it is enforced on.
    pub system: (Reserved, String),
    /// `kubeReserved` and the group it is enforced on.
    pub kube: (Reserved, String),
    /// What is enforced.
    pub enforced: Enforced,
    /// Huge page sizes of the machine in bytes.
    pub huge_page_sizes: Vec<u64>,
    /// Where systemd is asked, if groups are its own.
    pub systemd: Vec<Address>,
}

/// The pods' groups on a real machine.
#[derive(Debug)]
pub struct NodeCgroups {
    groups: NodeGroups,
    driver: OnceLock<Driver>,
    tree: OnceLock<Tree>,
    /// What pods' groups were last made with: the kernel is not told twice.
    made: Mutex<BTreeMap<PodUid, PodCgroupSpec>>,
}

impl NodeCgroups {
    /// Groups whose driver is not known yet.
    pub fn new(groups: NodeGroups) -> Self {
        Self { groups, driver: OnceLock::new(), tree: OnceLock::new(), made: Mutex::default() }
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<PodUid, PodCgroupSpec>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> &NodeGroups {
        &self.groups
    }

    /// Settles who makes the groups; the first word counts.
    pub fn set_driver(&self, driver: Driver) {
        self.driver.get_or_init(|| driver);
    }

    /// Is it settled who makes the groups?
    pub fn knows_driver(&self) -> bool {
        self.driver.get().is_some()
    }

    /// Is as much there as is reserved?
    pub fn check_reservations(&self) -> Result<(), OverReserved> {
        let groups = &self.groups;
        allocatable::check(&groups.capacity, groups.system.0, groups.kube.0)
    }

    /// The reservations that are enforced, in order.
    pub fn reservations(&self) -> Vec<Reservation<'_>> {
        let NodeGroups { system, kube, enforced, .. } = &self.groups;
        let all = [
            (enforced.system, "System", system, false),
            (enforced.kube, "Kube", kube, false),
            (enforced.system_compressible, "System", system, true),
            (enforced.kube_compressible, "Kube", kube, true),
        ];
        let on = all.into_iter().filter(|(on, ..)| *on);
        on.map(|(_, whose, (amount, group), compressible_only)| Reservation {
            whose,
            compressible_only,
            group,
            amount: *amount,
        })
        .collect()
    }

    /// Limits the group that a reservation is for. It must exist.
    pub fn enforce_reserved(&self, reservation: &Reservation<'_>) -> Result<(), CgroupError> {
        let tree = self.tree()?;
        let name = CgroupName::parse_for(reservation.group, tree.driver())?;
        tree.apply(&name, &reservation.amount.group(reservation.compressible_only))
    }

    /// The group of all pods, as events name it: `["kubepods"]`.
    pub fn pods_group_text(&self) -> String {
        let parts = self.groups.root.split('/').filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.chain([PODS]).map(|part| format!("{part:?}")).collect();
        format!("[{}]", parts.join(" "))
    }

    fn tree(&self) -> Result<&Tree, CgroupError> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let driver = *self.driver.get().ok_or(CgroupError::DriverUnknown)?;
        let hierarchy = Hierarchy::detect(&self.groups.mount)?;
        Ok(self.tree.get_or_init(|| match driver {
            Driver::Cgroupfs => Tree::new(hierarchy, driver),
            Driver::Systemd => Tree::under(hierarchy, Systemd::at(self.groups.systemd.clone())),
        }))
    }

    fn pods_name(&self) -> Result<CgroupName, CgroupError> {
        Ok(CgroupName::parse(&self.groups.root)?.child(PODS)?)
    }

    /// Guaranteed pods lie right below the group of all pods.
    fn tier(&self, class: QosClass) -> Result<CgroupName, CgroupError> {
        let pods = self.pods_name()?;
        Ok(match class {
            QosClass::Guaranteed => pods,
            QosClass::Burstable | QosClass::BestEffort => {
                pods.child(&class.as_str().to_lowercase())?
            }
        })
    }

    fn pod_name(&self, class: QosClass, uid: &PodUid) -> Result<CgroupName, CgroupError> {
        Ok(self.tier(class)?.child(&format!("{POD_PREFIX}{uid}"))?)
    }

    /// A tier bounds nothing: only its share of the processors matters.
    fn tier_limits(&self, cpu_shares: Option<u64>) -> Limits {
        let sizes = self.groups.huge_page_sizes.iter();
        let unbounded: BTreeMap<u64, u64> =
            sizes.map(|size| (*size, HUGE_PAGES_UNBOUNDED)).collect();
        Limits { cpu_shares, huge_pages: Some(unbounded), ..Limits::default() }
    }
}

/// Leaves a memory limit alone that would be lowered to what is used now, or below.
/// What nothing runs in may get any limit.
fn keep_needed_memory(
    limits: &mut Limits,
    tree: &Tree,
    name: &CgroupName,
) -> Result<(), CgroupError> {
    let Some(new) = limits.memory_bytes.filter(|new| *new > 0) else { return Ok(()) };
    let now = tree.read(name)?.memory_bytes.unwrap_or(-1);
    if (0..=new).contains(&now) {
        return Ok(());
    }
    let used = tree.memory_usage(name)?;
    let needed = used.is_none_or(|used| i64::try_from(used).is_ok_and(|used| used >= new));
    if needed && !tree.processes(name)?.is_empty() {
        limits.memory_bytes = None;
    }
    Ok(())
}

impl PodCgroups for NodeCgroups {
    fn prepare(&self) -> Result<(), CgroupError> {
        let tree = self.tree()?;
        for (class, shares) in
            [(QosClass::Burstable, None), (QosClass::BestEffort, Some(SHARES_MIN))]
        {
            let tier = self.tier(class)?;
            if !tree.exists(&tier) {
                tree.create(&tier)?;
                if let Err(error) = tree.apply(&tier, &self.tier_limits(shares)) {
                    tracing::warn!(%tier, %error, "tier of pods lacks its share");
                }
            }
        }
        Ok(())
    }

    fn enforce(&self) -> Result<(), CgroupError> {
        let NodeGroups { capacity, system, kube, enforced, .. } = &self.groups;
        let limits = allocatable::pods_group(capacity, system.0, kube.0, enforced.pods);
        self.tree()?.apply(&self.pods_name()?, &limits)
    }

    fn ensure_pod(&self, pod: &PodCgroupSpec) -> Result<String, CgroupError> {
        let name = self.pod_name(pod.class, &pod.uid)?;
        let tree = self.tree()?;
        let path = name.path(tree.driver());
        let mut limits = pod.limits.clone();
        if tree.exists(&name) {
            if self.made().get(&pod.uid) == Some(pod) {
                return Ok(path);
            }
            keep_needed_memory(&mut limits, tree, &name)?;
        } else if tree.driver() == Driver::Systemd || tree.make(&name).is_err() {
            self.prepare()?;
            tree.create(&name)?;
        }
        // As upstream: a kernel that refuses one value still runs the pod, whose
        // containers have limits of their own.
        match tree.apply(&name, &limits) {
            Ok(()) if limits == pod.limits => {
                self.made().insert(pod.uid.clone(), pod.clone());
            }
            Ok(()) => {}
            // Nobody said no: it is tried again.
            Err(error @ CgroupError::SystemdUnreachable { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(uid = %pod.uid, %error, "pod runs without some limits of its group");
            }
        }
        Ok(path)
    }

    fn pod_limits(&self, uid: &PodUid, class: QosClass) -> Result<Limits, CgroupError> {
        self.tree()?.read(&self.pod_name(class, uid)?)
    }

    fn set_pod_limits(&self, pod: &PodCgroupSpec) -> Result<(), CgroupError> {
        self.made().remove(&pod.uid);
        self.tree()?.apply(&self.pod_name(pod.class, &pod.uid)?, &pod.limits)
    }

    fn pod_memory(&self, uid: &PodUid, class: QosClass) -> Result<Option<u64>, CgroupError> {
        self.tree()?.memory_usage(&self.pod_name(class, uid)?)
    }

    fn pod_path(&self, uid: &PodUid, class: QosClass) -> Option<String> {
        let tree = self.tree().ok()?;
        let name = self.pod_name(class, uid).ok()?;
        tree.exists(&name).then(|| name.path(tree.driver()))
    }

    fn remove_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        let tree = self.tree()?;
        self.made().remove(uid);
        for class in QosClass::ALL {
            match self.pod_name(class, uid) {
                Ok(name) => tree.remove(&name)?,
                // What cannot be a name was never made.
                Err(CgroupError::Name(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pods(&self) -> Result<Vec<PodUid>, CgroupError> {
        let tree = self.tree()?;
        let mut found = Vec::new();
        for class in QosClass::ALL {
            let children = tree.children(&self.tier(class)?)?;
            let uids = children.iter().filter_map(|name| name.strip_prefix(POD_PREFIX));
            found.extend(uids.filter(|uid| !uid.is_empty()).map(PodUid::from));
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn set_qos(&self, burstable_shares: u64) -> Result<(), CgroupError> {
        let tree = self.tree()?;
        self.prepare()?;
        for (class, shares) in
            [(QosClass::Burstable, burstable_shares), (QosClass::BestEffort, SHARES_MIN)]
        {
            tree.apply(&self.tier(class)?, &self.tier_limits(Some(shares)))?;
        }
        Ok(())
    }
}
