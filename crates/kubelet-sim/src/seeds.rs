//! Running many seeds, and one again.
//!
//! `KLET_SIM_SEEDS` says how many, `KLET_SIM_FROM` from which one on;
//! `KLET_SIM_SEED` names one to replay with its whole trace. `KLET_SIM_TRACE` shows the trace of a scenario;
//! `KLET_SIM_KEEP_GOING` runs all seeds even if some fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::faults::Faults;
use crate::sim::SimWorld;

/// Every so many seeds end with one more restart of the agent.
const FLAP_EVERY: u64 = 3;

/// The seed to replay, if the environment names one.
pub fn replay_seed() -> Option<u64> {
    std::env::var("KLET_SIM_SEED").ok()?.parse().ok()
}

/// Is the whole trace to be printed as it happens?
pub fn shows_trace() -> bool {
    replay_seed().is_some() || std::env::var_os("KLET_SIM_TRACE").is_some()
}

/// Prints the agent's own log beside the trace of a replayed seed; `RUST_LOG`
/// selects, by default everything of the agent down to debug.
pub fn show_agent_log() {
    let asked = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_target("kubelet", LevelFilter::DEBUG));
    let lines = fmt::layer().without_time().with_writer(std::io::stderr);
    // A second call in one process keeps the first subscriber.
    let _ = registry().with(filter).with(lines).try_init();
}

/// How many seeds to run, if the environment says so.
pub fn seed_count() -> Option<u64> {
    std::env::var("KLET_SIM_SEEDS").ok()?.parse().ok()
}

/// The first of the seeds to run.
pub fn first_seed() -> u64 {
    let asked = std::env::var("KLET_SIM_FROM").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The one line that replays a seed.
pub fn replay_line(seed: u64) -> String {
    format!("replay: KLET_SIM_SEED={seed} cargo test -p kubelet-sim replay -- --nocapture")
}

/// The same for a seed of a node in a cluster.
pub fn cluster_replay_line(seed: u64) -> String {
    format!("replay: KLET_SIM_SEED={seed} cargo test -p kubelet-sim cluster_replay -- --nocapture")
}

/// Runs one seed to its end; panics if a rule is broken. Returns the digest and
/// length of its trace.
pub fn run_seed(seed: u64) -> (u64, u64) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xc0ffee);
    let churn = rng.random_range(3..30);
    let time = Duration::from_secs(rng.random_range(60..400));
    let mut world = SimWorld::new(seed).churn(churn).faults(Faults::swarm(seed));
    world.start_agent();
    world.run_for(time);
    world.heal().run_until_idle();
    if seed.is_multiple_of(FLAP_EVERY) {
        world.expect_no_flap().run_until_idle();
    }
    world.digest()
}

/// The same for a node in a cluster, whose API server fails.
pub fn run_cluster_seed(seed: u64) -> (u64, u64) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xc105_7e12);
    let churn = rng.random_range(3..30);
    let time = match rng.random_range(0..20) {
        0 => 4_000,
        _ => rng.random_range(60..600),
    };
    let mut world =
        SimWorld::new(seed).in_cluster().churn(churn).faults(Faults::cluster_swarm(seed));
    world.start_agent();
    world.run_for(Duration::from_secs(time));
    world.heal().run_until_idle();
    world.digest()
}

/// The first failure among many seeds.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What its run said.
    pub report: String,
}

/// Runs seeds drawn from `next` on every core until it has no more or one
/// fails; `progress` is told after each.
pub fn run_many(
    run: fn(u64) -> (u64, u64),
    next: impl Fn() -> Option<u64> + Sync,
    progress: impl Fn(u64) + Sync,
) -> Result<u64, Vec<Failure>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let done = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed)
                    && let Some(seed) = next()
                {
                    if let Err(report) = run_caught(run, seed) {
                        stop.store(!keep_going(), Ordering::Relaxed);
                        lock(&failures).push(Failure { seed, report });
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|poison| poison.into_inner());
    if failures.is_empty() { Ok(done.into_inner()) } else { Err(failures) }
}

/// With `KLET_SIM_KEEP_GOING` set, a failure does not stop the other seeds.
fn keep_going() -> bool {
    std::env::var_os("KLET_SIM_KEEP_GOING").is_some()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn run_caught(run: fn(u64) -> (u64, u64), seed: u64) -> Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
    outcome.map(|_| ()).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.unwrap_or_else(|| format!("seed {seed} panicked\n{}", replay_line(seed)))
    })
}
