//! `make soak`: pods come, change and go on a real node for as long as asked,
//! klet is killed now and then, and nothing may pile up.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::{
    Containerd, ContainerdOptions, Klet, KletOptions, ManifestDir, PodManifest, eventually,
};

use crate::interrupt::Interrupt;

/// How long one round may take to settle.
const ROUND_LIMIT: Duration = Duration::from_secs(120);
/// Every so many rounds klet is killed without warning.
const KILL_EVERY: u32 = 5;

/// How long and how hard.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes to go on for.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Pods per round.
    #[arg(long, default_value_t = 20)]
    pods: u32,
    /// Most kilobytes klet's resident memory may grow after the first round.
    #[arg(long, default_value_t = 8192)]
    growth_kb_max: u64,
    /// The klet to run; built if not given.
    #[arg(long)]
    klet: Option<PathBuf>,
}

/// Runs rounds until the time is over or something is wrong.
pub fn run(options: &Options) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let binary = match &options.klet {
        Some(path) => path.clone(),
        None => testkit::binaries::klet_binary()?,
    };
    let containerd = Containerd::start(ContainerdOptions::with_usual_images()?)?;
    let manifests = ManifestDir::new(&containerd.dir().join("manifests"))?;
    let mut klet = Klet::start(KletOptions {
        binary,
        dir: containerd.dir().join("klet"),
        endpoint: containerd.endpoint(),
        manifests: manifests.path().to_owned(),
        node_name: "soak".to_owned(),
        ports: None,
    })?;
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    let mut first = None;
    for round in 1.. {
        if Instant::now() > end || interrupt.is_set() {
            break;
        }
        if round % KILL_EVERY == 0 {
            klet.restart()?;
            first = None;
        }
        churn(round, options.pods, &containerd, &manifests)?;
        let (memory_kb, files) = usage(&klet)?;
        println!("round {round}: {memory_kb} kB resident, {files} open files");
        let (memory_before, files_before) = *first.get_or_insert((memory_kb, files));
        ensure!(
            memory_kb <= memory_before + options.growth_kb_max,
            "klet grew from {memory_before} to {memory_kb} kB; its log: {}",
            klet.log_path().display()
        );
        ensure!(
            files <= files_before + 8,
            "klet holds {files} files open, {files_before} before; its log: {}",
            klet.log_path().display()
        );
    }
    klet.stop()?;
    containerd.remove()
}

/// Brings pods up, replaces half of them, takes all down.
fn churn(round: u32, pods: u32, containerd: &Containerd, manifests: &ManifestDir) -> Result<()> {
    let cri = containerd.cri()?;
    let name = |n: u32| format!("soak-{n}");
    let running = |what: &str, generation: &str| {
        eventually(ROUND_LIMIT, what, || {
            let containers = cri.containers()?;
            let running = containers
                .iter()
                .filter(|container| container.state == 1)
                .count();
            ensure!(running == pods as usize, "{running} of {pods} run");
            let sandboxes = cri.sandboxes()?;
            let wanted = |labels: &std::collections::BTreeMap<String, String>| {
                labels
                    .get("generation")
                    .is_some_and(|found| found == generation)
            };
            let current = sandboxes
                .iter()
                .filter(|sandbox| wanted(&sandbox.labels))
                .count();
            let expected = if generation == "2" {
                pods.div_ceil(2)
            } else {
                pods
            };
            ensure!(
                current == expected as usize,
                "{current} of {expected} are current"
            );
            Ok(())
        })
    };
    for n in 0..pods {
        manifests.put_pod(&PodManifest::pause(&name(n)).label("generation", "1"))?;
    }
    running(&format!("the pods of round {round}"), "1")?;
    for n in (0..pods).step_by(2) {
        manifests.put_pod(&PodManifest::pause(&name(n)).label("generation", "2"))?;
    }
    running(&format!("the replacements of round {round}"), "2")?;
    manifests.clear()?;
    eventually(ROUND_LIMIT, "the runtime to be empty", || {
        let (sandboxes, containers) = (cri.sandboxes()?.len(), cri.containers()?.len());
        ensure!(
            sandboxes + containers == 0,
            "{sandboxes} sandboxes, {containers} containers left"
        );
        Ok(())
    })
}

/// Resident memory in kilobytes, and open files.
fn usage(klet: &Klet) -> Result<(u64, usize)> {
    let id = klet.process_id().context("klet is not running")?;
    let sample = crate::bench::process::Sample::take(id)?;
    let files = fs::read_dir(format!("/proc/{id}/fd"))
        .context("cannot list klet's files")?
        .count();
    Ok((sample.rss_kb, files))
}
