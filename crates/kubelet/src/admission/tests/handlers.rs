//! Each question, its place among the others, and the words of its no.

use kubelet_model::Source;
use serde_json::json;

use super::{asks, from, pod, world};
use crate::admission::metrics::label;

const MEMORY: &str = "MemoryPressure";

#[test]
fn a_node_under_pressure() {
    let best_effort = || pod("a", json!({}));
    let burstable = || pod("a", asks(json!({"cpu": "1m"})));
    let critical = || pod("a", json!({"priority": 2_000_000_000}));
    let tolerant = |key: &str| {
        pod(
            "a",
            json!({"tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]}),
        )
    };
    let memory = "node.kubernetes.io/memory-pressure";
    let no = |conditions: &str| format!("Evicted: The node had condition: [{conditions}]. ");
    for (conditions, pod, expected) in [
        (&[][..], best_effort(), "admit".to_owned()),
        (&[MEMORY], best_effort(), no(MEMORY)),
        (&[MEMORY], burstable(), "admit".to_owned()),
        (&[MEMORY], critical(), "admit".to_owned()),
        (&[MEMORY], tolerant(memory), "admit".to_owned()),
        (&[MEMORY], tolerant("node.kubernetes.io/disk-pressure"), no(MEMORY)),
        (&["DiskPressure"], burstable(), no("DiskPressure")),
        (&["DiskPressure"], tolerant("node.kubernetes.io/disk-pressure"), no("DiskPressure")),
        (&["DiskPressure"], critical(), "admit".to_owned()),
        (&[MEMORY, "DiskPressure"], burstable(), no("MemoryPressure DiskPressure")),
        (&["DiskPressure"], from(Source::File, "a", json!({})), "admit".to_owned()),
    ] {
        let mut world = world();
        world.conditions = conditions.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(world.judge(pod.clone()), expected, "{conditions:?} {:?}", pod.spec());
    }
}

#[test]
fn what_a_pod_is_and_asks_for() {
    let strict = json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}});
    let profile = |of: serde_json::Value| json!({"securityContext": {"appArmorProfile": of}});
    let rule =
        json!({"exitCodes": {"operator": "In", "values": [1]}, "action": "RestartAllContainers"});
    for (spec, expected) in [
        (
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
            r#"SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowlisted"#,
        ),
        (
            json!({"metadata": {"labels": {"kubernetes.io/os": "windows"}}}),
            "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
        (json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}}), "admit"),
        (
            json!({"os": {"name": "windows"}}),
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (json!({"os": {"name": "linux"}}), "admit"),
        (strict, "admit"),
        (
            profile(json!({"type": "RuntimeDefault"})),
            "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
        (profile(json!({"type": "Unconfined"})), "admit"),
        (json!({"resources": {"requests": {"cpu": "1"}}}), "admit"),
        (
            json!({"hostNetwork": true, "hostUsers": false, "app": {"restartPolicyRules": [rule]}}),
            "PodFeatureUnsupported: Pod requires node features that are not available: RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport",
        ),
    ] {
        let mut world = world();
        world.settings.admission.declared_features = Some(vec!["Another".to_owned()]);
        assert_eq!(world.judge(pod("a", spec.clone())), expected, "{spec}");
    }
}

#[test]
fn what_depends_on_host_runtime_and_gates() {
    let strict = || pod("a", json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}));
    let mut world = world();
    world.strict_groups = None;
    assert_eq!(world.judge(strict()), "wait for the runtime");
    world.strict_groups = Some(false);
    assert_eq!(
        world.judge(strict()),
        "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node"
    );
    let whole = || pod("a", json!({"resources": {"requests": {"cpu": "1"}}}));
    world.settings.admission.pod_level_resources = false;
    assert_eq!(
        world.judge(whole()),
        "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled"
    );
    let confined = |phase: &str, profile: serde_json::Value| {
        let context = json!({"appArmorProfile": profile});
        pod("a", json!({"securityContext": context, "status": {"phase": phase}}))
    };
    let default = || json!({"type": "RuntimeDefault"});
    assert!(world.judge(confined("Pending", default())).starts_with("AppArmor: "));
    assert_eq!(world.judge(confined("Running", default())), "admit", "it ran before");
    world.settings.machine.apparmor = true;
    assert_eq!(world.judge(confined("Pending", default())), "admit");
    assert_eq!(
        world.judge(confined("Pending", json!({"type": "Localhost", "localhostProfile": " "}))),
        "AppArmor: Cannot enforce AppArmor: invalid empty AppArmor profile name: \"&AppArmorProfile{Type:Localhost,LocalhostProfile:* ,}\""
    );
    world.shutting_down = true;
    let down = "NodeShutdown: Pod was rejected as the node is shutting down.";
    assert_eq!(world.judge(pod("a", json!({}))), down);
    assert_eq!(world.judge(from(Source::File, "a", json!({}))), down, "however critical");
    world.settings.admission.own_node = None;
    assert_eq!(world.judge(pod("a", json!({}))), "InvalidNodeInfo: Kubelet cannot get node info.");
}

/// The first no counts, in upstream's order.
#[test]
fn the_order_of_the_questions() {
    let mut world = world();
    world.conditions = vec!["DiskPressure".to_owned()];
    world.shutting_down = true;
    world.settings.admission.pod_level_resources = false;
    let everything_is_wrong = || {
        pod(
            "a",
            json!({
                "resources": {"requests": {"cpu": "9"}},
                "securityContext": {"sysctls": [{"name": "vm.x", "value": "1"}],
                    "appArmorProfile": {"type": "RuntimeDefault"}},
                "nodeSelector": {"zone": "b"},
                "os": {"name": "windows"},
                "unknown": 1,
            }),
        )
    };
    let mut reasons = Vec::new();
    let mut note = |world: &super::World, pod| {
        let text = world.judge(pod);
        reasons.push(text.split(':').next().unwrap_or_default().to_owned());
    };
    note(&world, everything_is_wrong());
    world.conditions.clear();
    note(&world, everything_is_wrong());
    world.settings.allowed_unsafe_sysctls = vec!["net.*".to_owned()];
    let without = |fields: &[&str]| {
        let mut pod = k8s_openapi::api::core::v1::Pod::clone(everything_is_wrong().pod());
        let spec = pod.spec.as_mut().expect("a spec");
        let context = spec.security_context.as_mut().expect("a context");
        for field in fields {
            match *field {
                "sysctls" => context.sysctls = None,
                "os" => spec.os = None,
                "cpu" => {
                    spec.resources = serde_json::from_value(json!({"requests": {"cpu": "1"}})).ok()
                }
                "selector" => spec.node_selector = None,
                "apparmor" => context.app_armor_profile = None,
                "resources" => spec.resources = None,
                other => panic!("no field {other}"),
            }
        }
        kubelet_model::DesiredPod::new(Source::Api, std::sync::Arc::new(pod)).expect("a pod")
    };
    note(&world, without(&["sysctls"]));
    note(&world, without(&["sysctls", "os"]));
    note(&world, without(&["sysctls", "os", "cpu"]));
    note(&world, without(&["sysctls", "os", "cpu", "selector"]));
    note(&world, without(&["sysctls", "os", "cpu", "selector", "apparmor"]));
    note(&world, without(&["sysctls", "os", "cpu", "selector", "apparmor", "resources"]));
    assert_eq!(
        reasons,
        [
            "Evicted",
            "SysctlForbidden",
            "PodOSNotSupported",
            "OutOfcpu",
            "NodeAffinity",
            "AppArmor",
            "PodLevelResourcesNotSupported",
            "NodeShutdown",
        ]
    );
}

#[test]
fn a_field_that_nobody_acts_on_comes_first() {
    let odd = json!({"app": {"resources": {"claims": [{"name": "c"}]}}});
    let text = world().judge(pod("a", odd));
    assert!(text.starts_with("Unsupported: spec.containers[0].resources.claims"), "{text}");
    // What admission itself sees to is no such field.
    let counted = asks(json!({"example.com/gpu": "1", "ephemeral-storage": "1Gi"}));
    assert_eq!(world().judge(pod("a", counted)), "admit");
}

#[test]
fn reasons_of_the_metric() {
    for (reason, expected) in [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfexample.com/gpu", "OutOfExtendedResources"),
        ("NodeShutdown", "NodeShutdown"),
        ("NodeAffinity", "Other"),
        ("NodePorts", "Other"),
        ("TaintToleration", "Other"),
        ("Unsupported", "Other"),
    ] {
        assert_eq!(label(reason), expected);
    }
}
