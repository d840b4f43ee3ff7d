//! What `/metrics/probes` tells.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::world::World;

const LONG_UP: Duration = Duration::from_secs(1_000);

fn tcp(port: u16) -> Value {
    json!({"tcpSocket": {"port": port}, "periodSeconds": 5, "failureThreshold": 2})
}

/// The series, without comments and with some of the buckets.
fn series(world: &World) -> String {
    let text = world.probes.metrics();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let bounds = ["le=\"0.1\"", "le=\"0.25\"", "le=\"+Inf\""];
    let shown = |line: &&str| !line.contains("le=") || bounds.iter().any(|le| line.contains(le));
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter(shown);
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn results_and_durations_are_counted_until_the_pod_goes() {
    let spec = json!({"containers": [
        {"name": "app", "livenessProbe": tcp(1), "readinessProbe": tcp(2)},
    ]});
    let world = World::new(LONG_UP, spec).await;
    world.run(&["app"], &[], true, false);
    *world.net.takes.lock().unwrap() = Duration::from_millis(250);
    world.probes.ensure(&world.pod);
    sleep(Duration::from_secs(6)).await;
    *world.net.unwell.lock().unwrap() = true;
    sleep(Duration::from_secs(5)).await;
    expect![[r#"
        prober_probe_total{probe_type="Readiness",result="successful",container="app",pod="pod",namespace="ns",pod_uid="uid"} 2
        prober_probe_total{probe_type="Readiness",result="failed",container="app",pod="pod",namespace="ns",pod_uid="uid"} 1
        prober_probe_total{probe_type="Liveness",result="successful",container="app",pod="pod",namespace="ns",pod_uid="uid"} 2
        prober_probe_total{probe_type="Liveness",result="failed",container="app",pod="pod",namespace="ns",pod_uid="uid"} 1
        prober_probe_duration_seconds_sum{probe_type="Readiness",container="app",pod="pod",namespace="ns"} 0.5
        prober_probe_duration_seconds_count{probe_type="Readiness",container="app",pod="pod",namespace="ns"} 2
        prober_probe_duration_seconds_bucket{le="0.1",probe_type="Readiness",container="app",pod="pod",namespace="ns"} 0
        prober_probe_duration_seconds_bucket{le="0.25",probe_type="Readiness",container="app",pod="pod",namespace="ns"} 2
        prober_probe_duration_seconds_bucket{le="+Inf",probe_type="Readiness",container="app",pod="pod",namespace="ns"} 2
        prober_probe_duration_seconds_sum{probe_type="Liveness",container="app",pod="pod",namespace="ns"} 0.5
        prober_probe_duration_seconds_count{probe_type="Liveness",container="app",pod="pod",namespace="ns"} 2
        prober_probe_duration_seconds_bucket{le="0.1",probe_type="Liveness",container="app",pod="pod",namespace="ns"} 0
        prober_probe_duration_seconds_bucket{le="0.25",probe_type="Liveness",container="app",pod="pod",namespace="ns"} 2
        prober_probe_duration_seconds_bucket{le="+Inf",probe_type="Liveness",container="app",pod="pod",namespace="ns"} 2
        process_start_time_seconds 1000000.0"#]]
    .assert_eq(&series(&world));
    world.probes.stop_liveness_and_startup(world.uid());
    sleep(Duration::from_secs(1)).await;
    assert!(!series(&world).contains("Liveness"), "{}", series(&world));
    world.probes.remove(world.uid());
    assert!(!series(&world).contains("prober"), "{}", series(&world));
}

#[tokio::test(start_paused = true)]
async fn a_try_that_went_wrong_counts_as_nothing() {
    let exec = json!({"exec": {"command": ["true"]}, "periodSeconds": 5});
    let world =
        World::new(LONG_UP, json!({"containers": [{"name": "app", "livenessProbe": exec}]}));
    let world = world.await;
    world.run(&["app"], &[], true, false);
    world.probes.ensure(&world.pod);
    sleep(Duration::from_secs(30)).await;
    assert!(world.events().iter().any(|event| event.contains("probe errored")), "it was tried");
    assert!(!series(&world).contains("prober"), "{}", series(&world));
}
