//! Runs random seeds until stopped or until one fails.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real time: this is a tool

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kubelet_sim::seeds;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How often progress is printed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Half of the seeds are of nodes in a cluster.
fn either(seed: u64) -> (u64, u64) {
    match seed.is_multiple_of(4) || seed % 4 == 3 {
        true => seeds::run_cluster_seed(seed),
        false => seeds::run_seed(seed),
    }
}

fn main() -> ExitCode {
    // Every soak should see other seeds; a failing one is printed, so the
    // quality of this start does not matter.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let start = since_epoch.map_or(0, |time| time.as_secs() ^ u64::from(time.subsec_nanos()) << 32);
    let draws = Mutex::new(StdRng::seed_from_u64(start));
    let started = Instant::now();
    let reported = Mutex::new(Instant::now());
    let next = || Some(draws.lock().ok()?.next_u64());
    let progress = |done: u64| {
        let Ok(mut last) = reported.lock() else {
            return;
        };
        if last.elapsed() >= REPORT_EVERY {
            *last = Instant::now();
            println!("{done} seeds in {}s, no failure", started.elapsed().as_secs());
        }
    };
    match seeds::run_many(either, next, progress) {
        Ok(_) => ExitCode::SUCCESS,
        Err(failures) => {
            for failure in failures {
                eprintln!("{}", failure.report);
            }
            ExitCode::FAILURE
        }
    }
}
