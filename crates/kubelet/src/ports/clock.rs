//! Wall and monotonic time.

use jiff::Timestamp;
use kubelet_model::Mono;
use tokio::time::Instant;

/// Reads time. Sleeping is `tokio::time`, which simulation pauses and advances.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time; may jump either way.
    fn wall(&self) -> Timestamp;
    /// Time since the agent started; never jumps.
    fn mono(&self) -> Mono;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic zero is now.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
    fn mono(&self) -> Mono {
        Mono(self.started.elapsed())
    }
}
