//! Who ends when, and within what time. Pure.
//!
//! Upstream: migrateConfig and groupByPriority in pkg/kubelet/nodeshutdown.

use std::time::Duration;

use kubelet_model::pod::SYSTEM_CRITICAL;
use kubelet_model::{DesiredPod, Grace};

/// Priority of a pod that has none.
const USUAL: i32 = 0;

/// Pods from this priority on, up to that of the next group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    priority: i32,
    seconds: i64,
}

/// The groups, lowest priority first; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownPlan(Vec<Group>);

/// Pods that end together.
#[derive(Debug)]
pub(super) struct Doomed<'a> {
    /// What they get.
    pub(super) period: Duration,
    /// Each with what its containers get of that.
    pub(super) pods: Vec<(&'a DesiredPod, Grace)>,
}

impl ShutdownPlan {
    /// From `shutdownGracePeriodByPodPriority`, as pairs of priority and seconds; `None`
    /// if there are none.
    pub fn by_priority(groups: &[(i32, i64)]) -> Option<Self> {
        let group = |(priority, seconds): &(i32, i64)| Group {
            priority: *priority,
            seconds: (*seconds).max(0),
        };
        let mut groups: Vec<Group> = groups.iter().map(group).collect();
        groups.sort_by_key(|group| group.priority);
        (!groups.is_empty()).then_some(Self(groups))
    }

    /// From `shutdownGracePeriod` and the part of it that is for critical pods; `None` if
    /// there is none.
    pub fn of_periods(total: Duration, critical: Duration) -> Option<Self> {
        let usual = total.checked_sub(critical).filter(|_| !total.is_zero())?;
        let seconds = |period: Duration| i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
        Self::by_priority(&[(USUAL, seconds(usual)), (SYSTEM_CRITICAL, seconds(critical))])
    }

    /// What all groups get one after the other.
    pub fn total(&self) -> Duration {
        let seconds = self.0.iter().map(|group| group.seconds).fold(0, i64::saturating_add);
        Duration::from_secs(seconds.unsigned_abs())
    }

    /// The groups that have pods, in the order in which they end.
    pub(super) fn doomed<'a>(&self, pods: &[&'a DesiredPod]) -> Vec<Doomed<'a>> {
        let mut all: Vec<Doomed<'a>> = Vec::new();
        for (at, group) in self.0.iter().enumerate() {
            let mine = pods.iter().filter(|pod| self.group_of(pod) == at);
            let grace = |pod: &DesiredPod| {
                let own = Grace::seconds_of(pod.spec());
                Grace::from_secs(own.min(group.seconds))
            };
            let pods: Vec<_> = mine.map(|pod| (*pod, grace(pod))).collect();
            if !pods.is_empty() {
                let period = Duration::from_secs(group.seconds.unsigned_abs());
                all.push(Doomed { period, pods });
            }
        }
        all
    }

    /// The one with the highest priority that is not above the pod's, else the lowest.
    fn group_of(&self, pod: &DesiredPod) -> usize {
        let priority = pod.spec().priority.unwrap_or(USUAL);
        self.0.iter().rposition(|group| group.priority <= priority).unwrap_or(0)
    }
}

/// The drop-in by which logind waits long enough.
pub(super) fn drop_in(delay: Duration) -> String {
    format!(
        "# Written by klet for shutdownGracePeriod.\n[Login]\nInhibitDelayMaxSec={}\n",
        delay.as_secs()
    )
}
