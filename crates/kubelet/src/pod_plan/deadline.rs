//! How long a pod may still be active: `activeDeadlineSeconds`.
//!
//! Reads the pod and when it started; decides nothing else about it.
//! Upstream: pkg/kubelet/active_deadline.go.

use std::time::Duration;

use jiff::Timestamp;
use kubelet_model::DesiredPod;

/// Where a pod stands with its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// It has none, or has not started.
    None,
    /// It passes after this long.
    In(Duration),
    /// The pod must fail.
    Passed,
}

/// Where a pod that started at `start_time` stands. A wall clock that jumped
/// back behind the start makes the pod as good as new, never older.
pub fn deadline(pod: &DesiredPod, start_time: Option<Timestamp>, wall: Timestamp) -> Deadline {
    let (Some(seconds), Some(start)) = (pod.spec().active_deadline_seconds, start_time) else {
        return Deadline::None;
    };
    let allowed = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let active = Duration::try_from(wall.duration_since(start)).unwrap_or(Duration::ZERO);
    match allowed.checked_sub(active) {
        Some(left) if !left.is_zero() => Deadline::In(left),
        _ => Deadline::Passed,
    }
}
