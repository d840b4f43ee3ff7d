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
    /// May the time of a pod of this revision be up?
    pub(crate) fn deadline_explains_stop(&self, revision: u64) -> bool {
        self.deadline_passed_at(revision).is_some()
    }

    /// When the time of a pod of this revision may first have been up, by some reading
    /// of the wall clock since its text appeared.
    pub(crate) fn deadline_passed_at(&self, revision: u64) -> Option<Duration> {
        let seconds = self.oracle.kin_templates(revision).filter_map(|t| t.deadline_secs).min()?;
        let since = self.oracle.first_published(revision)?;
        let allowed = SignedDuration::from_secs(seconds.into()) - ROUNDING;
        passed_at(&self.wall_jumps, since, self.now(), allowed)
    }

    /// Is the time of a pod up for sure? Its agent counts from no later than its oldest
    /// sandbox, or than its own start: start times are kept in memory only, as by an
    /// upstream kubelet without an API server.
    pub(crate) fn deadline_is_over(&self, template: &PodTemplate, sandboxes: &[&Sandbox]) -> bool {
        let Some(seconds) = template.deadline_secs else { return false };
        let oldest = sandboxes.iter().map(|sandbox| sandbox.created_ns).min();
        let allowed_ns = i64::from(seconds).saturating_mul(1_000_000_000);
        let in_this_life = self.oracle.life_began() + Duration::from_secs(seconds.into());
        self.now() > in_this_life
            && oldest.is_some_and(|at| self.wall_ns() > at.saturating_add(allowed_ns))
    }
}

/// Was a pod ended because its time was up?
pub(crate) fn was_exceeded(pod: &ReportedPod) -> bool {
    pod.phase == "Failed" && pod.reason.as_deref() == Some(EXCEEDED)
}

/// The first instant at which a clock that is moved about has been read `allowed` later
/// than at some instant before.
fn passed_at(
    jumps: &[(Duration, SignedDuration)],
    since: Duration,
    now: Duration,
    allowed: SignedDuration,
) -> Option<Duration> {
    let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    let before = jumps.iter().rev().find(|(at, _)| *at <= since);
    let mut offset = before.map_or(SignedDuration::ZERO, |(_, offset)| *offset);
    let (mut lowest, mut from) = (signed(since) + offset, since);
    let later = jumps.iter().filter(|(at, _)| *at > since && *at <= now);
    for (until, moved) in later.copied().chain([(now, SignedDuration::ZERO)]) {
        let passes = lowest + allowed - offset;
        if passes <= signed(until) {
            return Some(from.max(Duration::try_from(passes).unwrap_or(from)));
        }
        (offset, from) = (moved, until);
        lowest = lowest.min(signed(until) + offset);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_moved_takes_the_deadline_along() {
        let (secs, moved) = (Duration::from_secs, SignedDuration::from_secs);
        let passes = |jumps: &[(Duration, SignedDuration)], since: u64, allowed: i64| {
            passed_at(jumps, secs(since), secs(100), moved(allowed)).map(|at| at.as_secs())
        };
        assert_eq!([60, 61].map(|allowed| passes(&[], 40, allowed)), [Some(100), None]);
        let forward = [(secs(50), moved(1_000))];
        let passed = [5, 500, 1_060, 1_061].map(|allowed| passes(&forward, 40, allowed));
        assert_eq!(passed, [Some(45), Some(50), Some(100), None]);
        assert_eq!(passes(&forward, 60, 50), None, "the jump came before");
        // Back: what is read later lies before, so that only the rest counts.
        let back = [(secs(50), moved(-1_000))];
        assert_eq!([50, 51].map(|allowed| passes(&back, 40, allowed)), [Some(100), None]);
        let both = [(secs(50), moved(-1_000)), (secs(60), moved(0))];
        assert_eq!([500, 1_050].map(|allowed| passes(&both, 40, allowed)), [Some(60), Some(100)]);
    }
}
