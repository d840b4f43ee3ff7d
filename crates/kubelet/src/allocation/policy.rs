//! May a pod have the size it asks for now? Pure.
//!
//! Upstream: pkg/kubelet/allocation/handlers.go, pkg/kubelet/lifecycle/predicate.go.

use k8s_openapi::api::core::v1::PodSpec;
use kubelet_model::PodResources;

use crate::container_manager::allocatable::Allocatable;
use crate::container_manager::amounts::Amounts;
use crate::container_manager::{QosClass, amounts, qos_class};

/// Requests of processors and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Requests {
    pub(super) cpu_milli: i64,
    pub(super) memory_bytes: i64,
}

/// Why a resize waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PendingReason {
    /// It may fit later, when other pods have gone or shrunk.
    Deferred,
    /// It can never be done.
    Infeasible,
}

impl PendingReason {
    /// The condition's reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }

    /// The label of metrics.
    pub fn as_label(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Infeasible => "infeasible",
        }
    }
}

/// A resize that is not done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For good, or for a while?
    pub reason: PendingReason,
    /// In words.
    pub message: String,
}

impl Requests {
    /// What a pod requests as a whole, its overhead included.
    pub(super) fn of(spec: &PodSpec) -> Self {
        let all = amounts::pod_requests(spec);
        let get = |name: &str| all.get(name).copied().unwrap_or(0);
        Self { cpu_milli: get("cpu"), memory_bytes: get("memory") }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// Does the other request more of anything?
    pub(super) fn grows_to(self, other: Self) -> bool {
        other.cpu_milli > self.cpu_milli || other.memory_bytes > self.memory_bytes
    }
}

/// What an allocation and what is in force hold of the node: until a pod has
/// shrunk, it holds what it had.
pub(super) fn held(spec: &PodSpec, actuated: Option<&PodResources>) -> Requests {
    let Some(actuated) = actuated else { return Requests::of(spec) };
    let mut in_force = spec.clone();
    let inits = in_force.init_containers.iter_mut().flatten();
    for container in inits.chain(&mut in_force.containers) {
        if let Some(own) = actuated.containers.get(&container.name) {
            container.resources = Some(own.clone());
        }
    }
    Requests::of(spec).max(Requests::of(&in_force))
}

/// The same of every resource.
pub(super) fn all_held(spec: &PodSpec, actuated: Option<&PodResources>) -> Amounts {
    let mut all = amounts::pod_requests(spec);
    let Requests { cpu_milli, memory_bytes } = held(spec, actuated);
    for (name, amount) in [("cpu", cpu_milli), ("memory", memory_bytes)] {
        if amount > 0 {
            all.insert(name.to_owned(), amount);
        }
    }
    all
}

/// Judges a resize from `allocated` to `asked`, beside pods that use `used`.
/// Without knowledge of the node everything fits.
pub(super) fn judge(
    asked: &PodSpec,
    allocated: &PodSpec,
    used: Requests,
    node: Option<Allocatable>,
) -> Result<(), Refusal> {
    if qos_class(asked) != qos_class(allocated) {
        // Its control group lies in the tier of its class, and cannot move. Upstream's
        // API server refuses such a change, in these words.
        let message = "Pod QOS Class may not change as a result of resizing".to_owned();
        return Err(Refusal { reason: PendingReason::Infeasible, message });
    }
    let Some(node) = node else { return Ok(()) };
    let wants = Requests::of(asked);
    for (resource, requested, used, capacity) in [
        ("cpu", wants.cpu_milli, used.cpu_milli, node.cpu_milli),
        ("memory", wants.memory_bytes, used.memory_bytes, node.memory_bytes),
    ] {
        if requested > 0 && requested > capacity.saturating_sub(used) {
            let message = format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, \
                 used: {used}, capacity: {capacity}"
            );
            return Err(Refusal { reason: PendingReason::Deferred, message });
        }
    }
    Ok(())
}

/// Guaranteed pods come before others of their priority.
pub(super) fn is_guaranteed(spec: &PodSpec) -> bool {
    qos_class(spec) == QosClass::Guaranteed
}
