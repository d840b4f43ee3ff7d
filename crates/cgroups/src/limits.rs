//! Limits of a group, and how the two versions of control groups count a share.
//!
//! Pure. Upstream: pkg/kubelet/cm/types.go (ResourceConfig), cgroup_manager_linux.go.

use std::collections::BTreeMap;

/// Fewest shares the kernel takes.
pub const SHARES_MIN: u64 = 2;
/// Most shares the kernel takes.
pub const SHARES_MAX: u64 = 262_144;

/// What a group may use. A field that is `None` is left as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Part of the processors under contention; version 2 gets it as a weight.
    pub cpu_shares: Option<u64>,
    /// Processor time per period; negative for no limit, zero leaves it alone.
    pub cpu_quota_us: Option<i64>,
    /// Period of the quota.
    pub cpu_period_us: Option<u64>,
    /// Bytes of memory; negative for no limit, zero leaves it alone.
    pub memory_bytes: Option<i64>,
    /// Processes and threads; negative for no limit.
    pub pids: Option<i64>,
    /// Bytes of huge pages by page size in bytes. Where given, a page size of the
    /// machine that is not named is limited to nothing.
    pub huge_pages: Option<BTreeMap<u64, u64>>,
}

/// Version 2's weight, 1 to 10000, for version 1's shares.
pub fn weight_of_shares(shares: u64) -> u64 {
    1 + (shares.clamp(SHARES_MIN, SHARES_MAX) - SHARES_MIN) * 9_999 / (SHARES_MAX - SHARES_MIN)
}

/// Version 1's shares for version 2's weight.
pub fn shares_of_weight(weight: u64) -> u64 {
    (weight.clamp(1, 10_000) - 1) * (SHARES_MAX - SHARES_MIN) / 9_999 + SHARES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        for (shares, weight) in [
            (0, 1),
            (2, 1),
            (1024, 39),
            (512, 20),
            (4096, 157),
            (262_144, 10_000),
            (1 << 40, 10_000),
        ] {
            assert_eq!(weight_of_shares(shares), weight, "{shares}");
        }
        for (weight, shares) in [(0, 2), (1, 2), (39, 998), (100, 2597), (10_000, 262_144)] {
            assert_eq!(shares_of_weight(weight), shares, "{weight}");
        }
    }
}
