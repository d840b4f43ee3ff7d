//! Selectors, affinity, names and taints.

use kubelet_model::Source;
use serde_json::{Value, json};

use super::{from, pod, world};
use crate::admission::Taint;

const NO: &str = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";

fn terms(terms: Value) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

fn label(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

fn field(operator: &str, values: &[&str]) -> Value {
    json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]})
}

#[test]
fn selectors_and_every_operator() {
    for (spec, fits) in [
        (json!({"nodeSelector": {"zone": "a"}}), true),
        (json!({"nodeSelector": {"zone": "b"}}), false),
        (json!({"nodeSelector": {"zone": "a", "other": "x"}}), false),
        (json!({"nodeSelector": {"kubernetes.io/os": "linux"}}), true),
        (terms(json!([label("zone", "In", &["b", "a"])])), true),
        (terms(json!([label("zone", "In", &["b"])])), false),
        (terms(json!([label("none", "In", &["b"])])), false),
        (terms(json!([label("zone", "In", &[])])), false),
        (terms(json!([label("zone", "NotIn", &["b"])])), true),
        (terms(json!([label("zone", "NotIn", &["a"])])), false),
        (terms(json!([label("none", "NotIn", &["a"])])), true),
        (terms(json!([label("zone", "Exists", &[])])), true),
        (terms(json!([label("zone", "Exists", &["a"])])), false),
        (terms(json!([label("none", "Exists", &[])])), false),
        (terms(json!([label("none", "DoesNotExist", &[])])), true),
        (terms(json!([label("zone", "DoesNotExist", &[])])), false),
        (terms(json!([label("size", "Gt", &["6"])])), true),
        (terms(json!([label("size", "Gt", &["7"])])), false),
        (terms(json!([label("size", "Lt", &["8"])])), true),
        (terms(json!([label("size", "Lt", &["x"])])), false),
        (terms(json!([label("zone", "Gt", &["1"])])), false),
        (terms(json!([label("size", "Gt", &["1", "2"])])), false),
        (terms(json!([label("zone", "Odd", &["a"])])), false),
        (terms(json!([field("In", &["n1"])])), true),
        (terms(json!([field("In", &["n2"])])), false),
        (terms(json!([field("NotIn", &["n2"])])), true),
        (terms(json!([field("In", &["n1", "n2"])])), false),
        (terms(json!([field("Exists", &[])])), false),
        // Any term will do; all of a term must hold; an empty one says nothing.
        (terms(json!([label("zone", "In", &["b"]), label("size", "Exists", &[])])), true),
        (
            terms(json!([{
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
            }])),
            false,
        ),
        (terms(json!([{}])), false),
        (terms(json!([])), false),
    ] {
        let mut both = spec.clone();
        assert_eq!(
            world().judge(pod("a", spec.clone())),
            if fits { "admit" } else { NO },
            "{spec}"
        );
        // The selector counts besides.
        if spec.get("affinity").is_some() {
            both["nodeSelector"] = json!({"zone": "b"});
            assert_eq!(world().judge(pod("a", both)), NO, "{spec}");
        }
    }
}

#[test]
fn a_pod_of_another_node() {
    assert_eq!(world().judge(pod("a", json!({"nodeName": "n1"}))), "admit");
    assert_eq!(
        world().judge(pod("a", json!({"nodeName": "n2"}))),
        "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name"
    );
}

#[test]
fn taints_that_pods_do_not_suffer() {
    let no = "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
    for (effect, value, spec, fits) in [
        ("NoSchedule", "", json!({}), true),
        ("NoExecute", "", json!({}), false),
        ("NoExecute", "", tolerates(json!({"operator": "Exists"})), true),
        ("NoExecute", "v", tolerates(json!({"key": "k", "value": "v"})), true),
        ("NoExecute", "v", tolerates(json!({"key": "k", "value": "w"})), false),
        (
            "NoExecute",
            "v",
            tolerates(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})),
            false,
        ),
        ("NoExecute", "v", tolerates(json!({"key": "l", "operator": "Exists"})), false),
        ("NoExecute", "5", tolerates(json!({"key": "k", "operator": "Lt", "value": "6"})), true),
        ("NoExecute", "5", tolerates(json!({"key": "k", "operator": "Gt", "value": "6"})), false),
        ("NoExecute", "x", tolerates(json!({"key": "k", "operator": "Lt", "value": "6"})), false),
        ("NoExecute", "05", tolerates(json!({"key": "k", "operator": "Lt", "value": "6"})), false),
    ] {
        let mut world = world();
        world.settings.admission.compares_taints = true;
        world.node(|node| {
            node.taints =
                vec![Taint { key: "k".into(), value: value.into(), effect: effect.into() }];
        });
        let expected = if fits { "admit" } else { no };
        assert_eq!(world.judge(pod("a", spec.clone())), expected, "{effect} {value} {spec}");
        assert_eq!(world.judge(from(Source::File, "a", spec)), "admit", "static pods stay");
        world.settings.admission.compares_taints = false;
        let comparing = json!({"tolerations": [{"key": "k", "operator": "Lt", "value": "6"}]});
        let expected = if effect == "NoExecute" { no } else { "admit" };
        assert_eq!(world.judge(pod("a", comparing)), expected, "the gate is off");
    }
}
