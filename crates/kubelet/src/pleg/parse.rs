//! From CRI messages to the model. Items that another tool made, or that lack
//! what the protocol demands, are not ours and yield nothing.

use std::collections::BTreeMap;

use cri::v1;
use jiff::Timestamp;
use kubelet_model::{
    ContainerId, ContainerName, ContainerState, Exit, ObservedContainer, ObservedSandbox, PodUid,
    SandboxId,
};

/// Labels and annotations that tie runtime objects to pods.
pub mod labels {
    /// Pod name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Pod namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Pod uid.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Container name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Hash of the container's definition.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// How many instances came before.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Where the container writes its last words.
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// Where its last words are taken from.
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// Its ports, as JSON.
    pub const PORTS: &str = "io.kubernetes.container.ports";
    /// The pod's grace period.
    pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// The pod a runtime object belongs to.
pub(super) fn owner(labels: &BTreeMap<String, String>) -> Option<PodUid> {
    labels.get(labels::POD_UID).filter(|uid| !uid.is_empty()).map(PodUid::new)
}

/// Name and namespace of the pod a runtime object belongs to.
pub(super) fn pod_name(labels: &BTreeMap<String, String>) -> Option<(String, String)> {
    let name = labels.get(labels::POD_NAME)?;
    let namespace = labels.get(labels::POD_NAMESPACE)?;
    Some((name.clone(), namespace.clone()))
}

/// A listed sandbox, with the details of its status where they matter.
pub(super) fn sandbox(
    listed: &v1::PodSandbox,
    status: Option<&v1::PodSandboxStatus>,
) -> Option<ObservedSandbox> {
    let metadata = listed.metadata.as_ref()?;
    let network = status.and_then(|s| s.network.as_ref());
    let mode = status
        .and_then(|s| s.linux.as_ref()?.namespaces.as_ref()?.options.as_ref())
        .map(v1::NamespaceOption::network);
    let mut ips: Vec<String> = Vec::new();
    if let Some(network) = network {
        ips.extend((!network.ip.is_empty()).then(|| network.ip.clone()));
        ips.extend(network.additional_ips.iter().map(|ip| ip.ip.clone()));
    }
    Some(ObservedSandbox {
        id: SandboxId::new(&listed.id),
        attempt: metadata.attempt,
        ready: is_ready(listed),
        created_at: timestamp(listed.created_at),
        host_network: mode == Some(v1::NamespaceMode::Node),
        ips,
    })
}

pub(super) fn is_ready(listed: &v1::PodSandbox) -> bool {
    listed.state() == v1::PodSandboxState::SandboxReady
}

/// A listed container, with its status unless it was never started.
pub(super) fn container(
    listed: &v1::Container,
    status: Option<&v1::ContainerStatus>,
) -> Option<ObservedContainer> {
    let metadata = listed.metadata.as_ref()?;
    let name = listed.labels.get(labels::CONTAINER_NAME)?;
    let annotated = |key: &str| listed.annotations.get(key);
    let spec_image = listed.image.as_ref();
    let image = spec_image.map(|i| {
        if i.user_specified_image.is_empty() {
            i.image.clone()
        } else {
            i.user_specified_image.clone()
        }
    });
    let status_image = status.and_then(|s| s.image.as_ref()).map(|i| i.image.clone());
    Some(ObservedContainer {
        id: ContainerId::new(&listed.id),
        name: ContainerName::new(name),
        sandbox: SandboxId::new(&listed.pod_sandbox_id),
        restart_count: annotated(labels::RESTART_COUNT)
            .and_then(|text| text.parse().ok())
            .unwrap_or(metadata.attempt),
        hash: annotated(labels::CONTAINER_HASH).and_then(|text| u32::from_str_radix(text, 16).ok()),
        created_at: timestamp(listed.created_at),
        image: status_image.or(image).unwrap_or_default(),
        image_id: status.map_or_else(|| listed.image_ref.clone(), |s| s.image_ref.clone()),
        state: status.map_or(ContainerState::Created, state),
    })
}

fn state(status: &v1::ContainerStatus) -> ContainerState {
    match status.state() {
        v1::ContainerState::ContainerCreated => ContainerState::Created,
        v1::ContainerState::ContainerRunning => {
            ContainerState::Running { started_at: timestamp(status.started_at) }
        }
        v1::ContainerState::ContainerExited => ContainerState::Exited(Exit {
            code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            started_at: (status.started_at > 0).then(|| timestamp(status.started_at)),
            finished_at: timestamp(status.finished_at),
        }),
        v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

/// Nanoseconds since the epoch; a runtime's nonsense becomes the epoch.
fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A selector for everything of one pod.
pub(super) fn of_pod(uid: &PodUid) -> BTreeMap<String, String> {
    BTreeMap::from([(labels::POD_UID.to_owned(), uid.as_str().to_owned())])
}

/// One pod's share of a full listing.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Name and namespace.
    pub name: (String, String),
    /// Sandbox ids and readiness.
    pub sandboxes: BTreeMap<SandboxId, bool>,
    /// Container ids and states.
    pub containers: BTreeMap<ContainerId, v1::ContainerState>,
}

/// Groups a full listing by pod.
pub(super) fn by_pod(
    sandboxes: &[v1::PodSandbox],
    containers: &[v1::Container],
) -> BTreeMap<PodUid, Listed> {
    let mut pods: BTreeMap<PodUid, Listed> = BTreeMap::new();
    for sandbox in sandboxes.iter().filter(|s| s.metadata.is_some()) {
        if let Some(uid) = owner(&sandbox.labels) {
            let pod = pods.entry(uid).or_default();
            pod.name = pod_name(&sandbox.labels).unwrap_or_default();
            pod.sandboxes.insert(SandboxId::new(&sandbox.id), is_ready(sandbox));
        }
    }
    for container in containers.iter().filter(|c| c.metadata.is_some()) {
        let named = container.labels.contains_key(labels::CONTAINER_NAME);
        if let (true, Some(uid)) = (named, owner(&container.labels)) {
            let pod = pods.entry(uid).or_default();
            pod.name = pod_name(&container.labels).unwrap_or_default();
            pod.containers.insert(ContainerId::new(&container.id), container.state());
        }
    }
    pods
}

#[cfg(test)]
mod tests {
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
            image: Some(v1::ImageSpec {
                image: "docker.io/app:1".to_owned(),
                ..Default::default()
            }),
            image_ref: "sha256:2".to_owned(),
            ..Default::default()
        };
        let seen = container(&listed, Some(&status)).expect("ours");
        assert_eq!((seen.image.as_str(), seen.image_id.as_str()), ("docker.io/app:1", "sha256:2"));
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
                    options: Some(v1::NamespaceOption {
                        network: mode.into(),
                        ..Default::default()
                    }),
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
}
