//! What is counted of admission. Upstream: pkg/kubelet/metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Reasons that are labels of their own; others would be without number.
const KNOWN: [&str; 18] = [
    "AppArmor",
    "Evicted",
    "InvalidNodeInfo",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfephemeral-storage",
    "OutOfmemory",
    "OutOfpods",
    "PodFeatureUnsupported",
    "PodLevelResourcesNotSupported",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "SupplementalGroupsPolicyNotSupported",
    "SysctlForbidden",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "UnknownReason",
    "VolumeAttachmentLimitExceeded",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Signal {
    preemption_signal: String,
}

/// Metrics of admission. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AdmissionMetrics {
    rejections: Family<Reason, Counter>,
    preemptions: Family<Signal, Counter>,
}

impl AdmissionMetrics {
    /// Makes them part of `/metrics`.
    pub fn register(&self, to: &mut Registry) {
        to.register(
            "kubelet_admission_rejections",
            "Pods that were refused",
            self.rejections.clone(),
        );
        to.register(
            "kubelet_preemptions",
            "Pods that were ended to make room for a critical one",
            self.preemptions.clone(),
        );
    }

    /// A pod was refused.
    pub fn count_rejection(&self, reason: &str) {
        self.rejections.get_or_create(&Reason { reason: label(reason) }).inc();
    }

    /// A pod has made room for one that lacked this.
    pub fn count_preemption(&self, signal: &str) {
        self.preemptions.get_or_create(&Signal { preemption_signal: signal.to_owned() }).inc();
    }
}

pub(super) fn label(reason: &str) -> &'static str {
    match KNOWN.iter().find(|known| **known == reason) {
        Some(known) => known,
        None if reason.starts_with("OutOf") => "OutOfExtendedResources",
        None => "Other",
    }
}
