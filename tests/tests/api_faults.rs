//! An API server that is away, refuses, contradicts itself or cuts its watches: pods
//! keep running, what has changed meanwhile is told afterwards, and the server is not
//! stormed. A real containerd; faults in front of the small API server.

// Real processes take real time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::cluster::condition;
use testkit::{ApiOptions, Cluster, Fault, Front, PodManifest};

/// How long each fault is in force, at the least.
const HELD: Duration = Duration::from_secs(15);

/// What each client may ask at once when a fault begins: its first attempts, before its
/// pauses have grown.
const AT_ONCE: usize = 8;

/// What clients may ask in a minute when nothing works. Upstream's pauses are the
/// measure, at their shortest:
/// - the node's status: every 10 s, in up to 5 attempts, a read and a write each: 60;
/// - its lease: every 10 s, in up to 10 attempts, with a read for each conflict: 120;
/// - events: as many as there are, each once in 10 s; a dozen here: 72;
/// - statuses of pods, and mirrors: pauses from 0.5 s to 10 s, 16 for a pod: 32.
const WRITES_PER_MINUTE: usize = 60 + 120 + 72 + 32;
/// A watch that ends after a second is begun anew at once; one that fails is begun anew
/// after 0.8 s, then 1.6 s and so on. Each may need a list before it.
const ASKED_PER_WATCH_AND_MINUTE: usize = 2 * 60;

/// Is ready unless a file says otherwise, and has an object and a token to follow.
fn web() -> PodManifest {
    PodManifest::script("web", "trap 'exit 0' TERM; while true; do sleep 0.1; done")
        .with(
            "readinessProbe",
            json!({"exec": {"command": ["test", "!", "-e", "/tmp/down"]},
                "periodSeconds": 1, "failureThreshold": 1}),
        )
        .with("volumeMounts", json!([{"name": "map", "mountPath": "/etc/map"}]))
        .spec("volumes", json!([{"name": "map", "configMap": {"name": "m"}}]))
}

fn start(front: &Front) -> Result<Cluster> {
    let faults = Some(front.faults());
    let options = ApiOptions { mounts_tokens: true, faults, ..ApiOptions::default() };
    let cluster = Cluster::start_with(options, Value::Null)?;
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"key": "one"}}))?;
    cluster.create_pod(&web())?;
    cluster.create_pod(&PodManifest::script("other", "sleep 100000"))?;
    cluster.wait_ready("web")?;
    cluster.wait_ready("other")?;
    Ok(cluster)
}

/// Fails if the server was asked more often than all the clients' pauses allow.
fn check_asked(what: &str, asked: &BTreeMap<String, usize>, held: Duration) -> Result<()> {
    let watched = asked.keys().filter_map(|what| what.strip_prefix("WATCH "));
    let watches = watched.count().max(4);
    let clients = watches + 4;
    let per_minute = WRITES_PER_MINUTE + watches * ASKED_PER_WATCH_AND_MINUTE;
    let millis = usize::try_from(held.as_millis())?;
    let limit = clients * AT_ONCE + per_minute * millis / 60_000;
    let total: usize = asked.values().sum();
    println!("{what}: {total} requests in {} s, of {limit}", held.as_secs());
    ensure!(total <= limit, "{what}: {total} requests in {held:?}, of {limit}: {asked:#?}");
    // No single thing is asked for over and over, either.
    let each = AT_ONCE + 120 * millis / 60_000;
    for (asked, count) in asked.iter().filter(|(asked, _)| !asked.contains("/events")) {
        ensure!(*count <= each, "{what}: {asked} {count} times in {held:?}, of {each}");
    }
    Ok(())
}

fn set_ready(cluster: &Cluster, ready: bool) -> Result<()> {
    let change = if ready { "rm -f /tmp/down" } else { "touch /tmp/down" };
    cluster.node.run_in("web", "main", change)?;
    cluster.node.eventually("the node to notice", || {
        let pod = cluster.node.pod("web")?;
        ensure!(pod.container("main")?.ready == ready, "{pod:?}");
        Ok(())
    })
}

fn wait_told(cluster: &Cluster, ready: bool) -> Result<()> {
    let wanted = if ready { "True" } else { "False" };
    let what = format!("to be told as ready: {ready}");
    cluster.wait_pod("web", &what, |pod| condition(pod, "Ready") == Some(wanted)).map(drop)
}

#[test]
fn pods_run_and_statuses_converge_whatever_the_server_does() -> Result<()> {
    let front = Front::default();
    let mut cluster = start(&front)?;
    let before = cluster.node.instances()?;
    let mut ready = true;
    for fault in [
        Fault::Answers(500),
        Fault::Answers(429),
        Fault::Answers(409),
        Fault::Answers(410),
        // As a server does to whose clock the node's certificate has expired.
        Fault::Answers(401),
        Fault::CutsWatches(Duration::from_secs(1)),
    ] {
        front.take_asked();
        front.set(fault);
        let begun = Instant::now();
        ready = !ready;
        set_ready(&cluster, ready)?;
        sleep(HELD.saturating_sub(begun.elapsed()));
        // Counted first: what comes in between is one too many, not one too few.
        let held = begun.elapsed();
        let asked = front.take_asked();
        front.set(Fault::None);
        check_asked(&format!("{fault:?}"), &asked, held)?;
        wait_told(&cluster, ready)?;
        assert_eq!(cluster.node.instances()?, before, "{fault:?}");
    }
    // Away altogether, with its memory of what has changed, as when etcd is restarted.
    cluster.api.pause()?;
    ready = !ready;
    set_ready(&cluster, ready)?;
    sleep(HELD);
    front.take_asked();
    cluster.api.resume()?;
    let back = Instant::now();
    wait_told(&cluster, ready)?;
    check_asked("back again", &front.take_asked(), back.elapsed())?;
    assert_eq!(cluster.node.instances()?, before);
    // Whoever was away hears of what is new.
    cluster.create_pod(&PodManifest::script("late", "sleep 100000"))?;
    cluster.wait_ready("late").map(drop)
}

#[test]
fn a_node_that_starts_while_its_server_refuses_waits_patiently() -> Result<()> {
    let front = Front::default();
    let mut cluster = start(&front)?;
    let before = cluster.node.instances()?;
    cluster.node.klet.kill9()?;
    front.set(Fault::Answers(500));
    front.take_asked();
    let begun = Instant::now();
    cluster.node.klet.restart()?;
    sleep(HELD);
    let held = begun.elapsed();
    check_asked("from the start", &front.take_asked(), held)?;
    assert_eq!(cluster.node.instances()?, before);
    front.set(Fault::None);
    cluster.node.eventually("the pods to be known again", || {
        cluster.node.pod("web").and(cluster.node.pod("other")).map(drop)
    })?;
    cluster.wait_ready("web")?;
    assert_eq!(cluster.node.instances()?, before);
    Ok(())
}
