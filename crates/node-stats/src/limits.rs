//! What control groups may use, and how often they wanted more.
//!
//! Upstream: vendor/github.com/google/cadvisor/lib/container/common/helpers.go.

use crate::files::{self, FileError, Limit};
use crate::groups::Groups;

/// What a group may use. What its machine does not tell stays absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Weight of its processor time, as version 1 counts.
    pub cpu_shares: Option<u64>,
    /// Microseconds of processor time per period.
    pub cpu_quota: Option<Limit>,
    /// Microseconds of a period.
    pub cpu_period: Option<u64>,
    /// Periods in which it ran.
    pub periods: Option<u64>,
    /// Periods in which it was held back.
    pub throttled_periods: Option<u64>,
    /// For how long.
    pub throttled_nanos: Option<u64>,
    /// Periods in which it used what it had saved.
    pub bursts: Option<u64>,
    /// For how long.
    pub burst_nanos: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<Limit>,
    /// Bytes of swap; in version 1 with those of memory.
    pub swap: Option<Limit>,
    /// Bytes of memory it is meant to keep.
    pub reservation: Option<Limit>,
    /// The most memory it had.
    pub memory_peak: Option<u64>,
    /// How often memory was refused.
    pub memory_failures: Option<u64>,
    /// The kernel's memory on its behalf.
    pub kernel_memory: Option<u64>,
    /// Tasks it has.
    pub tasks: Option<u64>,
    /// Tasks it may have.
    pub tasks_max: Option<Limit>,
}

impl Groups {
    /// Reads the limits of a group.
    pub fn limits(&self, group: &str) -> Result<GroupLimits, FileError> {
        let mut limits =
            if self.is_unified() { self.limits_v2(group)? } else { self.limits_v1(group)? };
        if let Some(dir) = self.dir("pids", group) {
            limits.tasks = files::number(&dir.join("pids.current"))?;
            limits.tasks_max = files::limit(&dir.join("pids.max"))?;
        }
        Ok(limits)
    }

    fn limits_v1(&self, group: &str) -> Result<GroupLimits, FileError> {
        let mut limits = GroupLimits::default();
        if let Some(dir) = self.dir("cpu", group) {
            limits.cpu_shares = files::number(&dir.join("cpu.shares"))?;
            limits.cpu_quota = files::limit(&dir.join("cpu.cfs_quota_us"))?;
            limits.cpu_period = files::number(&dir.join("cpu.cfs_period_us"))?;
            let text = files::read_if_any(&dir.join("cpu.stat"))?.unwrap_or_default();
            limits.periods = files::keyed(&text, "nr_periods");
            limits.throttled_periods = files::keyed(&text, "nr_throttled");
            limits.throttled_nanos = files::keyed(&text, "throttled_time");
            limits.bursts = files::keyed(&text, "nr_bursts");
            limits.burst_nanos = files::keyed(&text, "burst_time");
        }
        if let Some(dir) = self.dir("memory", group) {
            limits.memory = files::limit(&dir.join("memory.limit_in_bytes"))?;
            limits.swap = files::limit(&dir.join("memory.memsw.limit_in_bytes"))?;
            limits.reservation = files::limit(&dir.join("memory.soft_limit_in_bytes"))?;
            limits.memory_peak = files::number(&dir.join("memory.max_usage_in_bytes"))?;
            limits.memory_failures = files::number(&dir.join("memory.failcnt"))?;
            limits.kernel_memory = files::number(&dir.join("memory.kmem.usage_in_bytes"))?;
            let text = files::read_if_any(&dir.join("memory.oom_control"))?.unwrap_or_default();
            limits.oom_kills = files::keyed(&text, "oom_kill");
        }
        Ok(limits)
    }

    fn limits_v2(&self, group: &str) -> Result<GroupLimits, FileError> {
        let mut limits = GroupLimits::default();
        let Some(dir) = self.dir("memory", group) else { return Ok(limits) };
        limits.cpu_shares = files::number(&dir.join("cpu.weight"))?.map(shares_of_weight);
        let path = dir.join("cpu.max");
        if let Some(text) = files::read_if_any(&path)? {
            let parsed = text.trim().split_once(' ').and_then(|(quota, period)| {
                Some((Limit::parse(quota)?, period.parse::<u64>().ok()?))
            });
            let (quota, period) =
                parsed.ok_or_else(|| FileError::unexpected(&path, "a quota and a period"))?;
            (limits.cpu_quota, limits.cpu_period) = (Some(quota), Some(period));
        }
        let text = files::read_if_any(&dir.join("cpu.stat"))?.unwrap_or_default();
        limits.periods = files::keyed(&text, "nr_periods");
        limits.throttled_periods = files::keyed(&text, "nr_throttled");
        limits.throttled_nanos =
            files::keyed(&text, "throttled_usec").and_then(|micros| micros.checked_mul(1000));
        limits.bursts = files::keyed(&text, "nr_bursts");
        limits.burst_nanos =
            files::keyed(&text, "burst_usec").and_then(|micros| micros.checked_mul(1000));
        let text = files::read_if_any(&dir.join("memory.events"))?.unwrap_or_default();
        limits.oom_kills = files::keyed(&text, "oom_kill");
        limits.memory = files::limit(&dir.join("memory.max"))?;
        limits.swap = files::limit(&dir.join("memory.swap.max"))?;
        limits.reservation = files::limit(&dir.join("memory.min"))?;
        limits.memory_peak = files::number(&dir.join("memory.peak"))?;
        Ok(limits)
    }
}

/// Version 2's weights 1..10000 stand for version 1's shares 2..262144.
fn shares_of_weight(weight: u64) -> u64 {
    2 + weight.saturating_sub(1).saturating_mul(262_142) / 9999
}

#[cfg(test)]
mod tests {
    use super::shares_of_weight;

    #[test]
    fn shares() {
        for (weight, shares) in [(1, 2), (39, 998), (100, 2597), (10_000, 262_144)] {
            assert_eq!(shares_of_weight(weight), shares, "{weight}");
        }
    }
}
