//! The measuring itself: at rest, and at work.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::Containerd;

use super::contender::{Agent, Contender};
use super::process::Sample;
use super::results::{Idle, Results, Round};
use super::server::Server;
use super::site::Site;
use super::{Plan, baseline, runtime};

/// Listings are rare: they are counted for at least this long.
const LISTINGS_WINDOW: Duration = Duration::from_secs(60);

/// Size, time to healthy, and a kubelet at rest with no, half and all pods.
pub fn idle(contender: &Contender, plan: &Plan, results: &mut Results) -> Result<()> {
    let Some(binary) = contender.binary() else {
        return Ok(());
    };
    let measured = results.of(contender.name());
    let site = Site::fresh(contender)?;
    if contender.is_distinct() {
        let size =
            std::fs::metadata(binary).with_context(|| format!("cannot read {}", binary.display()));
        measured.binary_bytes = Some(size?.len());
        for _ in 0..plan.starts {
            let agent = Agent::start(contender, &site)?;
            measured.healthy.push(agent.healthy_after);
        }
        println!("{}: healthy after {:.1?}", contender.name(), measured.healthy);
    }
    let mut agent = Agent::start(contender, &site)?;
    let cri = site.containerd.cri()?;
    let mut have = 0;
    for pods in contender.loads(plan) {
        site.put(have..pods, contender.has_volumes())?;
        have = pods;
        runtime::wait_running(&cri, pods, || agent.check_alive())
            .and_then(|_| site.server.as_ref().map_or(Ok(()), |server| server.wait_told(pods)))
            .with_context(|| format!("its log ends:\n{}", agent.log_tail()))?;
        let idle = at_rest(&agent, site.server.as_ref(), pods, plan)?;
        println!("{} at rest: {idle:.2?}", contender.name());
        measured.idle.push(idle);
    }
    drop(agent);
    site.remove()
}

fn at_rest(agent: &Agent, server: Option<&Server>, pods: u32, plan: &Plan) -> Result<Idle> {
    std::thread::sleep(plan.settle);
    // Asking costs the agent a little, so it is asked outside the window.
    let listings = if pods == plan.pods { agent.listings()? } else { None };
    server.map(Server::take_asked);
    let (before, start) = (Sample::take(agent.id())?, Instant::now());
    std::thread::sleep(plan.window);
    let (after, elapsed) = (Sample::take(agent.id())?, start.elapsed().as_secs_f64());
    let asked = server.map(Server::take_asked);
    if let Some(asked) = &asked {
        println!("the server was asked: {asked:#?}");
    }
    let listings_per_min = listings.map(|first| listings_since(agent, first, start)).transpose()?;
    Ok(Idle {
        pods,
        rss_kb: after.rss_kb,
        pss_kb: after.pss_kb,
        cpu_percent: after.cpu_since(&before).as_secs_f64() / elapsed * 100.0,
        wakeups_per_s: after.sleeps.saturating_sub(before.sleeps) as f64 / elapsed,
        threads: after.threads,
        listings_per_min,
        requests_per_min: asked.map(|all| all.values().sum::<usize>() as f64 * 60.0 / elapsed),
    })
}

/// Waits until they have been counted for long enough.
fn listings_since(agent: &Agent, first: u64, start: Instant) -> Result<f64> {
    std::thread::sleep(LISTINGS_WINDOW.saturating_sub(start.elapsed()));
    let last = agent.listings()?.context("klet no longer tells its listings")?;
    Ok(last.saturating_sub(first) as f64 * 60.0 / start.elapsed().as_secs_f64())
}

/// One round: all pods from nothing to running, and back to nothing.
pub fn up_and_down(contender: &Contender, plan: &Plan, results: &mut Results) -> Result<()> {
    let site = Site::fresh(contender)?;
    let round = match contender {
        Contender::Raw | Contender::RawVolumes => {
            raw_round(&site.containerd, plan, contender.has_volumes())?
        }
        _ => agent_round(contender, &site, plan)?,
    };
    println!("{}: {round:.2?}", contender.name());
    results.of(contender.name()).rounds.push(round);
    site.remove()
}

fn agent_round(contender: &Contender, site: &Site, plan: &Plan) -> Result<Round> {
    let cri = site.containerd.cri()?;
    let mut agent = Agent::start(contender, site)?;
    std::thread::sleep(plan.settle.min(Duration::from_secs(5)));

    let (idle, start) = (Sample::take(agent.id())?, Instant::now());
    site.put(0..plan.pods, contender.has_volumes())?;
    let up = runtime::wait_running(&cri, plan.pods, || agent.check_alive())
        .with_context(|| format!("its log ends:\n{}", agent.log_tail()))?;
    let up = up.duration_since(start);
    let busy = Sample::take(agent.id())?;
    std::thread::sleep(plan.settle.min(Duration::from_secs(5)));

    let (rested, start) = (Sample::take(agent.id())?, Instant::now());
    site.manifests.clear()?;
    let stopped = runtime::wait_stopped(&cri, || agent.check_alive())?.duration_since(start);
    let removed = runtime::wait_removed(&cri, || agent.check_alive())?.duration_since(start);
    let done = Sample::take(agent.id())?;
    Ok(Round {
        up,
        up_cpu: Some(busy.cpu_since(&idle)),
        stopped,
        removed,
        removed_cpu: Some(done.cpu_since(&rested)),
    })
}

fn raw_round(containerd: &Containerd, plan: &Plan, volumes: bool) -> Result<Round> {
    let cri = containerd.cri()?;
    // The calls go from a thread of their own, so that the runtime is watched
    // in the very way it is watched for a kubelet.
    std::thread::scope(|scope| {
        let start = Instant::now();
        let calls = scope.spawn(|| block_on(baseline::bring_up(containerd, plan.pods, volumes)));
        let up = runtime::wait_running(&cri, plan.pods, fail_early(&calls));
        let made = joined(calls)?;
        let up = up?.duration_since(start);
        std::thread::sleep(plan.settle.min(Duration::from_secs(5)));

        let start = Instant::now();
        let calls = scope.spawn(|| block_on(baseline::take_down(containerd, made)));
        let stopped = runtime::wait_stopped(&cri, fail_early(&calls));
        let removed = runtime::wait_removed(&cri, fail_early(&calls));
        joined(calls)?;
        let (stopped, removed) = (stopped?.duration_since(start), removed?.duration_since(start));
        Ok(Round { up, up_cpu: None, stopped, removed, removed_cpu: None })
    })
}

fn joined<T>(calls: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    calls.join().map_err(|_| anyhow::anyhow!("the baseline panicked"))?
}

/// Fails once the calls have ended and three more looks still found them short:
/// a failed baseline would otherwise be waited for until the limit.
fn fail_early<'a, T>(
    calls: &'a std::thread::ScopedJoinHandle<'_, Result<T>>,
) -> impl FnMut() -> Result<()> + 'a {
    let mut looks = 0;
    move || {
        looks += u32::from(calls.is_finished());
        anyhow::ensure!(
            looks < 4,
            "the calls ended, but not everything is as they should leave it"
        );
        Ok(())
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start an async runtime for the baseline")?;
    runtime.block_on(work)
}
