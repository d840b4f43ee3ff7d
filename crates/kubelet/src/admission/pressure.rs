//! Pods that a node short of something takes on. Pure.
//!
//! Upstream: Admit in pkg/kubelet/eviction/eviction_manager.go.

use kubelet_model::DesiredPod;

use super::{Rejection, Taint, taints};
use crate::container_manager::{QosClass, qos_class};

const MEMORY: &str = "MemoryPressure";
/// What the control plane taints a node with that is short of memory.
const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Why the pod is refused while these conditions hold.
pub(super) fn refuse(
    pod: &DesiredPod,
    conditions: &[String],
    compares_taints: bool,
) -> Option<Rejection> {
    if conditions.is_empty() || pod.is_critical() {
        return None;
    }
    // Pods that set memory aside have it; only those that do not would be the next to go.
    if conditions == [MEMORY] {
        let taint = Taint {
            key: MEMORY_TAINT.to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        };
        if qos_class(pod.spec()) != QosClass::BestEffort
            || taints::tolerates(pod.spec(), &taint, compares_taints)
        {
            return None;
        }
    }
    let message = format!("The node had condition: [{}]. ", conditions.join(" "));
    Some(Rejection::new("Evicted", message))
}
