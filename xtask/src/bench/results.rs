//! What was measured, by contender.

use std::collections::BTreeMap;
use std::time::Duration;

/// A contender at rest with some pods.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Pods it was looking after.
    pub pods: u32,
    /// Resident memory.
    pub rss_kb: u64,
    /// Resident memory, shared pages in proportion.
    pub pss_kb: u64,
    /// Per cent of one core.
    pub cpu_percent: f64,
    /// Wake-ups per second.
    pub wakeups_per_s: f64,
    /// Threads.
    pub threads: u64,
    /// Full listings of the runtime, where the contender tells them.
    pub listings_per_min: Option<f64>,
    /// Requests that its API server got of it, where it has one.
    pub requests_per_min: Option<f64>,
}

/// One round of all pods up and down.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// From the first manifest written to the last container running.
    pub up: Duration,
    /// The process's own processor time for that, where there is a process.
    pub up_cpu: Option<Duration>,
    /// From the first manifest removed until nothing ran.
    pub stopped: Duration,
    /// From the first manifest removed until the runtime had nothing left.
    pub removed: Duration,
    /// The process's own processor time for that.
    pub removed_cpu: Option<Duration>,
}

/// What followed one container's exit.
#[derive(Debug, Clone, Copy)]
pub struct Reaction {
    /// Until its successor was created.
    pub restarted_ms: f64,
    /// Until the status told of it.
    pub told_ms: f64,
}

/// All of one contender.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Size of the program.
    pub binary_bytes: Option<u64>,
    /// Times to healthy.
    pub healthy: Vec<Duration>,
    /// At rest, fewest pods first.
    pub idle: Vec<Idle>,
    /// At work.
    pub rounds: Vec<Round>,
    /// After exits.
    pub reactions: Vec<Reaction>,
    /// Share of a core that 1,000 probes of a kind a second take.
    pub probes: BTreeMap<String, f64>,
}

impl Measured {
    /// At rest with so many pods.
    pub fn idle_at(&self, pods: u32) -> Option<&Idle> {
        self.idle.iter().find(|idle| idle.pods == pods)
    }

    /// Median time to healthy.
    pub fn healthy_ms(&self) -> Option<f64> {
        median(self.healthy.iter().map(|time| time.as_secs_f64() * 1000.0))
    }

    /// Median over the exits of something in milliseconds.
    pub fn reaction_ms(&self, pick: impl Fn(&Reaction) -> f64) -> Option<f64> {
        median(self.reactions.iter().map(pick))
    }

    /// Median over the rounds of something in seconds.
    pub fn round_s(&self, pick: impl Fn(&Round) -> Option<Duration>) -> Option<f64> {
        median(self.rounds.iter().filter_map(pick).map(|time| time.as_secs_f64()))
    }
}

/// All contenders, by name.
#[derive(Debug, Clone, Default)]
pub struct Results(BTreeMap<&'static str, Measured>);

impl Results {
    /// A contender's, to fill.
    pub fn of(&mut self, name: &'static str) -> &mut Measured {
        self.0.entry(name).or_default()
    }

    /// A contender's, if it took part.
    pub fn get(&self, name: &str) -> Option<&Measured> {
        self.0.get(name)
    }
}

/// The middle value, or the mean of the two.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
