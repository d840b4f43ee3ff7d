//! Precedence between layers, and the origin of each value.

use serde_json::json;

use super::*;

fn file(tree: Value) -> Layers {
    Layers::from_file(known(&tree).unwrap().0, Path::new("/etc/kubelet/config.yaml"))
}

fn value_and_origin(layers: &Layers, path: &str) -> String {
    let path = FieldPath::dotted(path);
    let value = path.get(&layers.tree).cloned().unwrap_or(Value::Null);
    let origin = layers.provenance.origin(&path).map_or("nobody".to_owned(), ToString::to_string);
    format!("{value} from {origin}")
}

#[test]
fn baseline_is_permissive_and_a_file_is_not() {
    let baseline = Layers::baseline();
    assert_eq!(value_and_origin(&baseline, "readOnlyPort"), "10255 from default without --config");
    assert_eq!(
        value_and_origin(&baseline, "authorization.mode"),
        "\"AlwaysAllow\" from default without --config"
    );
    assert_eq!(
        value_and_origin(&baseline, "authentication.anonymous.enabled"),
        "true from default without --config"
    );
    assert_eq!(
        value_and_origin(&baseline, "authentication.webhook.enabled"),
        "false from default without --config"
    );
    assert_eq!(baseline.tree.get("evictionHard"), None);
    let file = file(json!({}));
    assert_eq!(value_and_origin(&file, "readOnlyPort"), "0 from default");
    assert_eq!(value_and_origin(&file, "authorization.mode"), "\"Webhook\" from default");
    assert_eq!(file.tree["evictionHard"]["memory.available"], json!("100Mi"));
}

#[test]
fn a_file_resolves_its_relative_paths() {
    let layers = file(json!({"staticPodPath": "../pods", "resolvConf": "", "podLogsDir": "/logs"}));
    assert_eq!(
        value_and_origin(&layers, "staticPodPath"),
        "\"/etc/pods\" from /etc/kubelet/config.yaml"
    );
    assert_eq!(value_and_origin(&layers, "resolvConf"), "\"\" from /etc/kubelet/config.yaml");
    assert_eq!(value_and_origin(&layers, "podLogsDir"), "\"/logs\" from /etc/kubelet/config.yaml");
}

#[test]
fn a_zero_that_means_unset_is_a_default() {
    assert_eq!(value_and_origin(&file(json!({"port": 0})), "port"), "10250 from default");
}

#[test]
fn drop_ins_merge_replace_and_remove() {
    let mut layers = file(json!({
        "maxPods": 50, "clusterDNS": ["10.0.0.1", "10.0.0.2"], "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    }));
    layers.patch(
        &json!({"clusterDNS": ["10.9.9.9"], "kubeReserved": {"cpu": null, "pid": "10"}}),
        Path::new("/d/10.conf"),
    );
    layers.patch(&json!({"maxPods": null, "noSuchField": 1}), Path::new("/d/20.conf"));
    layers.settle().unwrap();
    assert_eq!(value_and_origin(&layers, "clusterDNS"), "[\"10.9.9.9\"] from drop-in /d/10.conf");
    assert_eq!(value_and_origin(&layers, "maxPods"), "110 from default");
    assert_eq!(layers.tree["kubeReserved"], json!({"memory": "1Gi", "pid": "10"}));
    assert_eq!(
        value_and_origin(&layers, "kubeReserved.memory"),
        "\"1Gi\" from /etc/kubelet/config.yaml"
    );
    assert_eq!(value_and_origin(&layers, "kubeReserved.pid"), "\"10\" from drop-in /d/10.conf");
    assert_eq!(layers.tree.get("noSuchField"), None);
}

#[test]
fn drop_in_paths_stay_relative() {
    let mut layers = Layers::baseline();
    layers.patch(&json!({"staticPodPath": "pods"}), Path::new("/d/10.conf"));
    layers.settle().unwrap();
    assert_eq!(value_and_origin(&layers, "staticPodPath"), "\"pods\" from drop-in /d/10.conf");
}

#[test]
fn a_flag_replaces_a_map_but_merges_gates() {
    let mut layers = file(json!({
        "evictionHard": {"memory.available": "1Gi", "nodefs.available": "5%"},
        "featureGates": {"MemoryQoS": true, "EventedPLEG": false},
    }));
    layers.flag("evictionHard", json!({"pid.available": "5%"}), "eviction-hard");
    layers.flag("featureGates", json!({"EventedPLEG": true}), "feature-gates");
    assert_eq!(layers.tree["evictionHard"], json!({"pid.available": "5%"}));
    assert_eq!(layers.tree["featureGates"], json!({"MemoryQoS": true, "EventedPLEG": true}));
    assert_eq!(
        value_and_origin(&layers, "featureGates.MemoryQoS"),
        "true from /etc/kubelet/config.yaml"
    );
    assert_eq!(value_and_origin(&layers, "featureGates.EventedPLEG"), "true from --feature-gates");
}

#[test]
fn every_leaf_has_an_origin_after_every_layer() {
    let mut layers = file(json!({"kubeReserved": {"cpu": "1"}, "logging": {"format": "json"}}));
    layers.patch(
        &json!({"kubeReserved": {}, "systemReserved": {"cpu": "1"}, "tracing": {"endpoint": "x"}}),
        Path::new("/d/1.conf"),
    );
    layers.settle().unwrap();
    layers.flag("kubeReserved", json!({}), "kube-reserved");
    layers.flag("authentication.x509.clientCAFile", json!("/ca"), "client-ca-file");
    let known: Vec<_> = layers.provenance.iter().map(|(path, _)| path.clone()).collect();
    let leaves: Vec<_> = leaves(&layers.tree).into_iter().map(|(path, _)| path).collect();
    let (known, leaves): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
        (known.into_iter().collect(), leaves.into_iter().collect());
    assert_eq!(known, leaves);
}

#[test]
fn merge_patch_examples_of_the_rfc() {
    for (target, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        let mut merged = target.clone();
        merge(&mut merged, &patch);
        assert_eq!(merged, result, "{target} + {patch}");
    }
}

#[test]
fn clean_paths() {
    for (path, cleaned) in
        [("/a/../b/./c//d/", "/b/c/d"), ("/..", "/"), ("a/..", "."), ("../a", "../a"), ("", ".")]
    {
        assert_eq!(clean(Path::new(path)), Path::new(cleaned), "{path}");
    }
}
