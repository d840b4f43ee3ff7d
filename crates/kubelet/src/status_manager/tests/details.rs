//! Resources, users, mounts.

use expect_test::expect;
use k8s_openapi::api::core::v1::{ContainerStatus, ContainerUser, LinuxContainerUser};
use kubelet_model::RunsAs;

use super::case::Case;
use super::dsl;

fn app(case: &Case, items: &str) -> ContainerStatus {
    case.sees(items).container_statuses.expect("statuses").remove(0)
}

fn json(value: impl serde::Serialize) -> String {
    serde_json::to_string(&value).expect("plain data")
}

#[test]
fn an_existing_container_has_what_it_asks_for() {
    let case = Case::new("Always | app |").container(
        "app",
        r#"{"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"1Gi"}}}"#,
    );
    let status = app(&case, "app running");
    expect![[r#"{"cpu":"1"}"#]].assert_eq(&json(&status.allocated_resources));
    expect![[r#"{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1"}}"#]]
        .assert_eq(&json(&status.resources));
    let status = app(&case, "no sandbox");
    assert_eq!((status.allocated_resources, status.resources), (None, None));
}

#[test]
fn the_user_is_told_where_the_runtime_tells() {
    let mut seen = dsl::scene("web Always: app running restarts=1").seen;
    seen.containers[0].user = Some(RunsAs { uid: 1000, gid: 2000, groups: vec![3] });
    let case = Case::new("Always | app |");
    let linux = LinuxContainerUser { uid: 1000, gid: 2000, supplemental_groups: Some(vec![3]) };
    let user = ContainerUser { linux: Some(linux) };
    assert_eq!(
        case.generate(&seen).container_statuses.expect("statuses").remove(0).user,
        Some(user)
    );
    assert_eq!(app(&case, "app running restarts=2").user, None);
}

#[test]
fn the_stop_signal_is_told_if_asked_for() {
    let mut seen = dsl::scene("web Always: app running").seen;
    seen.containers[0].stop_signal = Some("SIGUSR1".to_owned());
    let mut case = Case::new("Always | app |");
    let told = |case: &Case| {
        case.generate(&seen).container_statuses.expect("statuses").remove(0).stop_signal
    };
    assert_eq!(told(&case), None);
    case.stop_signals = true;
    assert_eq!(told(&case).as_deref(), Some("SIGUSR1"));
    assert_eq!(app(&case, "app running").stop_signal, None);
}

#[test]
fn read_only_mounts_say_how_deep() {
    let mounts = |able| {
        let mut case = Case::new("Always | app |").container(
            "app",
            r#"{"volumeMounts":[
                {"name":"rw","mountPath":"/a"},
                {"name":"ro","mountPath":"/b","readOnly":true},
                {"name":"if","mountPath":"/c","readOnly":true,"recursiveReadOnly":"IfPossible"},
                {"name":"on","mountPath":"/d","readOnly":true,"recursiveReadOnly":"Enabled"},
                {"name":"shared","mountPath":"/e","readOnly":true,"recursiveReadOnly":"IfPossible",
                 "mountPropagation":"HostToContainer"}]}"#,
        );
        case.recursive_read_only = able;
        let told = app(&case, "no sandbox").volume_mounts.expect("mounts");
        assert_eq!(app(&case, "app running").volume_mounts.as_ref(), Some(&told));
        let line = |m: &k8s_openapi::api::core::v1::VolumeMountStatus| {
            let (ro, deep) = (m.read_only.unwrap_or(false), m.recursive_read_only.as_deref());
            format!("{} {} {ro} {}", m.name, m.mount_path, deep.unwrap_or("-"))
        };
        told.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        rw /a false -
        ro /b true Disabled
        if /c true Enabled
        on /d true Enabled
        shared /e true Disabled"#]]
    .assert_eq(&mounts(true));
    expect![[r#"
        rw /a false -
        ro /b true Disabled
        if /c true Disabled
        on /d true Disabled
        shared /e true Disabled"#]]
    .assert_eq(&mounts(false));
}
