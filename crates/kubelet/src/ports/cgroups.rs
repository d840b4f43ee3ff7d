//! The pods' control groups, as far as the agent needs them.

use cgroups::{CgroupError, Limits};
use kubelet_model::PodUid;

use crate::container_manager::QosClass;

/// The group of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCgroupSpec {
    /// Whose.
    pub uid: PodUid,
    /// Decides under which tier it lies.
    pub class: QosClass,
    /// What it may use.
    pub limits: Limits,
}

/// Operations on the pods' groups. All are quick and local.
pub trait PodCgroups: Send + Sync + 'static {
    /// Makes the group of all pods and the tiers below it, where they are missing.
    fn prepare(&self) -> Result<(), CgroupError>;
    /// Sets the limits of the group of all pods. May fail while pods use more than
    /// that; then it is tried again.
    fn enforce(&self) -> Result<(), CgroupError>;
    /// Makes a pod's group, sets its limits, and answers the parent of its sandbox.
    /// A group that exists keeps a memory limit that is higher if what runs in it
    /// needs that; lowering it then is a resize, which may fail.
    fn ensure_pod(&self, pod: &PodCgroupSpec) -> Result<String, CgroupError>;
    /// The limits in force on a pod's group; one that is missing is an error.
    fn pod_limits(&self, uid: &PodUid, class: QosClass) -> Result<Limits, CgroupError>;
    /// Changes the limits of a pod's group that are given.
    fn set_pod_limits(&self, pod: &PodCgroupSpec) -> Result<(), CgroupError>;
    /// Bytes of memory that a pod uses now; `None` if the kernel does not tell.
    fn pod_memory(&self, uid: &PodUid, class: QosClass) -> Result<Option<u64>, CgroupError>;
    /// Path of a pod's group below the kernel's mounts; `None` if it has none.
    fn pod_path(&self, _uid: &PodUid, _class: QosClass) -> Option<String> {
        None
    }
    /// The same of the group of all pods.
    fn pods_path(&self) -> Option<String> {
        None
    }
    /// Kills whatever is left in a pod's group and removes it; absent is fine.
    fn remove_pod(&self, uid: &PodUid) -> Result<(), CgroupError>;
    /// Every pod that has a group, sorted.
    fn pods(&self) -> Result<Vec<PodUid>, CgroupError>;
    /// Sets the shares of the burstable tier, and the least for best effort.
    fn set_qos(&self, burstable_shares: u64) -> Result<(), CgroupError>;
}

/// A machine whose pods have no groups.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCgroups;

impl PodCgroups for NoCgroups {
    fn prepare(&self) -> Result<(), CgroupError> {
        Ok(())
    }
    fn enforce(&self) -> Result<(), CgroupError> {
        Ok(())
    }
    fn ensure_pod(&self, _: &PodCgroupSpec) -> Result<String, CgroupError> {
        Ok(String::new())
    }
    fn pod_limits(&self, _: &PodUid, _: QosClass) -> Result<Limits, CgroupError> {
        Ok(Limits::default())
    }
    fn set_pod_limits(&self, _: &PodCgroupSpec) -> Result<(), CgroupError> {
        Ok(())
    }
    fn pod_memory(&self, _: &PodUid, _: QosClass) -> Result<Option<u64>, CgroupError> {
        Ok(None)
    }
    fn remove_pod(&self, _: &PodUid) -> Result<(), CgroupError> {
        Ok(())
    }
    fn pods(&self) -> Result<Vec<PodUid>, CgroupError> {
        Ok(Vec::new())
    }
    fn set_qos(&self, _: u64) -> Result<(), CgroupError> {
        Ok(())
    }
}
