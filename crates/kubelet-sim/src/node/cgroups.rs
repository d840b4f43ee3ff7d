//! The pods' control groups, in memory.
//!
//! Owns which groups exist and their limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use cgroups::{CgroupError, Limits};
use kubelet::container_manager::QosClass;
use kubelet::ports::{PodCgroupSpec, PodCgroups};
use kubelet_model::PodUid;

use crate::world::{Life, World};

/// What every pod uses of its memory: less than any size.
const POD_USES: u64 = 1 << 20;

fn missing() -> CgroupError {
    let source = Arc::new(std::io::Error::from(std::io::ErrorKind::NotFound));
    CgroupError::Create { path: "/sim".into(), source }
}

/// All groups of the node.
#[derive(Default)]
pub(crate) struct PodGroups {
    pub(crate) pods: BTreeMap<PodUid, (QosClass, Limits)>,
    pub(crate) tier_shares: BTreeMap<&'static str, u64>,
}

impl PodGroups {
    /// Does a pod have a group?
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.pods.keys().any(|known| known.as_str() == uid)
    }
}

/// The control group port of one life.
pub struct SimCgroups {
    world: Arc<World>,
    life: Life,
}

impl SimCgroups {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    fn with<T>(&self, act: impl FnOnce(&mut PodGroups) -> T) -> Result<T, CgroupError> {
        // A dead agent's ports do nothing.
        if !self.life.is_alive() {
            return Err(CgroupError::DriverUnknown);
        }
        let mut state = self.world.lock();
        let rate = state.faults.cgroup_error;
        if state.chance(rate) {
            let source = Arc::new(std::io::Error::other("simulated: device or resource busy"));
            return Err(CgroupError::Create { path: "/sim".into(), source });
        }
        Ok(act(&mut state.groups))
    }
}

impl PodCgroups for SimCgroups {
    fn prepare(&self) -> Result<(), CgroupError> {
        self.with(|_| ())
    }
    fn enforce(&self) -> Result<(), CgroupError> {
        self.with(|_| ())
    }
    fn ensure_pod(&self, pod: &PodCgroupSpec) -> Result<String, CgroupError> {
        self.with(|groups| {
            let mut limits = pod.limits.clone();
            let needed = limits.memory_bytes.is_some_and(|new| new <= POD_USES as i64);
            if let Some((_, old)) = groups.pods.get(&pod.uid).filter(|_| needed) {
                // As on a machine: lowering it below what is used is a resize.
                limits.memory_bytes = limits.memory_bytes.max(old.memory_bytes);
            }
            groups.pods.insert(pod.uid.clone(), (pod.class, limits));
            match pod.class {
                QosClass::Guaranteed => format!("/kubepods/pod{}", pod.uid),
                QosClass::Burstable => format!("/kubepods/burstable/pod{}", pod.uid),
                QosClass::BestEffort => format!("/kubepods/besteffort/pod{}", pod.uid),
            }
        })
    }
    fn pod_limits(&self, uid: &PodUid, _: QosClass) -> Result<Limits, CgroupError> {
        self.with(|groups| groups.pods.get(uid).map(|(_, limits)| limits.clone()))?
            .ok_or_else(missing)
    }
    fn set_pod_limits(&self, pod: &PodCgroupSpec) -> Result<(), CgroupError> {
        let change = |groups: &mut PodGroups| {
            let (_, limits) = groups.pods.get_mut(&pod.uid)?;
            let new = &pod.limits;
            limits.cpu_shares = new.cpu_shares.or(limits.cpu_shares);
            limits.cpu_quota_us = new.cpu_quota_us.or(limits.cpu_quota_us);
            limits.cpu_period_us = new.cpu_period_us.or(limits.cpu_period_us);
            limits.memory_bytes = new.memory_bytes.or(limits.memory_bytes);
            Some(())
        };
        self.with(change)?.ok_or_else(missing)
    }
    fn pod_memory(&self, _: &PodUid, _: QosClass) -> Result<Option<u64>, CgroupError> {
        self.with(|_| Some(POD_USES))
    }
    fn remove_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        if self.life.is_alive() {
            self.world.lock().check_group_removed(uid.as_str());
        }
        self.with(|groups| {
            groups.pods.remove(uid);
        })
    }
    fn pods(&self) -> Result<Vec<PodUid>, CgroupError> {
        self.with(|groups| groups.pods.keys().cloned().collect())
    }
    fn set_qos(&self, burstable_shares: u64) -> Result<(), CgroupError> {
        self.with(|groups| {
            groups.tier_shares.insert("burstable", burstable_shares);
        })
    }
}
