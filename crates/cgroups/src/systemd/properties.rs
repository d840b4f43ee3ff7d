//! What systemd is told of a slice: how it is made, and what it may use.
//!
//! Pure. Upstream: systemd/{common,v1,v2}.go of opencontainers/cgroups.

use crate::hierarchy::Version;
use crate::limits::{Limits, SHARES_MAX, SHARES_MIN, weight_of_shares};
use dbus::{Property, Value};

/// From this version on systemd takes a period for quotas.
const TAKES_PERIODS: u32 = 242;
/// systemd's "no limit".
const INFINITY: u64 = u64::MAX;
/// systemd counts quotas in hundredths of a processor.
const PERCENT_US: u64 = 10_000;
const SECOND_US: u64 = 1_000_000;
const PERIOD_DEFAULT_US: u64 = 100_000;

/// A new slice below `parent`. Accounting is on, so that the controllers are.
pub(super) fn of_new_slice(unit: &str, parent: &str, version: Version) -> Vec<Property> {
    let io = match version {
        Version::V1 => "BlockIOAccounting",
        Version::V2 => "IOAccounting",
    };
    vec![
        ("Description", Value::Text(format!("libcontainer container {unit}"))),
        ("Wants", Value::Texts(vec![parent.to_owned()])),
        ("MemoryAccounting", Value::Bool(true)),
        ("CPUAccounting", Value::Bool(true)),
        (io, Value::Bool(true)),
        ("TasksAccounting", Value::Bool(true)),
        ("DefaultDependencies", Value::Bool(false)),
    ]
}

/// The limits that systemd knows of; huge pages are not among them.
pub(super) fn of_limits(limits: &Limits, version: Version, systemd: u32) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut set = |name, value| properties.push((name, Value::Number(value)));
    if let Some(bytes) = limits.memory_bytes.filter(|bytes| *bytes != 0) {
        let name = match version {
            Version::V1 => "MemoryLimit",
            Version::V2 => "MemoryMax",
        };
        set(name, u64::try_from(bytes).unwrap_or(INFINITY));
    }
    if let Some(shares) = limits.cpu_shares {
        match version {
            Version::V1 => set("CPUShares", shares.clamp(SHARES_MIN, SHARES_MAX)),
            Version::V2 => set("CPUWeight", weight_of_shares(shares)),
        }
    }
    let period = limits.cpu_period_us.filter(|period| *period != 0);
    if let Some(period) = period.filter(|_| systemd >= TAKES_PERIODS) {
        set("CPUQuotaPeriodUSec", period);
    }
    let quota = limits.cpu_quota_us.filter(|quota| *quota != 0);
    if quota.is_some() || period.is_some() {
        let per_second = quota.and_then(|quota| per_second(quota, period));
        set("CPUQuotaPerSecUSec", per_second.unwrap_or(INFINITY));
    }
    if let Some(pids) = limits.pids {
        // systemd takes no zero.
        set("TasksMax", u64::try_from(pids).map_or(INFINITY, |pids| pids.max(1)));
    }
    properties
}

/// The same limits as systemd rounds them, for the kernel's files: systemd writes its
/// own value at its next reload.
pub(super) fn rounded(limits: &Limits) -> Limits {
    let period = limits.cpu_period_us.filter(|period| *period != 0);
    let quota = limits.cpu_quota_us.and_then(|quota| {
        let exact = per_second(quota, period)?;
        let quota = u128::from(exact) * u128::from(period.unwrap_or(PERIOD_DEFAULT_US));
        i64::try_from(quota / u128::from(SECOND_US)).ok()
    });
    Limits { cpu_quota_us: quota.or(limits.cpu_quota_us), ..limits.clone() }
}

/// Microseconds of processor time per second, rounded up to whole percents; `None`
/// for no limit.
fn per_second(quota: i64, period: Option<u64>) -> Option<u64> {
    let quota = u64::try_from(quota).ok().filter(|quota| *quota > 0)?;
    let period = period.unwrap_or(PERIOD_DEFAULT_US);
    let exact = u128::from(quota) * u128::from(SECOND_US) / u128::from(period);
    u64::try_from(exact).ok()?.checked_next_multiple_of(PERCENT_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(properties: &[Property]) -> String {
        let line = |(name, value): &Property| match value {
            Value::Number(INFINITY) => format!("{name}=infinity"),
            Value::Number(number) => format!("{name}={number}"),
            other => format!("{name}={other:?}"),
        };
        properties.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn limits_of_both_versions() {
        let all = Limits {
            cpu_shares: Some(1024),
            cpu_quota_us: Some(50_000),
            cpu_period_us: Some(100_000),
            memory_bytes: Some(64 << 20),
            pids: Some(100),
            huge_pages: None,
        };
        let none = Limits {
            cpu_shares: Some(0),
            cpu_quota_us: Some(-1),
            memory_bytes: Some(-1),
            pids: Some(-1),
            ..Limits::default()
        };
        for (limits, version, systemd, expected) in [
            (
                &all,
                Version::V2,
                252,
                "MemoryMax=67108864 CPUWeight=39 CPUQuotaPeriodUSec=100000 \
                 CPUQuotaPerSecUSec=500000 TasksMax=100",
            ),
            (
                &all,
                Version::V1,
                241,
                "MemoryLimit=67108864 CPUShares=1024 CPUQuotaPerSecUSec=500000 TasksMax=100",
            ),
            (
                &none,
                Version::V2,
                252,
                "MemoryMax=infinity CPUWeight=1 CPUQuotaPerSecUSec=infinity TasksMax=infinity",
            ),
            (&Limits::default(), Version::V2, 252, ""),
            (
                &Limits { memory_bytes: Some(0), pids: Some(0), ..Limits::default() },
                Version::V2,
                252,
                "TasksMax=1",
            ),
        ] {
            assert_eq!(text(&of_limits(limits, version, systemd)), expected);
        }
    }

    /// What systemd shows as whole percents is written to the kernel just so.
    #[test]
    fn quotas_are_rounded_up_to_percents() {
        for (quota, period, per_second, file) in [
            (50_000, 100_000, 500_000, 50_000),
            (12_345, 100_000, 130_000, 13_000),
            (1_000, 100_000, 10_000, 1_000),
            (5_001, 10_000, 510_000, 5_100),
        ] {
            let limits = Limits {
                cpu_quota_us: Some(quota),
                cpu_period_us: Some(period),
                ..Limits::default()
            };
            let told = of_limits(&limits, Version::V2, 0);
            assert_eq!(told, [("CPUQuotaPerSecUSec", Value::Number(per_second))]);
            assert_eq!(rounded(&limits).cpu_quota_us, Some(file));
        }
        let unlimited = Limits { cpu_quota_us: Some(-1), ..Limits::default() };
        assert_eq!(rounded(&unlimited), unlimited);
        assert_eq!(rounded(&Limits::default()), Limits::default());
    }

    #[test]
    fn a_slice_hangs_below_its_parent() {
        let made = of_new_slice("a-b.slice", "a.slice", Version::V1);
        assert_eq!(made[1], ("Wants", Value::Texts(vec!["a.slice".to_owned()])));
        assert!(made.contains(&("BlockIOAccounting", Value::Bool(true))));
    }
}
