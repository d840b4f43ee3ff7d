//! The checks of `/healthz` besides `ping`.
//!
//! `log`: lines can be written still. `syncloop`: the loop that starts and ends pods comes
//! around. Upstream: apiserver pkg/server/healthz (LogHealthz), SyncLoopHealthCheck in
//! pkg/kubelet/kubelet.go.

use std::io::Write as _;
use std::time::Duration;

use tokio::time::sleep;

use crate::ports::Tasks;
use crate::pulse::Pulse;

/// How often the log is tried.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// How long it may block.
const LOG_LIMIT: Duration = Duration::from_secs(120);
/// How late the loop may always be.
const LOOP_LIMIT: Duration = Duration::from_secs(300);

/// Names of the checks.
pub(super) const NAMES: [&str; 2] = ["log", "syncloop"];

/// Knows whether the agent is well.
pub(super) struct Checks {
    log: Pulse,
    sync_loop: Pulse,
    sync_frequency: Duration,
}

impl Checks {
    pub(super) fn start(tasks: &Tasks, sync_loop: Pulse, sync_frequency: Duration) -> Self {
        let log = Pulse::default();
        log.beat();
        tasks.spawn(try_log(log.clone()));
        Self { log, sync_loop, sync_frequency }
    }

    /// Runs one of them.
    pub(super) fn run(&self, check: &str) -> Result<(), String> {
        match check {
            "log" => blocked(self.log.age()),
            "syncloop" => late(self.sync_loop.age(), self.sync_frequency),
            other => Err(format!("there is no check {other:?}")),
        }
    }
}

/// Takes the lock that every line is written under; whoever is stuck in writing has it.
async fn try_log(log: Pulse) {
    loop {
        let flushed = tokio::task::spawn_blocking(|| std::io::stderr().lock().flush()).await;
        // Without a standard error there is nobody to read a complaint about it either.
        if matches!(flushed, Ok(Ok(()))) {
            log.beat();
        }
        sleep(LOG_EVERY).await;
    }
}

fn blocked(age: Option<Duration>) -> Result<(), String> {
    if age.is_none_or(|age| age < LOG_LIMIT) { Ok(()) } else { Err("logging blocked".to_owned()) }
}

fn late(age: Option<Duration>, sync_frequency: Duration) -> Result<(), String> {
    let limit = sync_frequency.saturating_mul(2).max(LOOP_LIMIT);
    let late = age.is_some_and(|age| age > limit);
    if late { Err("sync Loop took longer than expected".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_late_is_too_late() {
        let seconds = Duration::from_secs;
        for (age, frequency, well) in [
            (None, 60, true),
            (Some(300), 60, true),
            (Some(301), 60, false),
            (Some(301), 3600, true),
            (Some(7201), 3600, false),
        ] {
            let checked = late(age.map(seconds), seconds(frequency));
            assert_eq!(checked.is_ok(), well, "{age:?} {frequency}");
        }
        for (age, well) in [(None, true), (Some(119), true), (Some(120), false)] {
            assert_eq!(blocked(age.map(seconds)).is_ok(), well, "{age:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_is_told_and_one_that_comes_around_is_not() {
        let (tasks, pulse) = (Tasks::default(), Pulse::default());
        let checks = Checks::start(&tasks, pulse.clone(), Duration::from_secs(60));
        assert!(NAMES.iter().all(|check| checks.run(check).is_ok()));
        pulse.beat();
        tokio::time::advance(LOOP_LIMIT * 2).await;
        assert_eq!(checks.run("syncloop").unwrap_err(), "sync Loop took longer than expected");
        pulse.beat();
        assert!(checks.run("syncloop").is_ok());
        assert!(checks.run("x").is_err());
        tasks.abort_all();
    }
}
