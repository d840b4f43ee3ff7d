//! Runs random seeds until stopped or until one fails.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real time: this is a tool

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kubelet_sim::seeds;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// How often progress is printed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let mut start = [0; 8];
    if let Err(error) = SysRng.try_fill_bytes(&mut start) {
        eprintln!("cannot draw a random start: {error}");
        return ExitCode::FAILURE;
    }
    let draws = Mutex::new(StdRng::seed_from_u64(u64::from_le_bytes(start)));
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
    match seeds::run_many(next, progress) {
        Ok(_) => ExitCode::SUCCESS,
        Err(failures) => {
            for failure in failures {
                eprintln!("{}", failure.report);
            }
            ExitCode::FAILURE
        }
    }
}
