//! Resources of pods: classes, amounts, and the control groups that enforce them.
//!
//! Owns the `kubepods` group, its tiers and the pods' groups. Reads pods' specs and
//! the machine's capacity. Writes control groups through the port. Never touches a
//! container's own group, which is the runtime's, and never decides when a pod's
//! group is made or removed. Upstream: pkg/kubelet/cm, pkg/kubelet/qos.

pub mod allocatable;
pub mod amounts;
pub(crate) mod config;
mod executor;
pub mod machine;
pub mod plan;
mod qos;
mod rules;
#[cfg(test)]
mod tests;
pub mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;

use cgroups::{CgroupError, Limits};
use kubelet_model::{DesiredPod, PodUid};

pub use executor::{Enforced, NodeCgroups, NodeGroups, Reservation};
pub use machine::{disk_bytes, machine_capacity};
pub use qos::{QosClass, qos_class};
pub use rules::{Rules, Swap};

use crate::ports::{PodCgroupSpec, PodCgroups};

/// The event reason of a pod whose group could not be made.
pub const FAILED_CREATE: &str = "FailedCreatePodContainer";

/// Message of that event.
pub fn failed_create_message(error: &CgroupError) -> String {
    format!("unable to ensure pod container exists: {error}")
}

/// Makes and removes pods' groups. Cheap to clone.
#[derive(Clone)]
pub struct PodContainers {
    port: Arc<dyn PodCgroups>,
    rules: Rules,
}

impl PodContainers {
    /// A handle on the pods' groups.
    pub fn new(port: Arc<dyn PodCgroups>, rules: Rules) -> Self {
        Self { port, rules }
    }

    /// Makes the pod's group and answers what its sandbox names as parent: nothing,
    /// where pods have no groups.
    pub fn ensure(&self, pod: &DesiredPod) -> Result<String, CgroupError> {
        if !self.rules.pod_groups {
            return Ok(String::new());
        }
        self.port.ensure_pod(&PodCgroupSpec {
            uid: pod.uid().clone(),
            class: qos_class(pod.spec()),
            limits: plan::pod_group(pod.spec(), &self.rules),
        })
    }

    /// The limits in force on the pod's group; `None` where pods have no groups.
    pub fn limits(&self, pod: &DesiredPod) -> Result<Option<Limits>, CgroupError> {
        if !self.rules.pod_groups {
            return Ok(None);
        }
        self.port.pod_limits(pod.uid(), qos_class(pod.spec())).map(Some)
    }

    /// What the limits of the pod's group should be.
    pub fn wanted_limits(&self, pod: &DesiredPod) -> Limits {
        plan::pod_group(pod.spec(), &self.rules)
    }

    /// Changes the limits of the pod's group that are given.
    pub fn set_limits(&self, pod: &DesiredPod, limits: Limits) -> Result<(), CgroupError> {
        let (uid, class) = (pod.uid().clone(), qos_class(pod.spec()));
        self.port.set_pod_limits(&PodCgroupSpec { uid, class, limits })
    }

    /// Bytes of memory that the pod uses now, where the kernel tells.
    pub fn memory_usage(&self, pod: &DesiredPod) -> Result<Option<u64>, CgroupError> {
        self.port.pod_memory(pod.uid(), qos_class(pod.spec()))
    }

    /// Removes the pod's group with whatever still runs in it.
    pub fn remove(&self, uid: &PodUid) -> Result<(), CgroupError> {
        if self.rules.pod_groups { self.port.remove_pod(uid) } else { Ok(()) }
    }

    /// Gives the burstable tier what its pods request together. To be called when a
    /// pod comes or goes, and every minute.
    pub fn refresh_qos<'a>(
        &self,
        pods: impl Iterator<Item = &'a DesiredPod>,
    ) -> Result<(), CgroupError> {
        if self.rules.pod_groups { self.port.set_qos(plan::burstable_shares(pods)) } else { Ok(()) }
    }

    /// Removes the groups of pods that nobody knows any more. Only to be called
    /// once every source has told its pods.
    pub fn remove_orphans(&self, known: &BTreeSet<PodUid>) -> Result<(), CgroupError> {
        let mut outcome = Ok(());
        for uid in self.orphans(known)? {
            tracing::info!(pod = %uid, "removing the control group of a pod that is no more");
            // One that cannot be removed must not keep the others.
            outcome = outcome.and(self.remove(&uid));
        }
        outcome
    }

    /// Groups of pods that nobody knows any more. Only to be asked once every source
    /// has delivered.
    pub fn orphans(&self, known: &BTreeSet<PodUid>) -> Result<Vec<PodUid>, CgroupError> {
        if !self.rules.pod_groups {
            return Ok(Vec::new());
        }
        Ok(plan::orphans(&self.port.pods()?, known))
    }
}
