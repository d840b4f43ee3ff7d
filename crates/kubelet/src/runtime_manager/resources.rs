//! A container's requests and limits as the runtime is told them.
//!
//! Pure. Upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
//! pkg/kubelet/qos/policy.go.

use cgroups::page_size_text;
use cri::v1;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::DesiredPod;

pub use crate::container_manager::qos_class;

use crate::container_manager::amounts::{
    self, Amounts, Side, has_pod_level, is_sidecar, of_container, of_pod_level,
};
use crate::container_manager::plan::{cpu_quota_us, cpu_shares};
use crate::container_manager::{QosClass, Rules, Swap};

/// Score of what must die last.
const OOM_GUARANTEED: i64 = -997;
/// Score of what may die first.
const OOM_BEST_EFFORT: i64 = 1000;

/// What the runtime sets on a container's group and processes.
pub(super) fn linux_resources(
    pod: &DesiredPod,
    container: &Container,
    rules: &Rules,
    memory_bytes: u64,
) -> v1::LinuxContainerResources {
    let spec = pod.spec();
    let requests = of_container(container, Side::Request);
    let limits = effective_limits(spec, container);
    let mut resources = v1::LinuxContainerResources {
        oom_score_adj: oom_score_adj(pod, container, memory_bytes),
        hugepage_limits: huge_page_limits(&limits, rules),
        ..processors_and_memory(&requests, &limits, rules)
    };
    set_swap(&mut resources, pod, container, rules, memory_bytes);
    resources
}

/// What containers, sandboxes and overheads have in common: shares, quota, memory.
/// A processor request that is not named is as large as the limit.
pub(super) fn processors_and_memory(
    requests: &Amounts,
    limits: &Amounts,
    rules: &Rules,
) -> v1::LinuxContainerResources {
    let limit = |name: &str| limits.get(name).copied().unwrap_or(0);
    let request = requests.get("cpu").copied().unwrap_or_else(|| limit("cpu"));
    let mut resources = v1::LinuxContainerResources {
        cpu_shares: i64::try_from(cpu_shares(request)).unwrap_or(i64::MAX),
        memory_limit_in_bytes: limit("memory"),
        ..Default::default()
    };
    if rules.cpu_quota {
        resources.cpu_quota = cpu_quota_us(limit("cpu"), rules.cpu_period_us);
        resources.cpu_period = i64::try_from(rules.cpu_period_us).unwrap_or(i64::MAX);
    }
    if rules.unified && rules.oom_ends_container {
        resources.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

/// A container that names no limit may use as much as its pod.
fn effective_limits(spec: &PodSpec, container: &Container) -> Amounts {
    let mut limits = of_container(container, Side::Limit);
    if has_pod_level(spec) {
        for (name, whole) in of_pod_level(spec, Side::Limit) {
            let huge = name.starts_with("hugepages-");
            let own = limits.entry(name).or_insert(whole);
            // A limit of no huge pages is a limit; of no memory is none.
            if *own == 0 && !huge {
                *own = whole;
            }
        }
    }
    limits
}

/// Every page size of the machine, nothing of those not asked for.
fn huge_page_limits(limits: &Amounts, rules: &Rules) -> Vec<v1::HugepageLimit> {
    let asked = amounts::huge_pages(limits);
    let sizes = rules.huge_page_sizes.iter();
    sizes
        .map(|size| v1::HugepageLimit {
            page_size: page_size_text(*size),
            limit: asked.get(size).copied().unwrap_or(0),
        })
        .collect()
}

fn set_swap(
    resources: &mut v1::LinuxContainerResources,
    pod: &DesiredPod,
    container: &Container,
    rules: &Rules,
    memory_bytes: u64,
) {
    if rules.swap == Swap::Unlimitable {
        return;
    }
    if !rules.unified {
        // Memory and swap together no more than memory: no swap.
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
        return;
    }
    let bytes = match rules.swap {
        Swap::Limited { bytes } if !pod.is_critical() => {
            swap_share(pod.spec(), container, bytes, memory_bytes)
        }
        _ => 0,
    };
    resources.unified.insert("memory.swap.max".to_owned(), bytes.to_string());
}

/// Swap in proportion to the request, for burstable containers that can outgrow it.
fn swap_share(spec: &PodSpec, container: &Container, swap: u64, memory: u64) -> u64 {
    let own = |side| of_container(container, side).get("memory").copied().unwrap_or(0);
    let (request, limit) = (own(Side::Request), own(Side::Limit));
    let request_bytes = u64::try_from(request).unwrap_or(0);
    if qos_class(spec) != QosClass::Burstable
        || request == limit
        || memory == 0
        || request_bytes > memory
    {
        return 0;
    }
    let share = u128::from(request_bytes) * u128::from(swap) / u128::from(memory);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Who dies first when memory runs out.
fn oom_score_adj(pod: &DesiredPod, container: &Container, memory_bytes: u64) -> i64 {
    let spec = pod.spec();
    let node_critical = spec.priority_class_name.as_deref() == Some("system-node-critical");
    if pod.is_critical() && node_critical {
        return OOM_GUARANTEED;
    }
    match qos_class(spec) {
        QosClass::Guaranteed => return OOM_GUARANTEED,
        QosClass::BestEffort => return OOM_BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let request =
        |c: &Container| of_container(c, Side::Request).get("memory").copied().unwrap_or(0);
    let spread = unassigned_memory(spec);
    let score = |request: i64| {
        let share = 1000 * (i128::from(request) + i128::from(spread));
        i64::try_from(1000 - share / i128::from(memory_bytes.max(1))).unwrap_or(i64::MIN)
    };
    let mut adjust = score(request(container));
    let mut init = spec.init_containers.iter().flatten();
    if is_sidecar(container) && init.any(|c| c.name == container.name) {
        // A sidecar must not die before the containers that it serves.
        let smallest = spec.containers.iter().map(request).min().unwrap_or(0);
        adjust = adjust.min(score(smallest));
    }
    match adjust {
        OOM_BEST_EFFORT => OOM_BEST_EFFORT - 1,
        adjust => adjust.max(OOM_BEST_EFFORT + OOM_GUARANTEED),
    }
}

/// What the pod as a whole requests beyond its containers, per container.
fn unassigned_memory(spec: &PodSpec) -> i64 {
    let pod_level = of_pod_level(spec, Side::Request).get("memory").copied().unwrap_or(0);
    if pod_level == 0 {
        return 0;
    }
    let assigned = amounts::of_containers(spec, Side::Request, |_| {});
    let rest = pod_level.saturating_sub(assigned.get("memory").copied().unwrap_or(0));
    let count = spec.containers.len() + spec.init_containers.iter().flatten().count();
    rest / i64::try_from(count.max(1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use kubelet_model::Source;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn pod(spec: &str) -> DesiredPod {
        let json =
            format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{{{spec}}}}}"#);
        let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
        kubelet_model::manifest::default_pod(&mut pod);
        DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
    }

    fn one(resources: &str) -> DesiredPod {
        pod(&format!(r#""containers":[{{"name":"a","resources":{resources}}}]"#))
    }

    fn first(pod: &DesiredPod, rules: &Rules) -> v1::LinuxContainerResources {
        linux_resources(pod, &pod.spec().containers[0], rules, GIB)
    }

    #[test]
    fn values_of_one_container() {
        for (resources, shares, quota, memory, oom) in [
            ("{}", 2, 0, 0, 1000),
            (r#"{"requests":{"cpu":"500m"}}"#, 512, 0, 0, 999),
            (r#"{"requests":{"cpu":"0"},"limits":{"cpu":"1"}}"#, 2, 100_000, 0, 999),
            (r#"{"requests":{"memory":"512Mi"}}"#, 2, 0, 0, 500),
            (r#"{"requests":{"memory":"2Gi"}}"#, 2, 0, 0, 3),
            (r#"{"limits":{"cpu":"1","memory":"64Mi"}}"#, 1024, 100_000, 64 << 20, -997),
            (
                r#"{"limits":{"cpu":"1m","memory":"64Mi"},"requests":{"memory":"1Mi"}}"#,
                2,
                1000,
                64 << 20,
                999,
            ),
        ] {
            let got = first(&one(resources), &Rules::default());
            assert_eq!(
                (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes, got.oom_score_adj),
                (shares, quota, memory, oom),
                "{resources}"
            );
            assert_eq!(got.cpu_period, 100_000);
            assert_eq!(got.memory_swap_limit_in_bytes, 0);
            assert!(got.unified.is_empty() && got.hugepage_limits.is_empty());
        }
    }

    #[test]
    fn processor_limits_can_be_off_or_of_another_period() {
        let pod = one(r#"{"limits":{"cpu":"500m"}}"#);
        let off = first(&pod, &Rules { cpu_quota: false, ..Rules::default() });
        assert_eq!((off.cpu_quota, off.cpu_period, off.cpu_shares), (0, 0, 512));
        let short = first(&pod, &Rules { cpu_period_us: 10_000, ..Rules::default() });
        assert_eq!((short.cpu_quota, short.cpu_period), (5_000, 10_000));
    }

    #[test]
    fn every_page_size_of_the_machine_is_limited() {
        let rules = Rules { huge_page_sizes: vec![2 << 20, 1 << 30], ..Rules::default() };
        let limits = |pod: &DesiredPod| -> Vec<String> {
            let all = first(pod, &rules).hugepage_limits;
            all.iter().map(|limit| format!("{}={}", limit.page_size, limit.limit)).collect()
        };
        assert_eq!(limits(&one("{}")), ["2MB=0", "1GB=0"]);
        let asked = one(r#"{"limits":{"hugepages-2Mi":"4Mi","hugepages-64Ki":"1Mi"}}"#);
        assert_eq!(limits(&asked), ["2MB=4194304", "1GB=0"]);
        let spec = r#""resources":{"limits":{"hugepages-2Mi":"8Mi","hugepages-1Gi":"1Gi"}},
            "containers":[{"name":"a","resources":{"limits":{"hugepages-2Mi":"4Mi"}}}]"#;
        assert_eq!(limits(&pod(spec)), ["2MB=4194304", "1GB=1073741824"]);
    }

    #[test]
    fn version_2_kills_whole_containers_and_forbids_swap() {
        let rules = Rules { unified: true, swap: Swap::None, ..Rules::default() };
        let unified = |rules: &Rules| -> Vec<String> {
            let got = first(&one(r#"{"limits":{"memory":"64Mi"}}"#), rules);
            assert_eq!(got.memory_swap_limit_in_bytes, 0);
            got.unified.iter().map(|(key, value)| format!("{key}={value}")).collect()
        };
        assert_eq!(unified(&rules), ["memory.swap.max=0"]);
        let group = Rules { oom_ends_container: true, ..rules };
        assert_eq!(unified(&group), ["memory.oom.group=1", "memory.swap.max=0"]);
    }

    #[test]
    fn version_1_forbids_swap_beside_memory() {
        let rules = Rules { swap: Swap::None, ..Rules::default() };
        let got = first(&one(r#"{"limits":{"memory":"64Mi"}}"#), &rules);
        assert_eq!(got.memory_swap_limit_in_bytes, 64 << 20);
        assert!(got.unified.is_empty());
    }

    #[test]
    fn limited_swap_follows_requests() {
        let share = |resources: &str| {
            let pod = one(resources);
            swap_share(pod.spec(), &pod.spec().containers[0], 4 * GIB, GIB)
        };
        assert_eq!(share("{}"), 0);
        assert_eq!(share(r#"{"requests":{"memory":"256Mi"}}"#), GIB);
        assert_eq!(share(r#"{"requests":{"memory":"256Mi"},"limits":{"memory":"512Mi"}}"#), GIB);
        assert_eq!(share(r#"{"limits":{"memory":"256Mi"}}"#), 0);
        assert_eq!(share(r#"{"requests":{"memory":"2Gi"}}"#), 0);
        // Static pods are critical: they never swap.
        let rules =
            Rules { unified: true, swap: Swap::Limited { bytes: 4 * GIB }, ..Rules::default() };
        let got = first(&one(r#"{"requests":{"memory":"256Mi"}}"#), &rules);
        assert_eq!(got.unified["memory.swap.max"], "0");
    }

    #[test]
    fn a_pods_limits_hold_for_containers_without() {
        let spec = r#""resources":{"limits":{"cpu":"2","memory":"1Gi"}},
            "containers":[{"name":"a"},{"name":"b","resources":{"limits":{"cpu":"1"}}}]"#;
        let pod = pod(spec);
        let get = |index: usize| {
            linux_resources(&pod, &pod.spec().containers[index], &Rules::default(), GIB)
        };
        let (a, b) = (get(0), get(1));
        assert_eq!((a.cpu_quota, a.cpu_shares, a.memory_limit_in_bytes), (200_000, 2048, 1 << 30));
        assert_eq!((b.cpu_quota, b.cpu_shares, b.memory_limit_in_bytes), (100_000, 1024, 1 << 30));
    }

    #[test]
    fn scores() {
        let score = |spec: &str, name: &str| {
            let pod = pod(spec);
            let (_, container) = pod.container(name).expect("a container");
            oom_score_adj(&pod, &container, GIB)
        };
        let half = r#""resources":{"requests":{"memory":"512Mi"}}"#;
        let tenth = r#""resources":{"requests":{"memory":"103Mi"}}"#;
        let critical = format!(
            r#""priorityClassName":"system-node-critical","containers":[{{"name":"a",{half}}}]"#
        );
        assert_eq!(score(&critical, "a"), -997);
        let sidecar = format!(
            r#""initContainers":[{{"name":"s","restartPolicy":"Always",{tenth}}},{{"name":"i",{tenth}}}],
               "containers":[{{"name":"a",{half}}}]"#
        );
        assert_eq!(score(&sidecar, "a"), 500);
        assert_eq!(score(&sidecar, "s"), 500, "no more than the containers it serves");
        assert_eq!(score(&sidecar, "i"), 900);
        // 1 GiB − 256 MiB is divided between three containers: 256 MiB each.
        let whole = r#""resources":{"requests":{"memory":"1Gi"}},"initContainers":[{"name":"i"}],
            "containers":[{"name":"a","resources":{"requests":{"memory":"256Mi"}}},{"name":"b"}]"#;
        assert_eq!(score(whole, "a"), 500);
        assert_eq!(score(whole, "b"), 750);
    }
}
