//! Addresses and the start time.

use expect_test::expect;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::case::Case;
use super::{dsl, story};
use crate::status_manager::start_time;

#[test]
fn the_start_time_is_set_once() {
    let start = |scenes: &[&str]| story(scenes).start_time.map(|Time(at)| at.to_string());
    let first = start(&["web Always: no sandbox"]);
    assert_eq!(first.as_deref(), Some("2026-01-02T03:04:05Z"));
    assert_eq!(start(&["web Always: no sandbox", "web Always: app running"]), first);
}

/// A restarted agent may tell its first status before it has looked: the deadline of
/// the pod must not begin anew (seed 164 of a simulation).
#[test]
fn the_start_time_is_no_later_than_the_oldest_sandbox() {
    let seen = dsl::scene("web Always: app running").seen;
    let later = |seconds| dsl::wall() + SignedDuration::from_secs(seconds);
    let told = PodStatus { start_time: Some(Time(later(60))), ..PodStatus::default() };
    let start = start_time(Some(&told), &seen, later(120));
    assert_eq!(start.to_string(), "2026-01-02T03:04:05Z");
}

fn addresses(scenes: &[&str]) -> String {
    let status = story(scenes);
    let pod: Vec<_> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
    let host: Vec<_> = status.host_ips.into_iter().flatten().map(|ip| ip.ip).collect();
    assert_eq!(status.pod_ip.as_ref(), pod.first());
    assert_eq!(status.host_ip.as_ref(), host.first());
    format!("pod {} host {}", pod.join(" "), host.join(" "))
}

#[test]
fn addresses_come_from_the_newest_sandbox_and_the_node() {
    expect!["pod  host 192.0.2.1 2001:db8::1"].assert_eq(&addresses(&["web Always: no sandbox"]));
    expect!["pod 10.0.0.2 host 192.0.2.1 2001:db8::1"]
        .assert_eq(&addresses(&["web Always: sandbox 0 dead; sandbox 1 ready"]));
    expect!["pod 10.0.0.1 host 192.0.2.1 2001:db8::1"]
        .assert_eq(&addresses(&["web Always: sandbox 0 ready", "web Always: no sandbox"]));
}

#[test]
fn a_host_network_pod_has_the_nodes_addresses() {
    let text = addresses(&["web Always hostnet: sandbox 0 ready"]);
    assert!(text.starts_with("pod 192.0.2.1 2001:db8::1"), "{text}");
}

fn pod_ips(case: &Case, sandbox_ips: &[&str]) -> String {
    let mut seen = dsl::scene("web Always: sandbox 0 ready").seen;
    seen.sandboxes[0].ips = sandbox_ips.iter().map(|ip| (*ip).to_owned()).collect();
    let ips = case.generate(&seen).pod_ips.into_iter().flatten();
    ips.map(|ip| ip.ip).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_address_per_family_the_nodes_first() {
    let mut case = Case::new("Always | app |");
    let many = ["fd00::0001", "10.0.0.1", "10.0.0.2", "fd00::2", "nonsense"];
    assert_eq!(pod_ips(&case, &many), "10.0.0.1 fd00::1");
    assert_eq!(pod_ips(&case, &["fd00::1"]), "fd00::1");
    assert_eq!(pod_ips(&case, &["nonsense"]), "");
    case.node_ips = vec!["2001:db8::1".to_owned()];
    assert_eq!(pod_ips(&case, &many), "fd00::1 10.0.0.1");
    case.node_ips.clear();
    assert_eq!(pod_ips(&case, &many), "10.0.0.1 fd00::1");
}

#[test]
fn a_host_network_pod_keeps_its_addresses_and_may_gain_a_family() {
    let mut case = Case::new("Always | app |").spec(|spec| spec.host_network = Some(true));
    let node = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    case.node_ips = node(&["192.0.2.1"]);
    let mut case = case.then("sandbox 0 ready");
    assert_eq!(pod_ips(&case, &[]), "192.0.2.1");
    case.node_ips = node(&["192.0.2.7", "192.0.2.8"]);
    assert_eq!(pod_ips(&case, &[]), "192.0.2.1");
    case.node_ips = node(&["192.0.2.7", "2001:db8::1"]);
    assert_eq!(pod_ips(&case, &[]), "192.0.2.1 2001:db8::1");
}
