//! The limit of pulls per second: a bucket of tokens that never makes anybody wait.
//!
//! Plain data; the time is an argument. Upstream: pkg/kubelet/images/helpers.go.

use kubelet_model::Mono;

/// A token bucket, full at first.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Mono,
}

impl TokenBucket {
    /// `per_second` tokens come in, `burst` fit in.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second: f64::from(per_second), burst, tokens: burst, filled_at: Mono::default() }
    }

    /// Takes a token if there is one.
    pub fn take(&mut self, now: Mono) -> bool {
        let gained = now.since(self.filled_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled_at = now;
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = TokenBucket::new(2, 3);
        let mut granted = |millis| bucket.take(Mono(Duration::from_millis(millis)));
        assert_eq!([(); 4].map(|()| granted(0)), [true, true, true, false]);
        assert!(!granted(400));
        assert!(granted(500));
        assert!(!granted(501));
        // An hour fills it no further than the burst.
        assert_eq!([(); 4].map(|()| granted(3_600_000)), [true, true, true, false]);
    }
}
