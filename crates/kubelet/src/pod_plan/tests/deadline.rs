//! How long a pod may still be active.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kubelet_model::{DesiredPod, Source};

use super::dsl::{self, wall};
use crate::pod_plan::{Deadline, deadline};

fn check(seconds: Option<i64>, active: Option<i64>, expected: Deadline) {
    let mut pod = dsl::pod("web Never").pod().as_ref().clone();
    pod.spec.as_mut().expect("a spec").active_deadline_seconds = seconds;
    let pod = DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod");
    let start = active.map(|active| wall() - SignedDuration::from_secs(active));
    assert_eq!(deadline(&pod, start, wall()), expected, "{seconds:?} {active:?}");
}

#[test]
fn a_deadline_counts_from_the_start() {
    check(None, Some(1_000_000), Deadline::None);
    check(Some(10), None, Deadline::None);
    check(Some(10), Some(0), Deadline::In(Duration::from_secs(10)));
    check(Some(10), Some(9), Deadline::In(Duration::from_secs(1)));
    check(Some(10), Some(10), Deadline::Passed);
    check(Some(10), Some(11), Deadline::Passed);
    check(Some(0), Some(0), Deadline::Passed);
    check(Some(-1), Some(0), Deadline::Passed);
    check(Some(10), Some(-5), Deadline::In(Duration::from_secs(10)));
    check(Some(i64::MAX), Some(5), Deadline::In(Duration::from_secs(i64::MAX as u64 - 5)));
}
