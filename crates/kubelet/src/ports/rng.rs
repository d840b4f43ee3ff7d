//! Randomness, only for spreading timers and naming files.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Draws jitter from a seeded generator.
#[derive(Clone)]
pub struct Jitter(Arc<Mutex<StdRng>>);

impl Jitter {
    /// A generator that repeats itself for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// `base` × [1, 1.5): upstream's jitter for every periodic wake-up.
    pub fn spread(&self, base: Duration) -> Duration {
        let mut rng = self.0.lock().expect("jitter lock: no code panics while holding it");
        base.mul_f64(1.0 + rng.random_range(0.0..0.5))
    }

    /// A random length below this one.
    pub fn below(&self, longest: Duration) -> Duration {
        let mut rng = self.0.lock().expect("jitter lock: no code panics while holding it");
        longest.mul_f64(rng.random_range(0.0..1.0))
    }

    /// Any number, for names that must not collide.
    pub fn number(&self) -> u32 {
        let mut rng = self.0.lock().expect("jitter lock: no code panics while holding it");
        rng.random()
    }
}
