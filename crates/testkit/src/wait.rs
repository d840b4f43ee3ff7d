//! Waiting for something to become true.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(50);

/// How many times slower than usual this machine is: `make vm` says so where it emulates.
const PATIENCE: &str = "KLET_PATIENCE";

fn patience() -> u32 {
    std::env::var(PATIENCE).ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Tries `attempt` until it succeeds, at most for `limit`, or longer on a machine that is
/// known to be slow; the error says `what` was awaited and why the last try failed.
pub fn eventually<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let (start, limit) = (Instant::now(), limit * patience());
    loop {
        let err = match attempt() {
            Ok(value) => return Ok(value),
            Err(err) => err,
        };
        if start.elapsed() >= limit {
            return Err(anyhow!("waited {limit:?} in vain for {what}: {err:#}"));
        }
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reason_is_told() {
        let mut tries = 0;
        let err = eventually(Duration::from_millis(120), "the moon", || -> Result<()> {
            tries += 1;
            Err(anyhow!("try {tries}"))
        });
        let err = err.unwrap_err().to_string();
        assert!(tries >= 2);
        assert!(err.contains("the moon") && err.contains(&format!("try {tries}")), "{err}");
    }
}
