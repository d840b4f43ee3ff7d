//! Amounts, counts and ports.

use serde_json::{Value, json};

use super::{asks, pod, world};

fn short(resource: &str, requested: i64, used: i64, capacity: i64) -> String {
    format!(
        "OutOf{resource}: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    )
}

#[test]
fn amounts_that_are_there_and_that_are_not() {
    const GIB: i64 = 1 << 30;
    let init = |cpu: &str| json!({"initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
    for (spec, expected) in [
        (asks(json!({"cpu": "1500m"})), "admit".to_owned()),
        (asks(json!({"cpu": "1501m"})), short("cpu", 1501, 500, 2000)),
        (asks(json!({"cpu": "3", "memory": "9Gi"})), short("cpu", 3000, 500, 2000)),
        (asks(json!({"memory": "3Gi"})), "admit".to_owned()),
        (asks(json!({"memory": "4Gi"})), short("memory", 4 * GIB, GIB, 4 * GIB)),
        (
            asks(json!({"ephemeral-storage": "11Gi"})),
            short("ephemeral-storage", 11 * GIB, 0, 10 * GIB),
        ),
        (
            asks(json!({"hugepages-2Mi": "6Mi", "memory": "1"})),
            short("hugepages-2Mi", 6 << 20, 0, 4 << 20),
        ),
        (asks(json!({"hugepages-1Gi": "1Gi", "memory": "1"})), short("hugepages-1Gi", GIB, 0, 0)),
        (asks(json!({"example.com/gpu": "1"})), "admit".to_owned()),
        (asks(json!({"example.com/gpu": "2"})), short("example.com/gpu", 2, 0, 1)),
        // Nothing that the node knows: others count it.
        (asks(json!({"example.com/floating": "99"})), "admit".to_owned()),
        (init("1500m"), "admit".to_owned()),
        (init("2"), short("cpu", 2000, 500, 2000)),
        (json!({"overhead": {"cpu": "1501m"}}), short("cpu", 1501, 500, 2000)),
        (json!({"resources": {"requests": {"cpu": "1501m"}}}), short("cpu", 1501, 500, 2000)),
    ] {
        let world = world().with(pod("b", asks(json!({"cpu": "500m", "memory": "1Gi"}))));
        assert_eq!(world.judge(pod("a", spec.clone())), expected, "{spec}");
    }
}

#[test]
fn so_many_pods_and_no_more() {
    let world = world().with(pod("b", json!({}))).with(pod("c", json!({})));
    assert_eq!(world.judge(pod("a", json!({}))), "admit");
    let full = world.with(pod("d", json!({})));
    assert_eq!(full.judge(pod("a", json!({}))), short("pods", 1, 3, 3));
    // Of all that is missing, the first is told.
    assert_eq!(full.judge(pod("a", asks(json!({"cpu": "9"})))), short("pods", 1, 3, 3));
}

fn ports(list: Value) -> Value {
    json!({"app": {"ports": list}})
}

#[test]
fn host_ports_are_taken_once() {
    let no = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    let one = |port: u16, protocol: &str, ip: &str| json!([{"containerPort": 80, "hostPort": port, "protocol": protocol, "hostIP": ip}]);
    for (taken, wanted, fits) in [
        (one(80, "TCP", ""), one(80, "TCP", ""), false),
        (one(80, "TCP", ""), one(81, "TCP", ""), true),
        (one(80, "TCP", ""), one(80, "UDP", ""), true),
        (one(80, "TCP", ""), one(80, "TCP", "10.0.0.1"), false),
        (one(80, "TCP", "10.0.0.1"), one(80, "TCP", ""), false),
        (one(80, "TCP", "10.0.0.1"), one(80, "TCP", "10.0.0.2"), true),
        (one(80, "TCP", "10.0.0.1"), one(80, "TCP", "10.0.0.1"), false),
        (json!([{"containerPort": 80}]), json!([{"containerPort": 80}]), true),
    ] {
        let world = world().with(pod("b", ports(taken.clone())));
        let expected = if fits { "admit" } else { no };
        assert_eq!(world.judge(pod("a", ports(wanted.clone()))), expected, "{taken} {wanted}");
    }
    // Those of the host's network take what they listen on; sidecars count, init containers
    // that end do not.
    let host = json!({"hostNetwork": true, "app": {"ports": [{"containerPort": 80}]}});
    let world = world().with(pod("b", host.clone()));
    assert_eq!(world.judge(pod("a", host)), no);
    let init = |restart: Value| {
        json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": restart,
            "ports": [{"containerPort": 1, "hostPort": 80}]}]})
    };
    assert_eq!(world.judge(pod("a", init(json!("Always")))), no);
    assert_eq!(world.judge(pod("a", init(Value::Null))), "admit");
}
