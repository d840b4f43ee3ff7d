//! Which faults a run may meet, and how often.
//!
//! Plain data. Every seed enables a random subset with random intensities, so
//! that rare combinations meet and single faults also run alone.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::api::ApiFaults;
use crate::container_template::Features;

/// How the runtime offers life-cycle events for a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSupport {
    /// A stream that may lose, double and delay events.
    Streams,
    /// The call is not offered.
    Unimplemented,
}

/// Fault intensities. Probabilities are per call, event or read; weights are
/// relative odds of outside mischief per step.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// A call fails before it has any effect.
    pub call_error: f64,
    /// A call hangs: before, inside or after its effect.
    pub hang: f64,
    /// A call takes effect but answers with an error.
    pub lost_answer: f64,
    /// The agent crashes at a call: before its effect, or before its answer.
    pub crash_at_call: f64,
    /// A sandbox is made but not ready, and the call fails.
    pub half_made_sandbox: f64,
    /// A container cannot be started and is left exited.
    pub start_error: f64,
    /// An image pull fails.
    pub pull_error: f64,
    /// An event is not delivered.
    pub event_lost: f64,
    /// An event is delivered twice.
    pub event_doubled: f64,
    /// An event is delivered late, so that later ones overtake it.
    pub event_delayed: f64,
    /// Reading or listing a file fails.
    pub fs_error: f64,
    /// A file change is not reported by the watch.
    pub watch_lost: f64,
    /// Fetching the URL fails.
    pub http_error: f64,
    /// Odds of an agent crash at a random time.
    pub crash_weight: u32,
    /// Odds of a container killed from outside.
    pub kill_container_weight: u32,
    /// Odds of a sandbox killed from outside.
    pub kill_sandbox_weight: u32,
    /// Odds of the runtime being down for a while.
    pub runtime_down_weight: u32,
    /// Odds of the event stream breaking.
    pub stream_break_weight: u32,
    /// Odds of the wall clock jumping.
    pub wall_jump_weight: u32,
    /// Odds of a manifest changing.
    pub churn_weight: u32,
    /// Longest ordinary delay of a call.
    pub latency_max: Duration,
    /// How events are offered.
    pub events: EventSupport,
    /// Objects of somebody else live in the runtime.
    pub foreign: bool,
    /// Stopping an unknown container is answered with NotFound.
    pub stop_unknown_refused: bool,
    /// Images are absent until pulled.
    pub images_absent: bool,
    /// An endpoint that is well does not answer a probe.
    pub probe_lost: f64,
    /// A control group cannot be made or removed.
    pub cgroup_error: f64,
    /// What manifests use.
    pub features: Features,
    /// Work on a volume fails before it has any effect.
    pub volume_error: f64,
    /// A call on a volume that hangs ends in its time though the agent has died.
    pub outlives: f64,
    /// Odds of somebody mounting or unmounting something below a volume.
    pub foreign_mount_weight: u32,
    /// What goes wrong with the API server of a node in a cluster.
    pub api: ApiFaults,
}

impl Faults {
    /// A well-behaved world with small delays and steady churn.
    pub fn none() -> Self {
        Self {
            call_error: 0.0,
            hang: 0.0,
            lost_answer: 0.0,
            crash_at_call: 0.0,
            half_made_sandbox: 0.0,
            start_error: 0.0,
            pull_error: 0.0,
            event_lost: 0.0,
            event_doubled: 0.0,
            event_delayed: 0.0,
            fs_error: 0.0,
            watch_lost: 0.0,
            http_error: 0.0,
            crash_weight: 0,
            kill_container_weight: 0,
            kill_sandbox_weight: 0,
            runtime_down_weight: 0,
            stream_break_weight: 0,
            wall_jump_weight: 0,
            churn_weight: 10,
            latency_max: Duration::from_millis(5),
            events: EventSupport::Streams,
            foreign: false,
            stop_unknown_refused: false,
            images_absent: false,
            probe_lost: 0.0,
            cgroup_error: 0.0,
            features: Features::default(),
            volume_error: 0.0,
            outlives: 0.0,
            foreign_mount_weight: 0,
            api: ApiFaults::none(),
        }
    }

    /// The random subset and intensities of one seed.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed_fa17);
        let latencies = [1, 5, 50, 800];
        Self {
            call_error: rate(&mut rng, 0.25),
            hang: rate(&mut rng, 0.04),
            lost_answer: rate(&mut rng, 0.2),
            crash_at_call: rate(&mut rng, 0.06),
            half_made_sandbox: rate(&mut rng, 0.3),
            start_error: rate(&mut rng, 0.2),
            pull_error: rate(&mut rng, 0.4),
            event_lost: rate(&mut rng, 1.0),
            event_doubled: rate(&mut rng, 0.5),
            event_delayed: rate(&mut rng, 0.5),
            fs_error: rate(&mut rng, 0.3),
            watch_lost: rate(&mut rng, 1.0),
            http_error: rate(&mut rng, 0.5),
            crash_weight: weight(&mut rng),
            kill_container_weight: weight(&mut rng),
            kill_sandbox_weight: weight(&mut rng),
            runtime_down_weight: weight(&mut rng) / 3,
            stream_break_weight: weight(&mut rng),
            wall_jump_weight: weight(&mut rng),
            churn_weight: rng.random_range(2..=12),
            latency_max: Duration::from_millis(latencies[rng.random_range(0..latencies.len())]),
            events: if rng.random_bool(0.25) {
                EventSupport::Unimplemented
            } else {
                EventSupport::Streams
            },
            foreign: rng.random_bool(0.5),
            stop_unknown_refused: rng.random_bool(0.5),
            images_absent: rng.random_bool(0.5),
            probe_lost: rate(&mut rng, 0.3),
            cgroup_error: rate(&mut rng, 0.3),
            features: Features {
                objects: apart(seed, 0x00b1_ec75, 0.5),
                csi: apart(seed, 0x0c51_d21e, 0.3),
                disks: apart(seed, 0x0d15_c500, 0.4),
                ..Features::swarm(&mut rng)
            },
            volume_error: rate(&mut rng, 0.3),
            outlives: 0.5,
            foreign_mount_weight: if apart(seed, 0x0f0e_3160, 0.4) { 3 } else { 0 },
            api: ApiFaults::none(),
        }
    }

    /// The same for a node in a cluster: its server fails, and in half of the seeds
    /// everything else as well.
    pub fn cluster_swarm(seed: u64) -> Self {
        let swarm = Self::swarm(seed);
        // Deadlines, claims and Secrets are simulated for nodes of their own.
        let features = Features { deadlines: false, csi: false, disks: false, ..swarm.features };
        let api = ApiFaults::swarm(seed);
        match seed.is_multiple_of(2) {
            true => Self { features, api, ..swarm },
            false => Self {
                features,
                api,
                crash_weight: swarm.crash_weight,
                crash_at_call: swarm.crash_at_call,
                churn_weight: swarm.churn_weight,
                latency_max: swarm.latency_max,
                ..Self::none()
            },
        }
    }

    /// The same world without mischief: what lasts for a whole run stays.
    pub fn healed(&self) -> Self {
        Self {
            latency_max: self.latency_max.min(Duration::from_millis(50)),
            events: self.events,
            foreign: self.foreign,
            stop_unknown_refused: self.stop_unknown_refused,
            images_absent: self.images_absent,
            features: self.features,
            churn_weight: 0,
            ..Self::none()
        }
    }
}

/// Whether pods of this seed have a feature that came later, so that all else is
/// drawn as before.
fn apart(seed: u64, of: u64, odds: f64) -> bool {
    StdRng::seed_from_u64(seed ^ of).random_bool(odds)
}

/// Off in half of the seeds, else a rate below `max`, small rates being likelier.
fn rate(rng: &mut StdRng, max: f64) -> f64 {
    if rng.random_bool(0.5) {
        return 0.0;
    }
    let draw: f64 = rng.random_range(0.0..1.0);
    max * draw * draw
}

fn weight(rng: &mut StdRng) -> u32 {
    if rng.random_bool(0.5) { 0 } else { rng.random_range(1..=6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swarm_repeats_and_varies() {
        assert_eq!(Faults::swarm(7), Faults::swarm(7));
        assert_ne!(Faults::swarm(7), Faults::swarm(8));
        let hanging = (0..200).filter(|s| Faults::swarm(*s).hang > 0.0).count();
        assert!((60..140).contains(&hanging), "{hanging}");
    }
}
