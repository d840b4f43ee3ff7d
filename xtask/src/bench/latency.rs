//! How soon an exit is acted on, and how soon it is told.
//!
//! Containers that end by themselves are restarted once without a pause. The
//! runtime says when each ended and when its successor was created; the
//! read-only port, asked every few milliseconds, shows when the status knew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::cri_client::Cri;
use testkit::{ContainerdOptions, PodManifest, http};

use super::contender::{Agent, Contender};
use super::results::Reaction;
use super::site::Site;

/// Pods whose container ends; enough for a median.
const PODS: u32 = 20;
/// Between two looks at the status. Asking costs the agent a little.
const EVERY: Duration = Duration::from_millis(4);
/// Longest any of it may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures one contender.
pub fn measure(contender: &Contender) -> Result<Vec<Reaction>> {
    let site = Site::with(contender, ContainerdOptions::with_usual_images()?)?;
    let mut agent = Agent::start(contender, &site)?;
    let soon = wall_ns()? / 1_000_000_000 + 15;
    for number in 0..PODS {
        // One after the other, so that none waits for another's restart. The
        // successor stays: a second exit would remove the first from sight.
        let at = soon + i64::from(number);
        let script =
            format!("n=$(({at} - $(date +%s))); [ $n -gt 0 ] || exec sleep 1000; sleep $n; exit 1");
        site.manifests.put_pod(&PodManifest::script(&format!("exit-{number}"), &script))?;
    }
    let cri = site.containerd.cri()?;
    let reactions = follow(&mut agent, &cri)?;
    drop(agent);
    site.remove()?;
    Ok(reactions)
}

/// Looks at every pod's status until each has told of its first exit.
fn follow(agent: &mut Agent, cri: &Cri) -> Result<Vec<Reaction>> {
    let start = Instant::now();
    let mut told: BTreeMap<String, i64> = BTreeMap::new();
    while told.len() < PODS as usize {
        agent.check_alive()?;
        ensure!(start.elapsed() < LIMIT, "only {} of {PODS} exits were told", told.len());
        let pods: Value = serde_json::from_str(&http::get_ok(agent.read_only_port(), "/pods")?)
            .context("/pods is not JSON")?;
        let now = wall_ns()?;
        for pod in pods["items"].as_array().into_iter().flatten().filter(|pod| has_exited(pod)) {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            told.entry(uid.to_owned()).or_insert(now);
        }
        std::thread::sleep(EVERY);
    }
    // The last one's successor may still be on its way.
    std::thread::sleep(Duration::from_secs(3));
    told.into_iter().map(|(uid, told)| reaction(cri, &uid, told)).collect()
}

fn has_exited(pod: &Value) -> bool {
    let status = &pod["status"]["containerStatuses"][0];
    status["restartCount"].as_i64().unwrap_or(0) > 0 || !status["state"]["terminated"].is_null()
}

fn reaction(cri: &Cri, uid: &str, told: i64) -> Result<Reaction> {
    let of_pod = |attempt: u32| {
        let all = cri.containers()?;
        let found = all.into_iter().find(|container| {
            container.labels.get("io.kubernetes.pod.uid").is_some_and(|label| label == uid)
                && container.metadata.as_ref().is_some_and(|m| m.attempt == attempt)
        });
        let found = found.with_context(|| format!("pod {uid} has no container {attempt}"))?;
        cri.container_status(&found.id)
    };
    let (first, second) = (of_pod(0)?, of_pod(1)?);
    let after = |at: i64| (at - first.finished_at) as f64 / 1e6;
    Ok(Reaction { restarted_ms: after(second.created_at), told_ms: after(told) })
}

fn wall_ns() -> Result<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    i64::try_from(now.as_nanos()).context("the clock is beyond 2262")
}
