//! Tables of the status.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{NodeImage, RuntimeHandler};
use super::status::{LastWrite, Outcome, Told, differs, set};
use super::test_parts::{facts, settings};

fn now() -> Timestamp {
    "2026-01-01T00:00:00.5Z".parse().expect("a time")
}

fn image(id: &str, bytes: u64, digests: usize, tags: usize) -> NodeImage {
    let names = |kind: &str, count| (0..count).map(|n| format!("{id}{kind}{n}")).collect();
    NodeImage { id: id.to_owned(), digests: names("@", digests), tags: names(":", tags), bytes }
}

#[test]
fn a_whole_status() {
    let mut node = json!({});
    let mut facts = facts();
    facts.images = Ok(vec![image("a", 5, 1, 1)]);
    facts.volumes_in_use = Some(vec!["kubernetes.io/csi/d^v".to_owned()]);
    facts.runtime.supplemental_groups_policy = Some(true);
    let mut settings = settings();
    settings.declared_features = Some(vec!["A".to_owned()]);
    let Outcome { problems, .. } = set(&mut node, &settings, &facts, now(), &mut Told::default());
    assert!(problems.is_empty(), "{problems:?}");
    let mut status = node["status"].take();
    status["conditions"].take();
    let expected = json!({
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "host1"}],
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
        "allocatable": {"cpu": "3900m", "memory": "8092Mi", "pods": "110",
            "ephemeral-storage": "90Gi"},
        "conditions": null,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "declaredFeatures": ["A"],
        "features": {"supplementalGroupsPolicy": true},
        "images": [{"names": ["a@0", "a:0"], "sizeBytes": 5}],
        "nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.1",
            "osImage": "Debian", "containerRuntimeVersion": "containerd://2.1",
            "kubeletVersion": "v1.36.4", "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": super::settings::ARCH},
        "runtimeHandlers": [
            {"name": "", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": false}},
            {"name": "runc", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
        ],
        "volumesInUse": ["kubernetes.io/csi/d^v"],
    });
    assert_eq!(status, expected);
}

#[test]
fn the_second_time_nothing_differs_but_when() {
    let mut node = json!({});
    let mut told = Told::default();
    set(&mut node, &settings(), &facts(), now(), &mut told);
    let before = node.clone();
    let later = "2026-01-01T00:00:10Z".parse().expect("a time");
    let outcome = set(&mut node, &settings(), &facts(), later, &mut told);
    assert_eq!(outcome, Outcome::default());
    assert_ne!(before, node);
    assert!(!differs(&before, &node, None));
    // Each thing that changes does.
    let changes: [&dyn Fn(&mut super::NodeFacts); 6] = [
        &|facts| facts.pressure.disk = true,
        &|facts| facts.troubles.network = vec!["network state unknown".to_owned()],
        &|facts| facts.images = Ok(vec![image("b", 1, 0, 1)]),
        &|facts| facts.volumes_in_use = Some(vec!["v".to_owned()]),
        &|facts| facts.runtime.version = None,
        &|facts| facts.runtime.handlers = vec![RuntimeHandler::default()],
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (mut changed, mut other) = (node.clone(), facts());
        change(&mut other);
        set(&mut changed, &settings(), &other, later, &mut told);
        assert!(differs(&node, &changed, None), "change {number}");
    }
}

#[test]
fn images_are_the_largest_with_a_few_names() {
    let table: [(i32, &[&str]); 4] =
        [(-1, &["c", "b", "d", "a"]), (0, &[]), (2, &["c", "b"]), (50, &["c", "b", "d", "a"])];
    for (max, expected) in table {
        let mut settings = settings();
        settings.max_images = max;
        let mut facts = facts();
        facts.images = Ok(vec![image("a", 1, 1, 1), image("b", 7, 1, 0), image("c", 9, 4, 4), {
            let mut same_size = image("d", 7, 0, 1);
            same_size.id = "Z".to_owned();
            same_size
        }]);
        let mut node = json!({});
        set(&mut node, &settings, &facts, now(), &mut Told::default());
        let images = super::fields::list(&node, "/status/images");
        let names: Vec<&str> =
            images.iter().map(|image| &image["names"][0].as_str().expect("a name")[..1]).collect();
        assert_eq!(names, expected);
        if max == 2 {
            let names = images[0]["names"].as_array().expect("names");
            assert_eq!(names, &["c@0", "c@1", "c@2", "c@3", "c:0"]);
        }
    }
}

#[test]
fn what_cannot_be_learnt_is_told_and_left() {
    let mut facts = facts();
    facts.machine = Err("a".to_owned());
    facts.versions = Err("b".to_owned());
    facts.images = Err("c".to_owned());
    facts.network.interfaces.clear();
    facts.volumes_in_use = None;
    let mut node = json!({"status": {"images": [{"names": ["x"]}], "volumesInUse": ["v"],
        "nodeInfo": {"kernelVersion": "5"}}});
    let outcome = set(&mut node, &settings(), &facts, now(), &mut Told::default());
    let status = &node["status"];
    assert_eq!(status["nodeInfo"]["kernelVersion"], "5");
    assert_eq!(status["nodeInfo"]["machineID"], "");
    assert_eq!(status["volumesInUse"], json!(["v"]), "not before a former run is known");
    assert!(status.get("images").is_none() && status.get("addresses").is_none(), "{status}");
    assert_eq!(outcome.problems.len(), 4, "{:?}", outcome.problems);
}

#[test]
fn a_boot_and_a_cordon_are_told_once() {
    let reasons = |outcome: &Outcome| -> Vec<&'static str> {
        outcome.events.iter().map(|event| event.reason).collect()
    };
    let mut told = Told::default();
    let mut node = json!({});
    set(&mut node, &settings(), &facts(), now(), &mut told);
    node["status"]["nodeInfo"]["bootID"] = "older".into();
    node["spec"]["unschedulable"] = true.into();
    let mut again = node.clone();
    let outcome = set(&mut node, &settings(), &facts(), now(), &mut told);
    assert_eq!(reasons(&outcome), ["Rebooted", "NodeNotSchedulable"]);
    assert_eq!(outcome.events[0].message, "Node n1 has been rebooted, boot id: b");
    assert_eq!(outcome.events[1].message, "Node n1 status is now: NodeNotSchedulable");
    let outcome = set(&mut again, &settings(), &facts(), now(), &mut told);
    assert_eq!(outcome, Outcome::default(), "the API server has not heard of the boot yet");
    node["spec"] = Value::Null;
    let outcome = set(&mut node, &settings(), &facts(), now(), &mut told);
    assert_eq!(reasons(&outcome), ["NodeSchedulable"]);
}

#[test]
fn swap_and_an_unknown_runtime() {
    let mut facts = facts();
    facts.machine.as_mut().expect("a machine").swap_bytes = 4096;
    facts.runtime.version = None;
    let mut node = json!({});
    set(&mut node, &settings(), &facts, now(), &mut Told::default());
    assert_eq!(node["status"]["nodeInfo"]["swap"], json!({"capacity": 4096}));
    assert_eq!(node["status"]["nodeInfo"]["containerRuntimeVersion"], "containerd://Unknown");
}

#[test]
fn order_of_conditions_and_empty_lists_are_no_difference() {
    let condition = |kind: &str, heard: &str| json!({"type": kind, "lastHeartbeatTime": heard});
    let old = json!({"status": {"conditions": [condition("A", "1"), condition("B", "1")],
        "images": [], "features": null}});
    let new = json!({"status": {"conditions": [condition("B", "2"), condition("A", "2")],
        "volumesInUse": []}});
    assert!(!differs(&old, &new, None));
    assert!(differs(&old, &json!({"status": {"conditions": [condition("A", "1")]}}), None));
    assert!(differs(&json!({}), &old, None));
}

#[test]
fn what_the_server_did_not_take_is_no_change() {
    let node = |features: Value, cpu: &str| json!({"status": {"f": features, "cpu": cpu}});
    let last =
        LastWrite { wanted: node(json!(["A"]), "1"), answered: json!({"status": {"cpu": "1"}}) };
    let has = json!({"status": {"cpu": "1"}});
    assert!(differs(&has, &node(json!(["A"]), "1"), None));
    assert!(!differs(&has, &node(json!(["A"]), "1"), Some(&last)));
    assert!(differs(&has, &node(json!(["A"]), "2"), Some(&last)), "something else is news");
    assert!(differs(&has, &node(json!(["B"]), "1"), Some(&last)), "it wants something else");
    let other = node(json!(["C"]), "1");
    assert!(differs(&other, &node(json!(["A"]), "1"), Some(&last)), "somebody wrote since");
}
