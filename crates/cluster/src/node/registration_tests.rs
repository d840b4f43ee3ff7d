//! Tables of what is made and what is made to agree.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::HugePages;
use super::registration::{initial_node, reconcile, set_required_labels};
use super::settings::{ARCH, NodeTaint};
use super::test_parts::{facts, settings};

fn initial() -> Value {
    initial_node(&settings(), &facts(), Timestamp::UNIX_EPOCH)
}

#[test]
fn a_plain_node() {
    let mut node = initial();
    assert_eq!(node["status"]["conditions"][3]["status"], "True");
    node["status"] = Value::Null;
    let expected = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1",
            "labels": {"kubernetes.io/hostname": "host1", "kubernetes.io/os": "linux",
                "kubernetes.io/arch": ARCH, "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": ARCH},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {}, "status": null});
    assert_eq!(node, expected);
}

#[test]
fn everything_that_can_be_set() {
    let mut settings = settings();
    settings.controller_attaches = false;
    settings.external_cloud = true;
    settings.provider_id = "x://1".to_owned();
    settings.labels =
        vec![("a".into(), "b".into()), ("kubernetes.io/hostname".into(), "other".into())];
    let taint = |key: &str, value: &str| NodeTaint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: "NoExecute".to_owned(),
    };
    settings.taints = vec![taint("k", "v"), taint("l", "")];
    let node = initial_node(&settings, &facts(), Timestamp::UNIX_EPOCH);
    assert_eq!(node["metadata"]["labels"]["a"], "b");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "other");
    assert_eq!(
        node["metadata"]["annotations"],
        json!({"alpha.kubernetes.io/provided-node-ip": "10.0.0.1"})
    );
    assert_eq!(
        node["spec"],
        json!({"providerID": "x://1", "taints": [
            {"key": "k", "value": "v", "effect": "NoExecute"},
            {"key": "l", "effect": "NoExecute"},
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true",
                "effect": "NoSchedule"}]})
    );
}

#[test]
fn a_node_that_agrees_is_left() {
    let mut node = initial();
    node["metadata"]["labels"]["mine"] = "x".into();
    node["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
    let before = node.clone();
    assert!(!reconcile(&mut node, &initial(), false));
    assert_eq!(node, before);
    assert!(!reconcile(&mut node, &initial(), true), "there are no devices to forget");
}

#[test]
fn labels_and_the_annotation() {
    let key = "volumes.kubernetes.io/controller-managed-attach-detach";
    let mut node = initial();
    node["metadata"]["annotations"] = json!({key: "false", "x": "y"});
    node["metadata"]["labels"] = json!({"kubernetes.io/hostname": "old", "mine": "x"});
    assert!(reconcile(&mut node, &initial(), false));
    assert_eq!(node["metadata"]["annotations"], json!({key: "true", "x": "y"}));
    let mut labels = initial()["metadata"]["labels"].clone();
    labels["mine"] = "x".into();
    assert_eq!(node["metadata"]["labels"], labels);

    let mut settings = settings();
    settings.controller_attaches = false;
    settings.labels = vec![("topology.kubernetes.io/zone".into(), String::new())];
    let other = initial_node(&settings, &facts(), Timestamp::UNIX_EPOCH);
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z".into();
    assert!(reconcile(&mut node, &other, false));
    assert_eq!(node["metadata"]["annotations"], json!({"x": "y"}));
    assert!(node["metadata"]["labels"].get("topology.kubernetes.io/zone").is_none());
}

#[test]
fn a_node_without_resources_is_given_them() {
    let mut node = json!({"metadata": {"name": "n1"}});
    assert!(reconcile(&mut node, &initial(), false));
    assert_eq!(node["status"]["capacity"], initial()["status"]["capacity"]);
    assert_eq!(node["status"]["allocatable"], initial()["status"]["allocatable"]);
    assert!(node["status"].get("nodeInfo").is_none(), "the rest comes with the first update");
}

#[test]
fn forgotten_devices_are_zero() {
    let mut node = initial();
    node["status"]["capacity"]["a.com/gpu"] = "4".into();
    node["status"]["allocatable"]["a.com/gpu"] = "4".into();
    let before = node.clone();
    assert!(!reconcile(&mut node, &initial(), false));
    assert_eq!(node, before);
    assert!(reconcile(&mut node, &initial(), true));
    assert_eq!(node["status"]["capacity"]["a.com/gpu"], "0");
    assert_eq!(node["status"]["allocatable"]["a.com/gpu"], "0");
    assert_eq!(node["status"]["capacity"]["cpu"], "4");
}

#[test]
fn huge_pages_come_and_go() {
    let mut facts = facts();
    facts.machine.as_mut().expect("a machine").huge_pages =
        vec![HugePages { page_bytes: 2 << 20, pages: 4 }];
    let wanted = initial_node(&settings(), &facts, Timestamp::UNIX_EPOCH);
    let table = [
        (json!({"cpu": "1"}), json!({"cpu": "1"}), true),
        (json!({"hugepages-2Mi": "4Mi"}), json!({"hugepages-2Mi": "8Mi"}), true),
        (json!({"hugepages-2Mi": "8Mi"}), json!({"hugepages-2Mi": "8192Ki"}), false),
        (
            json!({"hugepages-2Mi": "8Mi", "hugepages-1Gi": "1Gi"}),
            json!({"hugepages-2Mi": "8Mi", "hugepages-1Gi": "1Gi"}),
            true,
        ),
    ];
    for (capacity, allocatable, expected) in table {
        let mut node = wanted.clone();
        node["status"]["capacity"] = capacity.clone();
        node["status"]["allocatable"] = allocatable;
        assert_eq!(reconcile(&mut node, &wanted, false), expected, "{capacity}");
        assert_eq!(node["status"]["capacity"]["hugepages-2Mi"], "8Mi");
        assert!(node["status"]["capacity"].get("hugepages-1Gi").is_none());
        assert!(node["status"]["allocatable"].get("hugepages-1Gi").is_none());
    }
}

#[test]
fn labels_that_are_required_come_back() {
    let mut node = initial();
    assert!(!set_required_labels(&mut node));
    node["metadata"]["labels"]["kubernetes.io/arch"] = "pdp11".into();
    assert!(set_required_labels(&mut node));
    assert_eq!(node, initial());
    let mut bare = json!({"metadata": {"labels": null}});
    assert!(set_required_labels(&mut bare));
    assert_eq!(bare["metadata"]["labels"]["kubernetes.io/os"], "linux");
}
