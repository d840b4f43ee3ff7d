//! Monotonic time as plain data.
//!
//! Plans never read a clock; they get `now` as an argument. Monotonic instants
//! are distances from the agent's start, so they survive jumps of the wall clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time since the agent started, by a clock that never jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub Duration);

impl Mono {
    /// Time elapsed since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}
