//! From CRI messages to the model, as tables.

use super::*;

fn text_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn listed_container() -> v1::Container {
    v1::Container {
        id: "c1".to_owned(),
        pod_sandbox_id: "s1".to_owned(),
        metadata: Some(v1::ContainerMetadata { name: "app".to_owned(), attempt: 4 }),
        image: Some(v1::ImageSpec { image: "sha256:1".to_owned(), ..Default::default() }),
        image_ref: "sha256:1".to_owned(),
        created_at: 1_500_000_000,
        labels: text_map(&[
            (labels::POD_NAME, "web"),
            (labels::POD_NAMESPACE, "ns"),
            (labels::POD_UID, "u1"),
            (labels::CONTAINER_NAME, "app"),
        ]),
        annotations: text_map(&[
            (labels::CONTAINER_HASH, "8e45cbd0"),
            (labels::RESTART_COUNT, "3"),
        ]),
        ..Default::default()
    }
}

fn listed_sandbox() -> v1::PodSandbox {
    v1::PodSandbox {
        id: "s1".to_owned(),
        metadata: Some(v1::PodSandboxMetadata { attempt: 2, ..Default::default() }),
        state: v1::PodSandboxState::SandboxReady.into(),
        created_at: 1_500_000_000,
        labels: text_map(&[
            (labels::POD_NAME, "web"),
            (labels::POD_NAMESPACE, "ns"),
            (labels::POD_UID, "u1"),
        ]),
        ..Default::default()
    }
}

#[test]
fn a_container_is_read_from_labels_and_annotations() {
    let seen = container(&listed_container(), None).expect("ours");
    assert_eq!(seen.id.as_str(), "c1");
    assert_eq!(seen.name.as_str(), "app");
    assert_eq!(seen.sandbox.as_str(), "s1");
    assert_eq!(seen.restart_count, 3);
    assert_eq!(seen.hash, Some(0x8e45_cbd0));
    assert_eq!(seen.created_at.to_string(), "1970-01-01T00:00:01.5Z");
    assert_eq!((seen.image.as_str(), seen.image_id.as_str()), ("sha256:1", "sha256:1"));
    assert_eq!(seen.state, ContainerState::Created);
}

#[test]
fn the_image_is_the_one_the_pod_names() {
    let mut listed = listed_container();
    listed.image.as_mut().expect("set").user_specified_image = "app:1".to_owned();
    assert_eq!(container(&listed, None).expect("ours").image, "app:1");
    let status = v1::ContainerStatus {
        image: Some(v1::ImageSpec { image: "docker.io/app:1".to_owned(), ..Default::default() }),
        image_ref: "sha256:2".to_owned(),
        ..Default::default()
    };
    let seen = container(&listed, Some(&status)).expect("ours");
    assert_eq!((seen.image.as_str(), seen.image_id.as_str()), ("docker.io/app:1", "sha256:2"));
}

#[test]
fn the_stop_signal_is_the_one_the_runtime_tells() {
    let told = |signal: v1::Signal| {
        let status = v1::ContainerStatus { stop_signal: signal.into(), ..Default::default() };
        container(&listed_container(), Some(&status)).expect("ours").stop_signal
    };
    assert_eq!(told(v1::Signal::RuntimeDefault), None);
    assert_eq!(told(v1::Signal::Sigusr1).as_deref(), Some("SIGUSR1"));
}

#[test]
fn without_annotations_the_attempt_counts_and_the_hash_is_unknown() {
    let mut listed = listed_container();
    listed.annotations.clear();
    let seen = container(&listed, None).expect("ours");
    assert_eq!((seen.restart_count, seen.hash), (4, None));
    listed.annotations =
        text_map(&[(labels::CONTAINER_HASH, "not hex"), (labels::RESTART_COUNT, "-1")]);
    let seen = container(&listed, None).expect("ours");
    assert_eq!((seen.restart_count, seen.hash), (4, None));
}

#[test]
fn what_another_tool_made_is_not_ours() {
    let mut listed = listed_container();
    listed.labels.remove(labels::CONTAINER_NAME);
    assert_eq!(container(&listed, None), None);
    let mut listed = listed_container();
    listed.metadata = None;
    assert_eq!(container(&listed, None), None);
    assert_eq!(sandbox(&v1::PodSandbox::default(), None), None);
    assert_eq!(owner(&text_map(&[(labels::POD_UID, "")])), None);
    assert_eq!(pod_name(&text_map(&[(labels::POD_NAME, "web")])), None);
}

#[test]
fn states() {
    let state_of = |state: v1::ContainerState| {
        let status = v1::ContainerStatus {
            state: state.into(),
            started_at: 1_000_000_000,
            finished_at: 2_000_000_000,
            exit_code: 3,
            reason: "Error".to_owned(),
            message: "oops".to_owned(),
            ..Default::default()
        };
        container(&listed_container(), Some(&status)).expect("ours").state
    };
    let second = |s| Timestamp::from_second(s).expect("a valid time");
    assert_eq!(state_of(v1::ContainerState::ContainerCreated), ContainerState::Created);
    assert_eq!(state_of(v1::ContainerState::ContainerUnknown), ContainerState::Unknown);
    let running = ContainerState::Running { started_at: second(1) };
    assert_eq!(state_of(v1::ContainerState::ContainerRunning), running);
    let exited = ContainerState::Exited(Exit {
        code: 3,
        reason: "Error".to_owned(),
        message: "oops".to_owned(),
        started_at: Some(second(1)),
        finished_at: second(2),
    });
    assert_eq!(state_of(v1::ContainerState::ContainerExited), exited);
}

#[test]
fn an_exit_without_a_start_never_ran() {
    let status = v1::ContainerStatus {
        state: v1::ContainerState::ContainerExited.into(),
        ..Default::default()
    };
    let seen = container(&listed_container(), Some(&status)).expect("ours");
    let ContainerState::Exited(exit) = seen.state else { panic!("it has exited") };
    assert_eq!(exit.started_at, None);
}

#[test]
fn nonsense_times_become_the_epoch_or_stay_in_range() {
    assert_eq!(timestamp(0), Timestamp::UNIX_EPOCH);
    assert!(timestamp(i64::MAX) > Timestamp::UNIX_EPOCH);
    assert!(timestamp(i64::MIN) < Timestamp::UNIX_EPOCH);
}

#[test]
fn a_sandboxes_network_comes_from_its_status() {
    let seen = sandbox(&listed_sandbox(), None).expect("ours");
    assert_eq!((seen.attempt, seen.ready, seen.host_network), (2, true, false));
    assert!(seen.ips.is_empty());
    let status = |ip: &str, mode: v1::NamespaceMode| v1::PodSandboxStatus {
        network: Some(v1::PodSandboxNetworkStatus {
            ip: ip.to_owned(),
            additional_ips: vec![v1::PodIp { ip: "2001:db8::2".to_owned() }],
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: Some(v1::NamespaceOption { network: mode.into(), ..Default::default() }),
            }),
        }),
        ..Default::default()
    };
    let own = status("10.0.0.2", v1::NamespaceMode::Pod);
    let seen = sandbox(&listed_sandbox(), Some(&own)).expect("ours");
    assert_eq!(seen.ips, ["10.0.0.2", "2001:db8::2"]);
    assert!(!seen.host_network);
    let shared = status("", v1::NamespaceMode::Node);
    let seen = sandbox(&listed_sandbox(), Some(&shared)).expect("ours");
    assert!(seen.host_network);
    assert_eq!(seen.ips, ["2001:db8::2"]);
}

#[test]
fn a_listing_is_grouped_by_pod_and_others_things_left_out() {
    let mut foreign = listed_container();
    (foreign.id, foreign.labels) = ("c2".to_owned(), BTreeMap::new());
    let mut alone = listed_container();
    alone.id = "c3".to_owned();
    alone.labels.insert(labels::POD_UID.to_owned(), "u2".to_owned());
    alone.state = v1::ContainerState::ContainerExited.into();
    let pods = by_pod(&[listed_sandbox()], &[listed_container(), foreign, alone]);
    let text: Vec<String> = pods
        .iter()
        .map(|(uid, pod)| {
            let sandboxes: Vec<_> = pod.sandboxes.keys().map(SandboxId::as_str).collect();
            let containers: Vec<_> = pod.containers.keys().map(ContainerId::as_str).collect();
            format!("{uid} {}/{} {sandboxes:?} {containers:?}", pod.name.1, pod.name.0)
        })
        .collect();
    assert_eq!(text, [r#"u1 ns/web ["s1"] ["c1"]"#, r#"u2 ns/web [] ["c3"]"#]);
}

#[test]
fn a_pods_things_are_found_by_its_uid() {
    assert_eq!(of_pod(&"u1".into()), text_map(&[("io.kubernetes.pod.uid", "u1")]));
}

#[test]
fn names_that_would_leave_a_directory_are_not_ours() {
    for hostile in ["", ".", "..", "a/b", "/etc", "../../x", "a\0b", &"x".repeat(254)] {
        let labels = BTreeMap::from([
            (labels::POD_UID.to_owned(), hostile.to_owned()),
            (labels::POD_NAME.to_owned(), hostile.to_owned()),
            (labels::POD_NAMESPACE.to_owned(), "ns".to_owned()),
        ]);
        assert_eq!(owner(&labels), None, "{hostile:?}");
        assert_eq!(pod_name(&labels), None, "{hostile:?}");
    }
}

#[test]
fn sizes_are_read_as_far_as_they_are_told() {
    let read = |linux: Option<v1::LinuxContainerResources>| {
        let resources =
            linux.map(|linux| v1::ContainerResources { linux: Some(linux), ..Default::default() });
        resources_of(&v1::ContainerStatus { resources, ..Default::default() })
    };
    assert_eq!(read(None), None);
    assert_eq!(read(Some(v1::LinuxContainerResources::default())), None);
    for (shares, quota, period, memory, expected) in [
        (1024, 50_000, 100_000, 1 << 20, (Some(1000), Some(500), Some(1 << 20))),
        (102, -1, 100_000, 0, (Some(100), None, None)),
        (2, 1_000, 100_000, 0, (Some(2), Some(10), None)),
        (1, 5_000, 0, 7, (None, None, Some(7))),
        (i64::MAX, i64::MAX, 1, -1, (Some(i64::MAX / 1024), Some(i64::MAX), None)),
    ] {
        let told = read(Some(v1::LinuxContainerResources {
            cpu_shares: shares,
            cpu_quota: quota,
            cpu_period: period,
            memory_limit_in_bytes: memory,
            ..Default::default()
        }));
        let told = told.expect("something is told");
        assert_eq!((told.cpu_request, told.cpu_limit, told.memory_limit), expected);
    }
}
