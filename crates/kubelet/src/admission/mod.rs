//! Admission: may a pod run here, beside the pods that do?
//!
//! Owns nothing but the words. Pure judgement from a pod, what the admitted pods hold,
//! the Node and the host; the allocation, which knows all pods and is asked by one task
//! alone, keeps the verdicts, so that two pods never get the same processor. Told of the
//! Node by `join`, of pressure by whoever watches for it, of the machine's shutdown by
//! whoever hears of it. Never touches the runtime. Upstream: pkg/kubelet/lifecycle,
//! pkg/kubelet/preemption, the admit handlers of pkg/kubelet/eviction, sysctl,
//! nodeshutdown, and HandlePodAdditions in pkg/kubelet/kubelet.go.

mod affinity;
mod features;
mod fit;
mod inputs;
mod metrics;
mod node_view;
mod plan;
mod ports;
mod preemption;
mod pressure;
mod review;
mod rules;
mod taints;
#[cfg(test)]
mod tests;

pub use inputs::{Inputs, NodeNews, NodeNewsWriter, Reports, inputs};
pub use metrics::AdmissionMetrics;
pub use node_view::{NodeView, Taint};
pub use preemption::{DISRUPTION, MESSAGE as PREEMPTED, REASON as PREEMPTING};
pub use review::{Circumstances, Decision, Known, Recovered, decide};
pub use rules::Rules;

use kubelet_model::{Mono, PodUid};

/// Why a pod is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Upstream's word for it: part of what others rely on.
    pub reason: String,
    /// In full.
    pub message: String,
}

impl Rejection {
    pub(crate) fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// What was decided about a pod. It stands for this life of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Admitted,
    /// Nobody asks: it is being deleted.
    Leaving,
    /// Nobody asks: it has ended.
    Over,
    /// It may run once these have ended, or have had their time.
    Preempting {
        /// Who makes room for it.
        victims: Vec<PodUid>,
        /// When it is waited for no longer.
        until: Mono,
    },
    /// It may not run.
    Rejected(Rejection),
}

impl Verdict {
    /// The pod holds its share of the node for as long as something of it may run.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Admitted | Self::Leaving | Self::Preempting { .. })
    }
}

/// What a pod waits for before it can be judged or started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The Node object, as the API server has it now.
    Node,
    /// The runtime, to tell what it can do.
    Runtime,
    /// Pods that have to make room for it.
    Victims(Vec<PodUid>),
}
