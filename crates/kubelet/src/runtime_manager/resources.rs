//! Requests and limits as the kernel counts them.
//!
//! Upstream: pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go,
//! pkg/apis/core/v1/helper/qos.

use cri::v1;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_model::quantity::Quantity as Amount;

const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;
const QUOTA_PERIOD_US: i64 = 100_000;
const QUOTA_MIN_US: i64 = 1_000;

/// Quality-of-service class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosClass {
    /// Every container's limits are its requests.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// None at all.
    BestEffort,
}

impl QosClass {
    /// The text in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The class of a pod, from cpu and memory of its containers.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let mut any = false;
    let mut guaranteed = true;
    for container in &spec.containers {
        for resource in ["cpu", "memory"] {
            let (request, limit) = (
                amount(container, Kind::Request, resource),
                amount(container, Kind::Limit, resource),
            );
            any |= request > 0 || limit > 0;
            guaranteed &= limit > 0 && (request == limit || request == 0);
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Request,
    Limit,
}

/// Milli-cpus or bytes; zero if unset.
fn amount(container: &Container, kind: Kind, resource: &str) -> i64 {
    let Some(resources) = &container.resources else { return 0 };
    let map = match kind {
        Kind::Request => &resources.requests,
        Kind::Limit => &resources.limits,
    };
    let Some(Quantity(text)) = map.as_ref().and_then(|map| map.get(resource)) else { return 0 };
    let scale = if resource == "cpu" { Amount::milli } else { Amount::units };
    Amount::parse(text).map_or(0, scale)
}

/// What the runtime must enforce for one container.
pub(super) fn linux_resources(
    spec: &PodSpec,
    container: &Container,
    memory_bytes: u64,
) -> v1::LinuxContainerResources {
    let cpu_limit = amount(container, Kind::Limit, "cpu");
    let cpu_request = match amount(container, Kind::Request, "cpu") {
        0 => cpu_limit,
        request => request,
    };
    let quota = if cpu_limit == 0 {
        0
    } else {
        (cpu_limit.saturating_mul(QUOTA_PERIOD_US) / 1000).max(QUOTA_MIN_US)
    };
    v1::LinuxContainerResources {
        cpu_shares: (cpu_request.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX),
        cpu_quota: quota,
        cpu_period: QUOTA_PERIOD_US,
        memory_limit_in_bytes: amount(container, Kind::Limit, "memory"),
        oom_score_adj: oom_score_adj(spec, container, memory_bytes),
        ..Default::default()
    }
}

/// Who dies first when memory runs out.
fn oom_score_adj(spec: &PodSpec, container: &Container, memory_bytes: u64) -> i64 {
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return -997;
    }
    match qos_class(spec) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = i128::from(amount(container, Kind::Request, "memory"));
            let share = 1000 * request / i128::from(memory_bytes.max(1));
            i64::try_from(1000 - share).unwrap_or(3).clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(resources: &str) -> PodSpec {
        let json =
            format!(r#"{{"containers":[{{"name":"a","image":"i","resources":{resources}}}]}}"#);
        serde_json::from_str(&json).expect("test spec")
    }

    #[test]
    fn classes_and_values() {
        let gib = 1u64 << 30;
        for (resources, class, shares, quota, memory, oom) in [
            ("{}", QosClass::BestEffort, 2, 0, 0, 1000),
            (r#"{"requests":{"cpu":"500m"}}"#, QosClass::Burstable, 512, 0, 0, 999),
            (r#"{"requests":{"memory":"512Mi"}}"#, QosClass::Burstable, 2, 0, 0, 500),
            (
                r#"{"limits":{"cpu":"1","memory":"64Mi"}}"#,
                QosClass::Guaranteed,
                1024,
                100_000,
                64 << 20,
                -997,
            ),
            (
                r#"{"limits":{"cpu":"1m","memory":"64Mi"},"requests":{"memory":"1Mi"}}"#,
                QosClass::Burstable,
                2,
                1000,
                64 << 20,
                999,
            ),
        ] {
            let spec = spec(resources);
            let got = linux_resources(&spec, &spec.containers[0], gib);
            assert_eq!(qos_class(&spec), class, "{resources}");
            assert_eq!(
                (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes, got.oom_score_adj),
                (shares, quota, memory, oom),
                "{resources}"
            );
        }
    }
}
