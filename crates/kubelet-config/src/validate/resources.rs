//! Checks of cgroups, memory and user namespaces.

use super::{Check, is_set};
use crate::go_duration::GoDuration;

const IDS_UNIT: i64 = 65_536;

impl Check<'_> {
    pub(super) fn resources(&mut self) {
        let c = self.c;
        if is_set(&c.system_cgroups) && !is_set(&c.cgroup_root) {
            let shown = c.system_cgroups.clone().unwrap_or_default();
            self.bad("systemCgroups", shown, "needs cgroupRoot to be set as well");
        }
        let driver = c.cgroup_driver.as_deref().unwrap_or_default();
        if !matches!(driver, "cgroupfs" | "systemd") {
            self.advise(
                "cgroupDriver",
                format!("{driver:?} is neither cgroupfs nor systemd; cgroupfs is used"),
            );
        }
        self.quota_period();
        if c.fail_cgroup_v1 == Some(true) && !self.host.cgroup_v2 {
            let wrong =
                "this host uses cgroup v1; boot it with cgroup v2, or set failCgroupV1: false";
            self.bad("failCgroupV1", true, wrong);
        }
        if c.single_process_oom_kill == Some(false) && !self.host.cgroup_v2 {
            self.bad(
                "singleProcessOOMKill",
                false,
                "cgroup v1 cannot kill a whole container; leave it unset or true",
            );
        }
        let swap =
            c.memory_swap.as_ref().and_then(|swap| swap.swap_behavior.clone()).unwrap_or_default();
        self.one_of("memorySwap.swapBehavior", Some(&swap), &["", "NoSwap", "LimitedSwap"]);
        if swap == "LimitedSwap" && !self.host.cgroup_v2 {
            self.bad("memorySwap.swapBehavior", "\"LimitedSwap\"", "needs a host with cgroup v2");
        }
        if let Some(factor) =
            c.memory_throttling_factor.filter(|factor| !(*factor > 0.0 && *factor <= 1.0))
        {
            self.bad("memoryThrottlingFactor", factor, "must be more than 0 and at most 1");
        }
        self.one_of(
            "memoryReservationPolicy",
            c.memory_reservation_policy.as_ref(),
            &["None", "TieredReservation"],
        );
        let tiered = c.memory_reservation_policy.as_deref() == Some("TieredReservation");
        if tiered && !self.gates.enabled("MemoryQoS") {
            self.bad(
                "memoryReservationPolicy",
                "\"TieredReservation\"",
                "needs the feature gate MemoryQoS",
            );
        }
        let ids = c.user_namespaces.as_ref().and_then(|user| user.ids_per_pod);
        if let Some(ids) =
            ids.filter(|ids| *ids < IDS_UNIT || *ids % IDS_UNIT != 0 || *ids > i64::from(u32::MAX))
        {
            self.bad(
                "userNamespaces.idsPerPod",
                ids,
                "must be a multiple of 65536 below 4294967296",
            );
        }
    }

    fn quota_period(&mut self) {
        let path = "cpuCFSQuotaPeriod";
        let period = self.c.cpu_cfs_quota_period.unwrap_or_default();
        if self.gates.enabled("CustomCPUCFSQuotaPeriod") {
            self.range(path, Some(period), GoDuration::from_millis(1), GoDuration::from_secs(1));
        } else if period != GoDuration::from_millis(100) {
            self.bad(
                path,
                period,
                "anything but 100ms needs the feature gate CustomCPUCFSQuotaPeriod",
            );
        }
    }
}
