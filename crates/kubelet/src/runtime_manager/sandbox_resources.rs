//! What a sandbox's containers may use and what it costs itself, as the runtime is
//! told.
//!
//! Pure. The runtime may size a virtual machine by it; the pod's cgroup is made
//! elsewhere. Upstream: pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go.

use cri::v1;
use k8s_openapi::api::core::v1::PodSpec;

use super::resources::processors_and_memory;
use crate::container_manager::Rules;
use crate::container_manager::amounts::{self, Side};

/// What the pod's containers need together, without the pod's overhead.
pub(super) fn of_containers(spec: &PodSpec, rules: &Rules) -> v1::LinuxContainerResources {
    let sum = |side| amounts::without_overhead(spec, side, |_| {});
    processors_and_memory(&sum(Side::Request), &sum(Side::Limit), rules)
}

/// The pod's overhead: requested and limited alike. Nothing if it names none.
pub(super) fn of_overhead(spec: &PodSpec, rules: &Rules) -> v1::LinuxContainerResources {
    if spec.overhead.is_none() {
        return v1::LinuxContainerResources::default();
    }
    let overhead = amounts::overhead(spec);
    processors_and_memory(&overhead, &overhead, rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::{pod, pod_with};

    fn text(resources: &v1::LinuxContainerResources) -> String {
        let v1::LinuxContainerResources { cpu_shares, cpu_quota, cpu_period, .. } = resources;
        format!("{cpu_shares} {cpu_quota}/{cpu_period} {}", resources.memory_limit_in_bytes)
    }

    #[test]
    fn overhead_is_guaranteed() {
        let of = |spec: &str| of_overhead(pod(spec).spec(), &Rules::default());
        assert_eq!(of(""), v1::LinuxContainerResources::default());
        let both = of(r#""overhead":{"cpu":"250m","memory":"64Mi"}"#);
        assert_eq!(text(&both), "256 25000/100000 67108864");
        assert_eq!(text(&of(r#""overhead":{"memory":"1Ki"}"#)), "2 0/100000 1024");
        assert_eq!(text(&of(r#""overhead":{"cpu":"1m"}"#)), "2 1000/100000 0");
    }

    #[test]
    fn containers_count_and_the_overhead_does_not() {
        let init = r#""initContainers":[{"name":"s","restartPolicy":"Always",
            "resources":{"requests":{"cpu":"250m"},"limits":{"memory":"1Mi"}}}]"#;
        let own = r#","resources":{"limits":{"cpu":"1","memory":"64Mi"}}"#;
        let overhead = r#""overhead":{"cpu":"1","memory":"1Gi"}"#;
        for (container, spec, expected) in [
            ("", "", "2 0/100000 0"),
            (own, "", "1024 100000/100000 67108864"),
            (own, overhead, "1024 100000/100000 67108864"),
            (own, init, "1280 100000/100000 68157440"),
            ("", r#""resources":{"limits":{"cpu":"2"}}"#, "2048 200000/100000 0"),
        ] {
            let got = of_containers(pod_with("", container, spec).spec(), &Rules::default());
            assert_eq!(text(&got), expected, "{container} {spec}");
        }
    }

    #[test]
    fn the_nodes_rules_hold_for_both() {
        let own = r#","resources":{"limits":{"cpu":"500m"}}"#;
        let pod = pod_with("", own, r#""overhead":{"cpu":"500m"}"#);
        let both = |rules: &Rules| {
            [of_containers(pod.spec(), rules), of_overhead(pod.spec(), rules)].map(|r| text(&r))
        };
        let short = Rules { cpu_period_us: 10_000, ..Rules::default() };
        assert_eq!(both(&short), ["512 5000/10000 0"; 2]);
        let unlimited = Rules { cpu_quota: false, ..Rules::default() };
        assert_eq!(both(&unlimited), ["512 0/0 0"; 2]);
        let whole = Rules { unified: true, oom_ends_container: true, ..Rules::default() };
        assert_eq!(of_containers(pod.spec(), &whole).unified["memory.oom.group"], "1");
    }
}
