//! Many random lives of a node, each from one number.

use std::sync::atomic::{AtomicU64, Ordering};

use kubelet_sim::seeds;

/// Seeds that run by default.
const SEEDS: u64 = 1_000;

/// Seeds of nodes in a cluster that run by default.
const CLUSTER_SEEDS: u64 = 150;

fn run(run: fn(u64) -> (u64, u64), count: u64) {
    let drawn = AtomicU64::new(0);
    let next = || {
        let number = drawn.fetch_add(1, Ordering::Relaxed);
        (number < count).then_some(seeds::first_seed() + number)
    };
    match seeds::run_many(run, next, |_| {}) {
        Ok(done) => assert_eq!(done, count),
        Err(failures) => {
            for failure in &failures {
                eprintln!("{}\n", failure.report);
            }
            let failed: Vec<u64> = failures.iter().map(|f| f.seed).collect();
            panic!("failing seeds: {failed:?}, each with the line that replays it above");
        }
    }
}

#[test]
fn node_converges_under_faults() {
    run(seeds::run_seed, seeds::seed_count().unwrap_or(SEEDS));
}

#[test]
fn node_in_a_cluster_converges_under_faults() {
    run(seeds::run_cluster_seed, seeds::seed_count().unwrap_or(CLUSTER_SEEDS));
}

/// Replays `KLET_SIM_SEED` of a node in a cluster; without it, a fixed seed.
#[test]
fn cluster_replay() {
    if seeds::replay_seed().is_some() {
        seeds::show_agent_log();
    }
    let (digest, lines) = seeds::run_cluster_seed(seeds::replay_seed().unwrap_or(42));
    assert!(lines > 0, "a run leaves a trace");
    eprintln!("{lines} lines of trace, digest {digest:016x}");
}

#[test]
fn one_cluster_seed_has_one_trace() {
    for seed in 0..10 {
        let [first, second] = [seeds::run_cluster_seed(seed), seeds::run_cluster_seed(seed)];
        assert_eq!(first, second, "seed {seed} took two different courses");
    }
}

/// Replays `KLET_SIM_SEED` with its whole trace; without it, a fixed seed.
#[test]
fn replay() {
    if seeds::replay_seed().is_some() {
        seeds::show_agent_log();
    }
    let (digest, lines) = seeds::run_seed(seeds::replay_seed().unwrap_or(42));
    assert!(lines > 0, "a run leaves a trace");
    eprintln!("{lines} lines of trace, digest {digest:016x}");
}

#[test]
fn one_seed_has_one_trace() {
    for seed in (0..5).chain(1_085..1_095) {
        assert_eq!(
            seeds::run_seed(seed),
            seeds::run_seed(seed),
            "seed {seed} took two different courses"
        );
    }
}
