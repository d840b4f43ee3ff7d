//! Quality-of-service classes.
//!
//! Pure. Upstream: pkg/apis/core/v1/helper/qos.

use k8s_openapi::api::core::v1::PodSpec;

use super::amounts::{Amounts, Side, of_container, of_pod_level};

/// Quality-of-service class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    /// Every container's limits are its requests.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// None at all.
    BestEffort,
}

impl QosClass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    /// The text in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The class of a defaulted pod, from processors and memory alone: those of the pod
/// as a whole if it names any resources, else of its containers and init containers.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut guaranteed = true;
    if spec.resources.is_some() {
        requests = positive(&of_pod_level(spec, Side::Request));
        let all_limits = of_pod_level(spec, Side::Limit);
        limits = positive(&all_limits);
        guaranteed = limits.len() == 2;
    } else {
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let own = positive(&of_container(container, Side::Limit));
            guaranteed &= own.len() == 2;
            sum(&mut limits, own);
            sum(&mut requests, positive(&of_container(container, Side::Request)));
        }
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if guaranteed && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

fn positive(amounts: &Amounts) -> Amounts {
    let counted = |name: &str, value: i64| matches!(name, "cpu" | "memory") && value > 0;
    let kept = amounts.iter().filter(|(name, value)| counted(name, **value));
    kept.map(|(name, value)| (name.clone(), *value)).collect()
}

fn sum(to: &mut Amounts, more: Amounts) {
    for (name, value) in more {
        let sum = to.entry(name).or_default();
        *sum = sum.saturating_add(value);
    }
}
