//! What klet serves on its health and read-only ports.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

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

#[test]
fn the_read_only_port_shows_what_is_not_for_debugging() -> Result<()> {
    let node = Node::start()?;
    node.manifests.put_pod(&PodManifest::pause("one"))?;
    node.wait_running("one")?;
    let (health, read_only) = (node.klet.health_port(), node.klet.read_only_port());

    let verbose = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
    assert_eq!(http::get_ok(read_only, "/healthz?verbose")?, verbose);
    for check in ["ping", "log", "syncloop"] {
        assert_eq!(http::get_ok(read_only, &format!("/healthz/{check}"))?, "ok");
    }
    assert_eq!(http::get_ok(health, "/healthz?verbose")?, "[+]ping ok\nhealthz check passed\n");
    assert_eq!(http::get(health, "/healthz/syncloop")?.status, 404);

    let summary: serde_json::Value =
        serde_json::from_str(&http::get_ok(read_only, "/stats/summary")?)?;
    assert_eq!(summary["node"]["nodeName"], "n1");
    assert_eq!(summary["pods"][0]["podRef"]["name"], "one-n1");
    for (path, sample) in [
        ("/metrics", "kubelet_running_pods 1\n"),
        ("/metrics/cadvisor", "machine_cpu_cores{"),
        ("/metrics/resource", "node_memory_working_set_bytes "),
        ("/metrics/probes", "process_start_time_seconds "),
        ("/metrics/slis", "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 1\n"),
    ] {
        let text = http::get_ok(read_only, path)?;
        assert!(text.contains(&format!("\n{sample}")), "{path} lacks {sample:?}:\n{text}");
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{path}: {text}");
    }
    let counted = "\nkubelet_http_requests_total{method=\"GET\",path=\"stats\",\
        server_type=\"readonly\",long_running=\"false\"} 1\n";
    let metrics = http::get_ok(read_only, "/metrics")?;
    assert!(metrics.contains(counted), "{metrics}");
    for path in ["/exec/default/one-n1/main", "/containerLogs/default/one-n1/main", "/logs/"] {
        let told = http::get(read_only, path)?;
        assert_eq!((told.status, told.body.trim()), (405, "Debug endpoints are disabled."));
    }
    assert_eq!(http::get(read_only, "/configz")?.status, 404);
    Ok(())
}

#[test]
fn clients_that_say_nothing_do_not_keep_others_from_asking() -> Result<()> {
    let node = Node::start()?;
    for port in [node.klet.health_port(), node.klet.read_only_port()] {
        let mut held = Vec::new();
        for n in 0..300 {
            let mut one = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            if n % 2 == 0 {
                one.write_all(b"GET /healthz HTTP/1.1\r\nhost")?;
            }
            held.push(one);
        }
        assert_eq!(http::get_ok(port, "/healthz")?, "ok");
        drop(held);
    }
    Ok(())
}
