//! Checks of graceful node shutdown.

use super::Check;
use crate::go_duration::GoDuration;

impl Check<'_> {
    pub(super) fn shutdown(&mut self) {
        let c = self.c;
        let (zero, second) = (GoDuration::ZERO, GoDuration::from_secs(1));
        let total = c.shutdown_grace_period.unwrap_or(zero);
        let critical = c.shutdown_grace_period_critical_pods.unwrap_or(zero);
        let by_priority = c.shutdown_grace_period_by_pod_priority.as_deref().unwrap_or_default();
        let periods =
            [("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)];
        if self.gates.enabled("GracefulNodeShutdown") {
            if critical > total {
                let wrong =
                    format!("must not be longer than shutdownGracePeriod, which is {total}");
                self.bad("shutdownGracePeriodCriticalPods", critical, wrong);
            }
            for (path, period) in
                periods.into_iter().filter(|(_, p)| *p < zero || (*p > zero && *p < second))
            {
                self.bad(path, period, "must be zero, or 1s or longer");
            }
        } else {
            for (path, period) in periods.into_iter().filter(|(_, period)| *period > zero) {
                self.bad(path, period, "needs the feature gate GracefulNodeShutdown");
            }
        }
        if by_priority.is_empty() {
            return;
        }
        let path = "shutdownGracePeriodByPodPriority";
        let shown = format!("a list of {}", by_priority.len());
        if !self.gates.enabled("GracefulNodeShutdownBasedOnPodPriority") {
            self.bad(path, shown, "needs the feature gate GracefulNodeShutdownBasedOnPodPriority");
        } else if total > zero || critical > zero {
            self.bad(
                path,
                shown,
                "cannot stand with shutdownGracePeriod or shutdownGracePeriodCriticalPods",
            );
        }
    }
}
