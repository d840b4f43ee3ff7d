//! Rules about `activeDeadlineSeconds`: a pod ends when its time is up by the wall
//! clock, and not before.
//!
//! Looks at the manifests' record, the wall clock's jumps and the runtime's
//! sandboxes. Upstream: pkg/kubelet/active_deadline.go, which compares the wall
//! clock with the status' start time, and so follows every jump.

use std::time::Duration;

use jiff::SignedDuration;

use crate::checkers::ReportedPod;
use crate::manifest::PodTemplate;
use crate::runtime::Sandbox;
use crate::world::State;

/// Start times are kept in whole seconds.
const ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// Reason of a pod whose time was up.
const EXCEEDED: &str = "DeadlineExceeded";

impl State {
    /// May the time of a pod of this revision be up, by some reading of the wall
    /// clock since its text appeared?
    pub(crate) fn deadline_explains_stop(&self, revision: u64) -> bool {
        let deadlines = self.oracle.kin_templates(revision).filter_map(|t| t.deadline_secs).min();
        let (Some(seconds), Some(since)) = (deadlines, self.oracle.first_published(revision))
        else {
            return false;
        };
        let allowed = SignedDuration::from_secs(seconds.into());
        longest_span(&self.wall_jumps, since, self.now()) + ROUNDING >= allowed
    }

    /// Is the time of a pod up for sure? Its agent counts from no later than its
    /// first sandbox; one that was restarted counts from the oldest that is left.
    pub(crate) fn deadline_is_over(&self, template: &PodTemplate, sandboxes: &[&Sandbox]) -> bool {
        let Some(seconds) = template.deadline_secs else { return false };
        let oldest = sandboxes.iter().map(|sandbox| sandbox.created_ns).min();
        let allowed_ns = i64::from(seconds).saturating_mul(1_000_000_000);
        oldest.is_some_and(|at| self.wall_ns() > at.saturating_add(allowed_ns))
    }
}

/// Was a pod ended because its time was up?
pub(crate) fn was_exceeded(pod: &ReportedPod) -> bool {
    pod.phase == "Failed" && pod.reason.as_deref() == Some(EXCEEDED)
}

/// The longest time between two readings of a clock, the later one after the
/// earlier, while it was moved about.
fn longest_span(
    jumps: &[(Duration, SignedDuration)],
    since: Duration,
    now: Duration,
) -> SignedDuration {
    let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    let before = jumps.iter().rev().find(|(at, _)| *at <= since);
    let mut offset = before.map_or(SignedDuration::ZERO, |(_, offset)| *offset);
    let (mut lowest, mut longest) = (signed(since) + offset, SignedDuration::ZERO);
    for (at, moved) in jumps.iter().filter(|(at, _)| *at > since && *at <= now) {
        longest = longest.max(signed(*at) + offset - lowest);
        offset = *moved;
        longest = longest.max(signed(*at) + offset - lowest);
        lowest = lowest.min(signed(*at) + offset);
    }
    longest.max(signed(now) + offset - lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_moved_makes_for_longer_spans() {
        let secs = Duration::from_secs;
        let moved = SignedDuration::from_secs;
        let span = |jumps: &[(Duration, SignedDuration)], since: u64| {
            longest_span(jumps, secs(since), secs(100)).as_secs()
        };
        assert_eq!(span(&[], 40), 60);
        let forward = [(secs(50), moved(1_000))];
        assert_eq!((span(&forward, 40), span(&forward, 60)), (1_060, 40));
        // Back: what is read later lies before, so that only the rest counts.
        let back = [(secs(50), moved(-1_000))];
        assert_eq!(span(&back, 40), 50);
        let both = [(secs(50), moved(-1_000)), (secs(60), moved(0))];
        assert_eq!(span(&both, 40), 1_050);
    }
}
