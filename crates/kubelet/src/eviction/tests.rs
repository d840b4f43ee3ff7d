//! Which limit of local storage a pod exceeds.
//!
//! What a pod uses as text: `v=<bytes>` of a volume, `app:logs=<bytes>` and
//! `app:rootfs=<bytes>` of a container, `pod=<bytes>` in all.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::PodSpec;
use node_stats::{ContainerSample, Fs, PodSample, VolumeStats};
use serde_json::{Value, json};

use super::plan::StorageLimits;

fn spec(value: Value) -> PodSpec {
    let mut whole = json!({"containers": [{"name": "app"}]});
    for (key, value) in value.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn container(name: &str, limit: &str) -> Value {
    json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}})
}

fn used(text: &str) -> PodSample {
    let mut sample = PodSample::default();
    for item in text.split_whitespace() {
        let (what, bytes) = item.split_once('=').unwrap();
        let fs = Fs { used: Some(bytes.parse().unwrap()), ..Fs::default() };
        match what.split_once(':') {
            None if what == "pod" => sample.ephemeral = Some(fs),
            None => sample.volumes.push(VolumeStats {
                name: what.to_owned(),
                fs,
                claim: None,
                abnormal: None,
                ephemeral: true,
            }),
            Some((name, part)) => {
                if !sample.containers.iter().any(|c| c.name == name) {
                    let name = name.to_owned();
                    sample.containers.push(ContainerSample { name, ..Default::default() });
                }
                let container = sample.containers.iter_mut().find(|c| c.name == name).unwrap();
                match part {
                    "logs" => container.logs = Some(fs),
                    _ => container.rootfs = Some(fs),
                }
            }
        }
    }
    sample
}

fn judge(spec: &PodSpec, text: &str, own_image_fs: Option<bool>) -> String {
    let Some(limits) = StorageLimits::of(spec) else { return "no limits".to_owned() };
    match limits.judge(&used(text), own_image_fs) {
        Some(verdict) => format!("{}: {:?}", verdict.signal, verdict.message),
        None => "fine".to_owned(),
    }
}

fn check(spec: &PodSpec, text: &str, expected: Expect) {
    expected.assert_eq(&judge(spec, text, Some(false)));
}

#[test]
fn pods_without_limits_are_of_no_interest() {
    for pod in [
        json!({}),
        json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}]}),
        json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "0"}}]}),
        json!({"containers": [{"name": "app", "resources": {"limits": {"memory": "1Mi"},
            "requests": {"ephemeral-storage": "1Mi"}}}]}),
    ] {
        check(&spec(pod), "v=100 app:logs=100 pod=1000", expect!["no limits"]);
    }
}

#[test]
fn a_volume_may_be_as_large_as_it_says() {
    let pod = spec(json!({"volumes": [
        {"name": "a", "emptyDir": {"sizeLimit": "1024Mi", "medium": "Memory"}},
        {"name": "b", "emptyDir": {"sizeLimit": "1k"}},
    ]}));
    check(&pod, "a=1073741824 b=1000", expect!["fine"]);
    check(&pod, "b=1000", expect!["fine"]);
    check(
        &pod,
        "a=1073741825 b=1001",
        expect![[
            r#"emptydirfs.limit: "Usage of EmptyDir volume \"a\" exceeds the limit \"1Gi\". ""#
        ]],
    );
    check(
        &pod,
        "b=1001",
        expect![[
            r#"emptydirfs.limit: "Usage of EmptyDir volume \"b\" exceeds the limit \"1k\". ""#
        ]],
    );
}

#[test]
fn all_containers_together() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always",
        "resources": {"limits": {"ephemeral-storage": "1Mi"}}});
    let pod = spec(json!({
        "containers": [container("app", "2Mi"), {"name": "free"}],
        "initContainers": [sidecar],
    }));
    check(&pod, "pod=3145728", expect!["fine"]);
    check(
        &pod,
        "pod=3145729",
        expect![[
            r#"ephemeralpodfs.limit: "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ""#
        ]],
    );
    let decimal = spec(json!({"containers": [container("a", "1M"), container("b", "500k")]}));
    check(
        &decimal,
        "pod=1500001",
        expect![[
            r#"ephemeralpodfs.limit: "Pod ephemeral local storage usage exceeds the total limit of containers 1500k. ""#
        ]],
    );
    // As upstream: one that may store nothing at all stores something by being there.
    let none = spec(json!({"containers": [container("app", "0")]}));
    check(
        &none,
        "pod=1",
        expect![[
            r#"ephemeralpodfs.limit: "Pod ephemeral local storage usage exceeds the total limit of containers 0. ""#
        ]],
    );
}

#[test]
fn one_container() {
    let pod = spec(json!({"containers": [container("app", "1Ki"), container("other", "1Gi")]}));
    check(&pod, "app:logs=512 app:rootfs=512 other:rootfs=4096", expect!["fine"]);
    let over = "app:logs=512 app:rootfs=513";
    check(
        &pod,
        over,
        expect![[
            r#"ephemeralcontainerfs.limit: "Container app exceeded its local ephemeral storage limit \"1Ki\". ""#
        ]],
    );
    assert_eq!(judge(&pod, over, Some(true)), "fine", "layers lie elsewhere");
    assert_eq!(judge(&pod, over, None), "fine", "nobody knows where layers lie");
    // Init containers count for the whole pod only.
    let init = spec(json!({"initContainers": [container("setup", "1Ki")]}));
    check(&init, "setup:rootfs=4096 pod=1024", expect!["fine"]);
}

#[test]
fn the_first_limit_that_is_exceeded_is_told() {
    let pod = spec(json!({
        "containers": [container("app", "1Ki")],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}],
    }));
    let signal = |text: &str| {
        let told = judge(&pod, text, Some(false));
        told.split(':').next().unwrap_or_default().to_owned()
    };
    assert_eq!(signal("v=2000 pod=4000 app:rootfs=2000"), "emptydirfs.limit");
    assert_eq!(signal("v=1000 pod=3000 app:rootfs=2000"), "ephemeralpodfs.limit");
    assert_eq!(signal("v=10 pod=1024 app:rootfs=2000"), "ephemeralcontainerfs.limit");
}
