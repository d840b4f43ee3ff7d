//! What may go wrong between the node and its API server, and how often. Plain data.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Fault intensities. Probabilities are per request or event; weights are relative odds
/// of mischief per step.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiFaults {
    /// The connection fails before the request has any effect.
    pub unreachable: f64,
    /// The server answers 429, and when it may be asked again.
    pub too_many: f64,
    /// A write is answered with 409.
    pub conflict: f64,
    /// The server answers 500.
    pub internal: f64,
    /// A write is done, but its answer is lost.
    pub lost_answer: f64,
    /// The server answers 401: it does not know the node's certificate.
    pub unauthorized: f64,
    /// The node has nothing to show the server: its credentials cannot be read or made.
    pub no_credentials: f64,
    /// There is no answer in time, whether the request is done or not.
    pub silent: f64,
    /// A watch ends with 410 instead of its next event.
    pub expired: f64,
    /// Every watch ends after this time.
    pub watch_cut: Option<Duration>,
    /// Odds of the server being away for a while.
    pub down_weight: u32,
    /// Odds of the server starting anew: watches end, what has changed is forgotten.
    pub restart_weight: u32,
    /// Odds of the server's store being restored from a backup.
    pub restore_weight: u32,
    /// Odds of the server's clock jumping.
    pub skew_weight: u32,
    /// Odds of the node's certificate being expired, or out of reach, for a while.
    pub login_weight: u32,
}

impl ApiFaults {
    /// A well-behaved server.
    pub fn none() -> Self {
        Self {
            unreachable: 0.0,
            too_many: 0.0,
            conflict: 0.0,
            internal: 0.0,
            lost_answer: 0.0,
            unauthorized: 0.0,
            no_credentials: 0.0,
            silent: 0.0,
            expired: 0.0,
            watch_cut: None,
            down_weight: 0,
            restart_weight: 0,
            restore_weight: 0,
            skew_weight: 0,
            login_weight: 0,
        }
    }

    /// The random subset and intensities of one seed.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x0a91_fa17);
        let mut rate = |max: f64| match rng.random_bool(0.5) {
            true => 0.0,
            false => max * rng.random_range(0.0..1.0_f64).powi(2),
        };
        let (unreachable, too_many, conflict) = (rate(0.8), rate(0.8), rate(0.8));
        let (internal, lost_answer, silent) = (rate(0.8), rate(0.8), rate(0.3));
        let expired = rate(0.8);
        let mut weight = |odds: f64| match rng.random_bool(odds) {
            true => rng.random_range(1..=6),
            false => 0,
        };
        let (down_weight, restart_weight) = (weight(0.5), weight(0.5));
        let (restore_weight, skew_weight) = (weight(0.3) / 2, weight(0.3));
        let cut = Duration::from_millis(rng.random_range(0..3_000));
        let watch_cut = rng.random_bool(0.3).then_some(cut);
        // Drawn last, so that all else is drawn as before.
        let mut rate = |max: f64| match rng.random_bool(0.7) {
            true => 0.0,
            false => max * rng.random_range(0.0..1.0_f64).powi(2),
        };
        let (unauthorized, no_credentials) = (rate(0.8), rate(0.8));
        let login_weight = if rng.random_bool(0.3) { rng.random_range(1..=4) } else { 0 };
        Self {
            unreachable,
            too_many,
            conflict,
            internal,
            lost_answer,
            unauthorized,
            no_credentials,
            silent,
            expired,
            watch_cut,
            down_weight,
            restart_weight,
            restore_weight,
            skew_weight,
            login_weight,
        }
    }
}
