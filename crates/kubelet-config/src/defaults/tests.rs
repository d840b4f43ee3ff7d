//! The whole default configuration, and the fields whose default depends on others.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::decode::{known, to_tree};

fn defaulted(tree: Value) -> Value {
    let (mut config, unknown) = known(&tree).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    apply(&mut config);
    to_tree(&config)
}

fn check(tree: Value, fields: &[&str], expected: Expect) {
    let all = defaulted(tree);
    let shown: Vec<String> = fields.iter().map(|field| format!("{field}={}", all[field])).collect();
    expected.assert_eq(&shown.join(" "));
}

#[test]
fn everything() {
    let text = serde_json::to_string_pretty(&defaulted(json!({}))).unwrap();
    expect_test::expect_file!["defaults.json"].assert_eq(&(text + "\n"));
}

#[test]
fn running_twice_changes_nothing() {
    let once = defaulted(json!({}));
    assert_eq!(defaulted(once.clone()), once);
}

#[test]
fn report_follows_update_when_only_update_is_set() {
    let fields = ["nodeStatusUpdateFrequency", "nodeStatusReportFrequency"];
    check(
        json!({}),
        &fields,
        expect![[r#"nodeStatusUpdateFrequency="10s" nodeStatusReportFrequency="5m0s""#]],
    );
    check(
        json!({"nodeStatusUpdateFrequency": "7s"}),
        &fields,
        expect![[r#"nodeStatusUpdateFrequency="7s" nodeStatusReportFrequency="7s""#]],
    );
}

#[test]
fn parallel_pulls_imply_no_serial_pulls() {
    let fields = ["serializeImagePulls"];
    check(json!({"maxParallelImagePulls": 1}), &fields, expect!["serializeImagePulls=true"]);
    check(json!({"maxParallelImagePulls": 2}), &fields, expect!["serializeImagePulls=false"]);
}

#[test]
fn zero_means_unset_only_where_upstream_says_so() {
    check(
        json!({"port": 0, "healthzPort": 0, "syncFrequency": "0s", "registryPullQPS": 0, "registryBurst": 0,
               "podPidsLimit": -5, "resolvConf": "", "evictionPressureTransitionPeriod": "0s"}),
        &[
            "port",
            "healthzPort",
            "syncFrequency",
            "registryPullQPS",
            "registryBurst",
            "podPidsLimit",
            "resolvConf",
            "evictionPressureTransitionPeriod",
        ],
        expect![[
            r#"port=10250 healthzPort=0 syncFrequency="1m0s" registryPullQPS=0 registryBurst=10 podPidsLimit=-1 resolvConf="" evictionPressureTransitionPeriod="5m0s""#
        ]],
    );
}

#[test]
fn gated_defaults_vanish_with_their_gate() {
    let all = defaulted(json!({"featureGates": {
        "KubeletCrashLoopBackOffMax": false, "KubeletEnsureSecretPulledImages": false,
    }}));
    assert_eq!(all.get("crashLoopBackOff"), None);
    assert_eq!(all.get("imagePullCredentialsVerificationPolicy"), None);
}

#[test]
fn hard_eviction_defaults() {
    let run = |tree: Value| {
        let (mut config, _) = known(&tree).unwrap();
        apply_eviction_hard(&mut config);
        let map = config.eviction_hard.unwrap_or_default();
        map.into_iter()
            .map(|(signal, value)| format!("{signal}<{value}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let all = "imagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%";
    assert_eq!(run(json!({})), all);
    assert_eq!(run(json!({"evictionHard": {}})), "");
    assert_eq!(run(json!({"evictionHard": {"memory.available": "1Gi"}})), "memory.available<1Gi");
    assert_eq!(
        run(
            json!({"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": true})
        ),
        all.replace("100Mi", "1Gi"),
    );
}
