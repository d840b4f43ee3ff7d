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

/// What each client may ask before its pauses have grown. They begin with half a second
/// or more and double: that is six attempts in as long as a fault is in force here.
const ATTEMPTS: usize = 6;
/// Clients that are not watches: the node's status, its lease, statuses of pods, mirrors,
/// events, tokens.
const OTHERS: usize = 6;
/// What does not grow. As upstream, every 10 s the node's status is tried 5 times and its
/// lease up to 10 times, with a read for each conflict.
const PER_MINUTE: usize = 6 * (5 + 20);
/// A watch that lasted for a second is begun anew at once, as upstream does.
const PER_CUT_WATCH_AND_MINUTE: usize = 60;

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
    // Pods, the node itself, services, classes of runtimes, and each object that pods use.
    let watches = asked.keys().filter(|what| what.starts_with("WATCH ")).count().max(6);
    let cut = if what.starts_with("Cuts") { watches * PER_CUT_WATCH_AND_MINUTE } else { 0 };
    let millis = usize::try_from(held.as_millis())?;
    let limit = (watches + OTHERS) * ATTEMPTS + (PER_MINUTE + cut) * millis / 60_000;
    let total: usize = asked.values().sum();
    let rate = total * 60_000 / millis.max(1);
    println!("{what}: {total} requests in {} s, of {limit}; {rate} a minute", held.as_secs());
    ensure!(total <= limit, "{what}: {total} requests in {held:?}, of {limit}: {asked:#?}");
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
        Fault::Silent,
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
    let (knocks, begun) = (cluster.api.count_knocks()?, Instant::now());
    ready = !ready;
    set_ready(&cluster, ready)?;
    sleep(HELD.saturating_sub(begun.elapsed()));
    let held = begun.elapsed();
    let connections = BTreeMap::from([("connections".to_owned(), knocks.count())]);
    drop(knocks);
    ensure!(connections.values().any(|count| *count > 0), "nobody has asked for the server");
    check_asked("away", &connections, held)?;
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

#[test]
fn an_expired_certificate_ends_no_pod() -> Result<()> {
    let front = Front::default();
    let mut cluster = start(&front)?;
    let before = cluster.node.instances()?;
    let name = cluster.node.klet.node_name().to_owned();
    cluster.node.klet.kill9()?;
    cluster.api.expired_kubeconfig(&name)?;
    cluster.node.klet.restart()?;
    cluster.node.wait_says(&["why", "node"], &["not in order with its API server"])?;
    assert_eq!(cluster.node.instances()?, before);
    cluster.node.klet.kill9()?;
    cluster.api.node_kubeconfig(&name)?;
    cluster.node.klet.restart()?;
    cluster.node.wait_running("web")?;
    set_ready(&cluster, false)?;
    wait_told(&cluster, false)?;
    assert_eq!(cluster.node.instances()?, before);
    Ok(())
}
