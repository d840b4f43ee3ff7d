//! What the kernel says about a process: memory, processor time, wake-ups.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Length of a tick in /proc/PID/stat: fixed for user space on Linux.
const TICK: Duration = Duration::from_millis(10);

/// A process at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Resident memory.
    pub rss_kb: u64,
    /// Resident memory, shared pages counted in proportion.
    pub pss_kb: u64,
    /// Processor time, in ticks, threads that have ended included.
    cpu_ticks: Duration,
    /// Processor time, to the nanosecond, of the threads that live.
    cpu_exact: Duration,
    /// Times a thread went to sleep of its own accord, so times it was woken.
    pub sleeps: u64,
    /// Threads.
    pub threads: u64,
}

impl Sample {
    /// Reads it all.
    pub fn take(id: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{id}/{file}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let rollup = read("smaps_rollup")?;
        let mut sample = Self {
            rss_kb: field(&rollup, "Rss:").context("smaps_rollup has no Rss")?,
            pss_kb: field(&rollup, "Pss:").context("smaps_rollup has no Pss")?,
            cpu_ticks: parse_ticks(&read("stat")?).context("stat is not as documented")?,
            ..Default::default()
        };
        let tasks = fs::read_dir(format!("/proc/{id}/task")).context("cannot list the threads")?;
        for task in tasks.flatten() {
            // A thread may end while we read it.
            let Ok(status) = fs::read_to_string(task.path().join("status")) else {
                continue;
            };
            let Ok(schedule) = fs::read_to_string(task.path().join("schedstat")) else {
                continue;
            };
            sample.threads += 1;
            sample.sleeps += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
            let nanos = schedule.split_whitespace().next().and_then(|word| word.parse().ok());
            sample.cpu_exact += Duration::from_nanos(nanos.unwrap_or(0));
        }
        Ok(sample)
    }

    /// Processor time since an earlier sample: exact, unless threads that have
    /// ended in between took more than the exact count knows of.
    pub fn cpu_since(&self, earlier: &Self) -> Duration {
        let exact = self.cpu_exact.saturating_sub(earlier.cpu_exact);
        let ticks = self.cpu_ticks.saturating_sub(earlier.cpu_ticks);
        // Ticks are rounded at both ends.
        if ticks > exact + 2 * TICK { ticks } else { exact }
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// User and system time; the name before them may hold spaces and brackets.
fn parse_ticks(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_found_behind_an_awkward_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 25 5 0 0 20 0 1 0 100 0 0";
        assert_eq!(parse_ticks(stat), Some(Duration::from_millis(300)));
    }

    #[test]
    fn this_process_can_be_sampled() {
        let before = Sample::take(std::process::id()).unwrap();
        let mut sum = 0u64;
        for n in 0..20_000_000u64 {
            sum = std::hint::black_box(sum ^ n);
        }
        std::hint::black_box(sum);
        let after = Sample::take(std::process::id()).unwrap();
        assert!(after.rss_kb > 0 && after.pss_kb > 0 && after.threads > 0);
        assert!(after.cpu_since(&before) > Duration::ZERO);
    }

    #[test]
    fn threads_that_ended_are_not_lost() {
        let at = |ticks, exact| Sample {
            cpu_ticks: Duration::from_millis(ticks),
            cpu_exact: Duration::from_millis(exact),
            ..Default::default()
        };
        assert_eq!(at(110, 105).cpu_since(&at(100, 100)), Duration::from_millis(5));
        assert_eq!(at(500, 105).cpu_since(&at(100, 100)), Duration::from_millis(400));
    }
}
