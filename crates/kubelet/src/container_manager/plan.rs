//! Values of the pods' groups, of the tiers above them, and which groups to remove.
//!
//! Pure. Upstream: pkg/kubelet/cm/helpers_linux.go, qos_container_manager_linux.go.

use std::collections::BTreeSet;

use cgroups::{Limits, SHARES_MAX, SHARES_MIN};
use k8s_openapi::api::core::v1::PodSpec;
use kubelet_model::{DesiredPod, PodUid};

use super::amounts::{self, Side};
use super::qos::{QosClass, qos_class};
use super::rules::Rules;

const QUOTA_MIN_US: i64 = 1_000;

/// Shares for thousandths of a processor.
pub fn cpu_shares(milli: i64) -> u64 {
    let shares = u64::try_from(milli).unwrap_or(0).saturating_mul(1024) / 1000;
    shares.clamp(SHARES_MIN, SHARES_MAX)
}

/// Processor time per period for thousandths of a processor; 0 for no limit.
pub fn cpu_quota_us(milli: i64, period_us: u64) -> i64 {
    if milli == 0 {
        return 0;
    }
    let period = i64::try_from(period_us).unwrap_or(i64::MAX);
    (milli.saturating_mul(period) / 1000).max(QUOTA_MIN_US)
}

/// What a pod's group may use.
pub fn pod_group(spec: &PodSpec, rules: &Rules) -> Limits {
    let requests = amounts::pod_requests(spec);
    let (mut all_limit_cpu, mut all_limit_memory) = (true, true);
    let limits = amounts::pod_limits(spec, |own| {
        all_limit_cpu &= own.get("cpu").is_some_and(|cpu| *cpu != 0);
        all_limit_memory &= own.get("memory").is_some_and(|memory| *memory != 0);
    });
    let pod_level = amounts::of_pod_level(spec, Side::Limit);
    all_limit_cpu |= pod_level.get("cpu").is_some_and(|cpu| *cpu != 0);
    all_limit_memory |= pod_level.get("memory").is_some_and(|memory| *memory != 0);

    let of = |list: &amounts::Amounts, name: &str| list.get(name).copied().unwrap_or(0);
    let quota = match rules.cpu_quota {
        true => cpu_quota_us(of(&limits, "cpu"), rules.cpu_period_us),
        false => -1,
    };
    let class = qos_class(spec);
    let (limits_cpu, limits_memory) = match class {
        QosClass::Guaranteed => (true, true),
        QosClass::Burstable => (all_limit_cpu, all_limit_memory),
        QosClass::BestEffort => (false, false),
    };
    Limits {
        cpu_shares: Some(match class {
            QosClass::BestEffort => SHARES_MIN,
            _ => cpu_shares(of(&requests, "cpu")),
        }),
        cpu_quota_us: limits_cpu.then_some(quota),
        cpu_period_us: limits_cpu.then_some(rules.cpu_period_us),
        memory_bytes: limits_memory.then(|| of(&limits, "memory")),
        pids: rules.pod_pids.filter(|pids| *pids > 0),
        huge_pages: Some(amounts::huge_pages(&requests)),
    }
}

/// Shares of the burstable tier: as much as its pods request together.
pub fn burstable_shares<'a>(pods: impl Iterator<Item = &'a DesiredPod>) -> u64 {
    let burstable = pods.filter(|pod| qos_class(pod.spec()) == QosClass::Burstable);
    let cpu = burstable.filter_map(|pod| amounts::pod_requests(pod.spec()).get("cpu").copied());
    cpu_shares(cpu.fold(0, i64::saturating_add))
}

/// Groups of pods that are neither desired nor still being ended.
pub fn orphans(groups: &[PodUid], known: &BTreeSet<PodUid>) -> Vec<PodUid> {
    groups.iter().filter(|uid| !known.contains(*uid)).cloned().collect()
}
