//! When a loop last came around, for those who ask whether it still does.
//!
//! Written by the loop, read by the servers. Upstream: syncLoopMonitor in
//! pkg/kubelet/kubelet.go.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A loop that has nothing to do comes around at least this often.
pub const BEAT: Duration = Duration::from_secs(60);

/// When it last came around; `None` before the first time. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Mutex<Option<Instant>>>);

impl Pulse {
    /// It comes around.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long ago that was. A loop that has not begun is late for nothing.
    pub fn age(&self) -> Option<Duration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| last.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pulse_grows_old_until_it_beats() {
        let pulse = Pulse::default();
        assert_eq!(pulse.age(), None);
        pulse.beat();
        tokio::time::advance(BEAT).await;
        assert_eq!(pulse.clone().age(), Some(BEAT));
        pulse.clone().beat();
        assert_eq!(pulse.age(), Some(Duration::ZERO));
    }
}
