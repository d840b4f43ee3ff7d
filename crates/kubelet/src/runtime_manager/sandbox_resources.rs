//! What a sandbox itself costs, as the runtime is told.
//!
//! Pure. The runtime may size a virtual machine by it; the pod's cgroup is made
//! elsewhere. Upstream: pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go.

use cri::v1;
use k8s_openapi::api::core::v1::PodSpec;
use kubelet_model::quantity::Quantity;

const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;
const QUOTA_PERIOD_US: i64 = 100_000;
const QUOTA_MIN_US: i64 = 1_000;

/// The pod's overhead: requested and limited alike. Nothing if it names none.
pub(super) fn overhead(spec: &PodSpec) -> v1::LinuxContainerResources {
    let Some(overhead) = &spec.overhead else { return v1::LinuxContainerResources::default() };
    let amount = |name: &str| overhead.get(name).and_then(|text| Quantity::parse(&text.0));
    let cpu = amount("cpu").map_or(0, Quantity::milli).max(0);
    let quota = match cpu {
        0 => 0,
        cpu => (cpu.saturating_mul(QUOTA_PERIOD_US) / 1_000).max(QUOTA_MIN_US),
    };
    v1::LinuxContainerResources {
        cpu_shares: (cpu.saturating_mul(1_024) / 1_000).clamp(SHARES_MIN, SHARES_MAX),
        cpu_quota: quota,
        cpu_period: QUOTA_PERIOD_US,
        memory_limit_in_bytes: amount("memory").map_or(0, Quantity::units).max(0),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::pod;

    #[test]
    fn overhead_is_guaranteed() {
        let of = |spec: &str| overhead(pod(spec).spec());
        assert_eq!(of(""), v1::LinuxContainerResources::default());
        let expected = v1::LinuxContainerResources {
            cpu_shares: 256,
            cpu_quota: 25_000,
            cpu_period: 100_000,
            memory_limit_in_bytes: 64 << 20,
            ..Default::default()
        };
        assert_eq!(of(r#""overhead":{"cpu":"250m","memory":"64Mi"}"#), expected);
        let memory = of(r#""overhead":{"memory":"1Ki"}"#);
        assert_eq!((memory.cpu_shares, memory.cpu_quota), (2, 0));
    }
}
