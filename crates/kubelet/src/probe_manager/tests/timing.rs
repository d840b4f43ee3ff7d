//! When workers try, and what others notice of it.

use std::time::Duration;

use kubelet_model::{ContainerName, ProbeKind, ProbeResult};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::world::World;

const LONG_UP: Duration = Duration::from_secs(1_000);

fn tcp(port: u16, period: u32) -> Value {
    json!({"tcpSocket": {"port": port}, "periodSeconds": period, "failureThreshold": 2})
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Just after a whole second, so that what happens in that second has happened.
async fn until_just_after(n: u64) {
    sleep(secs(n) + Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn tries_at_once_and_then_once_a_period_however_often_it_is_ensured() {
    let spec = json!({"containers": [{"name": "app", "livenessProbe": tcp(1, 5)}]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    for _ in 0..3 {
        world.probes.ensure(&world.pod);
    }
    until_just_after(11).await;
    assert_eq!(world.net.times(1), [0, 5, 10]);
    assert_eq!(world.net.last_host(), "10.0.0.9");
    assert_eq!(world.result("app", ProbeKind::Liveness), Some(ProbeResult::Success));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_spreads_its_first_tries() {
    let container = |n: u16| json!({"name": format!("c{n}"), "livenessProbe": tcp(n, 60)});
    let spec = json!({"containers": (1..=8).map(container).collect::<Vec<_>>()});
    let world = World::new(Duration::ZERO, spec).await;
    let names: Vec<String> = (1..=8).map(|n| format!("c{n}")).collect();
    world.run(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[], true, true);
    world.probes.ensure(&world.pod);
    until_just_after(60).await;
    let mut first: Vec<u64> = (1..=8).map(|n| world.net.times(n)[0]).collect();
    first.dedup();
    assert!(first.len() > 4 && first.iter().all(|at| *at < 60), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_try_delays_the_next_one_and_skips_none_twice() {
    let spec = json!({"containers": [{"name": "app", "readinessProbe":
        {"tcpSocket": {"port": 1}, "periodSeconds": 2, "timeoutSeconds": 5}}]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    *world.net.takes.lock().unwrap() = secs(3);
    world.probes.ensure(&world.pod);
    until_just_after(4).await;
    *world.net.takes.lock().unwrap() = Duration::ZERO;
    until_just_after(6).await;
    assert_eq!(world.net.times(1), [0, 3, 6, 8, 10]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_each_time_and_stored_at_the_threshold() {
    let spec = json!({"containers": [{"name": "app", "livenessProbe": tcp(1, 5)}]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    let watch = world.probes.follow(world.uid());
    *world.net.unwell.lock().unwrap() = true;
    world.probes.ensure(&world.pod);
    // Being alive is no news.
    assert!(timeout(secs(4), watch.changed()).await.is_err());
    assert_eq!(world.result("app", ProbeKind::Liveness), Some(ProbeResult::Success));
    timeout(secs(2), watch.changed()).await.unwrap();
    assert_eq!(world.result("app", ProbeKind::Liveness), Some(ProbeResult::Failure));
    assert_eq!(world.events(), ["Unhealthy Liveness probe failed: unwell x2"]);
    until_just_after(20).await;
    assert_eq!(world.net.times(1), [0, 5], "on hold until there is a new container");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_a_failure_and_a_redirect_elsewhere_a_warning() {
    let spec = json!({"containers": [
        {"name": "slow", "readinessProbe": {"tcpSocket": {"port": 1}, "timeoutSeconds": 2}},
    ]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["slow"], &[], true, false);
    *world.net.takes.lock().unwrap() = secs(60);
    world.probes.ensure(&world.pod);
    until_just_after(2).await;
    assert_eq!(world.events(), ["Unhealthy Readiness probe failed: too slow x1"]);

    let spec = json!({"containers": [
        {"name": "web", "readinessProbe": {"httpGet": {"port": 2}}},
    ]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["web"], &[], true, false);
    world.probes.ensure(&world.pod);
    until_just_after(1).await;
    let warning = "Readiness probe warning: Probe terminated redirects, Response body: elsewhere";
    assert_eq!(world.events(), [format!("ProbeWarning {warning} x1")]);
    assert_eq!(world.result("web", ProbeKind::Readiness), Some(ProbeResult::Success));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_cannot_be_asked_is_told_and_counts_for_nothing() {
    let spec = json!({"containers": [
        {"name": "app", "livenessProbe": {"tcpSocket": {"port": "none"}, "failureThreshold": 1}},
    ]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    world.probes.ensure(&world.pod);
    until_just_after(1).await;
    let error = "Liveness probe errored and resulted in unknown state: port none not found";
    assert_eq!(world.events(), [format!("Unhealthy {error} x1")]);
    assert_eq!(world.result("app", ProbeKind::Liveness), Some(ProbeResult::Success));
}

#[tokio::test(start_paused = true)]
async fn readiness_can_be_asked_for_out_of_turn() {
    let spec = json!({"containers": [{"name": "app", "readinessProbe": tcp(1, 60)}]});
    let world = World::new(LONG_UP, spec).await;
    let watch = world.probes.follow(world.uid());
    world.run(&["app"], &[], false, false);
    world.probes.ensure(&world.pod);
    until_just_after(10).await;
    watch.changed().await; // the initial value
    assert!(world.net.times(1).is_empty(), "not before the start is over");
    world.run(&["app"], &[], true, false);
    world.probes.retrigger_readiness(world.uid(), &ContainerName::new("app"));
    timeout(secs(1), watch.changed()).await.unwrap();
    assert_eq!(world.result("app", ProbeKind::Readiness), Some(ProbeResult::Success));
    until_just_after(60).await;
    assert_eq!(world.net.times(1), [10, 70]);
}

/// The wait of an agent that has just begun would be up to an hour here.
#[tokio::test(start_paused = true)]
async fn what_has_just_started_does_not_wait_for_the_agents_own_start() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let containers = names.iter().zip(1..);
    let containers: Vec<_> = containers
        .map(|(name, port)| json!({"name": name, "readinessProbe": tcp(port, 3600)}))
        .collect();
    let world = World::new(Duration::ZERO, json!({"containers": containers})).await;
    world.run(&names, &[], true, false);
    world.probes.ensure(&world.pod);
    for name in names {
        world.probes.retrigger_readiness(world.uid(), &ContainerName::new(name));
    }
    until_just_after(1).await;
    for port in 1..=8 {
        assert_eq!(world.net.times(port).len(), 1, "{port}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_container_has_no_result_until_it_is_tried() {
    let spec = json!({"containers": [{"name": "app", "readinessProbe": tcp(1, 60)}]});
    let world = World::new(Duration::ZERO, spec).await;
    world.run(&["app"], &[], true, true);
    world.probes.ensure(&world.pod);
    *world.net.unwell.lock().unwrap() = true;
    until_just_after(60).await;
    assert_eq!(world.net.times(1).len(), 1);
    assert_eq!(world.result("app", ProbeKind::Readiness), None, "one failure is not enough");
    sleep(secs(60)).await;
    assert_eq!(world.result("app", ProbeKind::Readiness), Some(ProbeResult::Failure));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_keeps_readiness_and_its_sidecars_probes() {
    let all = json!({"livenessProbe": tcp(1, 5), "readinessProbe": tcp(2, 5), "name": "app"});
    let spec = json!({
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "livenessProbe": tcp(3, 5)},
            {"name": "plain", "livenessProbe": tcp(4, 5)},
        ],
        "containers": [all],
    });
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &["side"], true, false);
    world.probes.ensure(&world.pod);
    until_just_after(5).await;
    world.probes.stop_liveness_and_startup(world.uid());
    world.probes.ensure(&world.pod);
    until_just_after(5).await;
    assert_eq!(world.net.times(1), [0, 5]);
    assert_eq!(world.net.times(2), [0, 5, 10]);
    assert_eq!(world.net.times(3), [0, 5, 10]);
    assert!(world.net.times(4).is_empty(), "an init container that ends is not probed");
}

#[tokio::test(start_paused = true)]
async fn removal_cuts_a_try_short_and_forgets_everything() {
    let spec = json!({"containers": [{"name": "app", "readinessProbe":
        {"tcpSocket": {"port": 1}, "timeoutSeconds": 50}}]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    *world.net.takes.lock().unwrap() = secs(20);
    world.probes.ensure(&world.pod);
    until_just_after(1).await;
    assert_eq!(world.result("app", ProbeKind::Readiness), Some(ProbeResult::Failure));
    world.probes.remove(world.uid());
    until_just_after(60).await;
    assert_eq!(world.results(), Default::default());
    assert_eq!(world.net.times(1), [0]);
    assert!(world.events().is_empty());
}

#[tokio::test(start_paused = true)]
async fn workers_end_with_their_pod() {
    let spec = json!({"containers": [{"name": "app", "livenessProbe": tcp(1, 5)}]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    world.probes.ensure(&world.pod);
    until_just_after(1).await;
    assert!(world.result("app", ProbeKind::Liveness).is_some());
    world.publish(json!({"phase": "Succeeded"}));
    until_just_after(20).await;
    assert_eq!(world.net.times(1), [0]);
    assert_eq!(world.result("app", ProbeKind::Liveness), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_address_is_asked_only_on_the_hosts_network() {
    for (host_network, expected) in [(true, "127.0.0.1"), (false, "")] {
        let spec = json!({"hostNetwork": host_network,
            "containers": [{"name": "app", "livenessProbe": tcp(1, 5)}]});
        let world = World::new(LONG_UP, spec).await;
        world.publish(json!({"phase": "Running", "containerStatuses": [{
            "name": "app", "containerID": "sim://app-1", "started": true,
            "state": {"running": {"startedAt": "1970-01-12T13:46:40Z"}},
            "image": "", "imageID": "", "ready": false, "restartCount": 0,
        }]}));
        world.probes.ensure(&world.pod);
        until_just_after(1).await;
        assert_eq!(world.net.last_host(), expected);
        assert_eq!(world.events().is_empty(), host_network);
    }
}
