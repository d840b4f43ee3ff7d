//! What the configuration and the machine say about pods' and containers' resources.

/// How requests and limits reach the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Pods have groups of their own, in tiers by class (`cgroupsPerQOS`).
    pub pod_groups: bool,
    /// Most processes of a pod (`podPidsLimit`).
    pub pod_pids: Option<i64>,
    /// Processor limits are enforced (`cpuCFSQuota`).
    pub cpu_quota: bool,
    /// Period of processor limits (`cpuCFSQuotaPeriod`).
    pub cpu_period_us: u64,
    /// Huge page sizes of the machine in bytes.
    pub huge_page_sizes: Vec<u64>,
    /// The machine has control groups version 2.
    pub unified: bool,
    /// Out of memory ends a whole container, not one process of it (`singleProcessOOMKill`).
    pub oom_ends_container: bool,
    /// Swap of containers.
    pub swap: Swap,
}

/// How containers may use swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// The kernel cannot limit it.
    Unlimitable,
    /// Not at all.
    None,
    /// In proportion to the memory they request, of so many bytes.
    Limited {
        /// Swap of the machine.
        bytes: u64,
    },
}

impl Default for Rules {
    /// Upstream's defaults on a machine that has little: control groups version 1, no
    /// huge pages, no limits on swap.
    fn default() -> Self {
        Self {
            pod_groups: true,
            pod_pids: None,
            cpu_quota: true,
            cpu_period_us: 100_000,
            huge_page_sizes: Vec::new(),
            unified: false,
            oom_ends_container: false,
            swap: Swap::Unlimitable,
        }
    }
}
