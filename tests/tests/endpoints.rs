//! What klet serves on its health and read-only ports.

use anyhow::Result;
use testkit::{Node, PodManifest, http};

#[test]
fn health_pods_and_metrics_are_served() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&PodManifest::pause("one").label("app", "one"))?;
    node.wait_running("one")?;

    let (health, read_only) = (node.klet.health_port(), node.klet.read_only_port());
    assert_eq!(http::get_ok(health, "/healthz")?.trim(), "ok");
    assert_eq!(http::get_ok(read_only, "/healthz")?.trim(), "ok");

    let list: serde_json::Value = serde_json::from_str(&http::get_ok(read_only, "/pods")?)?;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"PodList".into(), &"v1".into()));
    let pod = &list["items"][0];
    assert_eq!(pod["metadata"]["name"], "one-n1");
    assert_eq!(pod["metadata"]["labels"]["app"], "one");
    assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    assert_eq!(pod["spec"]["nodeName"], "n1");
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    let status = &pod["status"]["containerStatuses"][0];
    assert!(status["containerID"].as_str().is_some_and(|id| id.starts_with("containerd://")));
    assert_eq!(status["ready"], true);
    assert_eq!(status["image"], "registry.k8s.io/pause:3.10");

    let metrics = http::get_ok(read_only, "/metrics")?;
    assert!(metrics.lines().any(|line| line.starts_with("# TYPE kubelet_")), "{metrics}");
    let probes = http::get_ok(read_only, "/metrics/probes")?;
    assert!(probes.contains("\nprocess_start_time_seconds "), "{probes}");

    assert_eq!(http::get(read_only, "/no-such-page")?.status, 404);
    assert_eq!(http::get(health, "/pods")?.status, 404, "only the health check is served there");
    Ok(())
}
