//! `make bench`: klet from outside the process, beside raw CRI and upstream.
//!
//! Owns the order of measuring and the options. Each contender gets a private,
//! fresh containerd per round, and rounds alternate the order, so that no one
//! profits from a warm or suffers from a tired machine.

mod baseline;
mod contender;
mod goals;
mod latency;
mod load;
mod measure;
mod plot;
mod probes;
mod process;
mod report;
mod results;
mod runtime;
mod server;
mod site;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use contender::Contender;
use results::Results;

/// What to measure, and how long.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The klet to measure: `make dist` builds it.
    #[arg(long)]
    klet: PathBuf,
    /// An upstream kubelet to compare with.
    #[arg(long, env = "UPSTREAM_KUBELET")]
    upstream: Option<PathBuf>,
    /// Program that measures the cost of probes (`--example probe_cost`).
    #[arg(long)]
    probe_cost: Option<PathBuf>,
    /// Who takes part.
    #[arg(long, value_delimiter = ',', default_values = [
        "klet", "klet-listing", "klet-volumes", "klet-joined", "raw", "raw-volumes", "upstream",
        "upstream-joined",
    ])]
    contenders: Vec<String>,
    /// Pods at full load; half of them is measured too.
    #[arg(long, default_value_t = 100)]
    pods: u32,
    /// Rounds of bringing all pods up and taking them down.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Starts measured for the time to healthy.
    #[arg(long, default_value_t = 5)]
    starts: u32,
    /// Seconds of an idle window. klet lists the runtime once a minute: shorter windows
    /// hold that or do not, and then compare luck.
    #[arg(long, default_value_t = 60)]
    window_s: u64,
    /// Seconds to settle before an idle window.
    #[arg(long, default_value_t = 10)]
    settle_s: u64,
    /// One round and short windows: to see that it works.
    #[arg(long)]
    quick: bool,
    /// Where to write benchmarks.md and benchmarks.svg.
    #[arg(long, default_value = "docs")]
    out: PathBuf,
}

/// The measure of a run, in plain values.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Pods at full load.
    pub pods: u32,
    /// Rounds of up and down.
    pub rounds: u32,
    /// Starts to healthy.
    pub starts: u32,
    /// Idle window.
    pub window: Duration,
    /// Rest before an idle window.
    pub settle: Duration,
}

#[cfg(test)]
impl Plan {
    /// One that no test waits for.
    fn of_tests() -> Self {
        Self {
            pods: 100,
            rounds: 1,
            starts: 1,
            window: Duration::from_secs(30),
            settle: Duration::from_secs(10),
        }
    }
}

impl Options {
    fn plan(&self) -> Plan {
        let (rounds, window_s, settle_s) =
            if self.quick { (1, 10, 3) } else { (self.rounds, self.window_s, self.settle_s) };
        Plan {
            pods: self.pods,
            rounds,
            starts: self.starts,
            window: Duration::from_secs(window_s),
            settle: Duration::from_secs(settle_s),
        }
    }

    fn contenders(&self) -> Result<Vec<Contender>> {
        let mut all = Vec::new();
        for name in &self.contenders {
            match name.as_str() {
                "klet" => all.push(Contender::Klet(self.klet.clone())),
                "klet-listing" => all.push(Contender::Listing(self.klet.clone())),
                "klet-volumes" => all.push(Contender::Volumes(self.klet.clone())),
                "klet-joined" => all.push(Contender::Joined(self.klet.clone())),
                "raw" => all.push(Contender::Raw),
                "raw-volumes" => all.push(Contender::RawVolumes),
                "upstream" => all.extend(self.upstream(name).map(Contender::Upstream)),
                "upstream-joined" => {
                    all.extend(self.upstream(name).map(Contender::UpstreamJoined));
                }
                other => anyhow::bail!(
                    "no contender {other}; there are klet, klet-listing, klet-volumes, klet-joined, \
                     raw, raw-volumes, upstream and upstream-joined"
                ),
            }
        }
        for contender in &all {
            if let Some(path) = contender.binary() {
                ensure!(path.is_file(), "{} is not there; `make dist` builds klet", path.display());
            }
        }
        Ok(all)
    }

    /// The upstream kubelet, if one was given; says so if none was.
    fn upstream(&self, contender: &str) -> Option<PathBuf> {
        if self.upstream.is_none() {
            println!(
                "SKIPPED {contender}: set UPSTREAM_KUBELET to the path of an upstream kubelet"
            );
        }
        self.upstream.clone()
    }
}

/// Measures and writes the report.
pub fn run(options: &Options) -> Result<()> {
    let plan = options.plan();
    let contenders = options.contenders()?;
    ensure!(!contenders.is_empty(), "nobody to measure");
    let mut results = Results::default();
    for contender in &contenders {
        measure::idle(contender, &plan, &mut results)
            .with_context(|| format!("cannot measure {} at rest", contender.name()))?;
    }
    for contender in contenders.iter().filter(|contender| contender.reacts()) {
        println!("exits: {}", contender.name());
        let reactions = latency::measure(contender)
            .with_context(|| format!("cannot measure {} after exits", contender.name()))?;
        results.of(contender.name()).reactions = reactions;
    }
    if let Some(program) = &options.probe_cost {
        results.of("klet").probes = probes::measure(program)?;
    }
    let workers: Vec<_> = contenders.iter().filter(|contender| contender.works()).collect();
    for round in 0..plan.rounds {
        for turn in 0..workers.len() {
            let contender = workers[(turn + round as usize) % workers.len()];
            println!("round {} of {}: {}", round + 1, plan.rounds, contender.name());
            measure::up_and_down(contender, &plan, &mut results)
                .with_context(|| format!("cannot measure {} at work", contender.name()))?;
        }
    }
    report::write(&options.out, &plan, &results)?;
    print!("{}", report::table(&plan, &results));
    println!("\nwritten to {}", options.out.join("benchmarks.md").display());
    Ok(())
}
