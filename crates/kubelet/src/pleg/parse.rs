//! From CRI messages to the model. Items that another tool made, or that lack
//! what the protocol demands, are not ours and yield nothing.

use std::collections::BTreeMap;

use cri::v1;
use jiff::Timestamp;
use kubelet_model::{
    ContainerId, ContainerName, ContainerState, Exit, Grace, ObservedContainer, ObservedResources,
    ObservedSandbox, PodUid, RunsAs, SandboxId,
};

use super::signals;

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
    /// What it should do before it is stopped, as JSON.
    pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
    /// The grace period its deletion asked for.
    pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
    /// The pod's grace period.
    pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// Longest grace period that annotations are believed: a day. Anybody may have
/// written them, and the pod holds its name until it has ended.
const GRACE_S_MAX: i64 = 24 * 60 * 60;

/// Longest name that Kubernetes gives anything.
const NAME_MAX: usize = 253;

/// The pod a runtime object belongs to.
pub(super) fn owner(labels: &BTreeMap<String, String>) -> Option<PodUid> {
    labels.get(labels::POD_UID).filter(|uid| is_plain(uid)).map(PodUid::new)
}

/// Name and namespace of the pod a runtime object belongs to.
pub(super) fn pod_name(labels: &BTreeMap<String, String>) -> Option<(String, String)> {
    let name = labels.get(labels::POD_NAME).filter(|name| is_plain(name))?;
    let namespace = labels.get(labels::POD_NAMESPACE).filter(|name| is_plain(name))?;
    Some((name.clone(), namespace.clone()))
}

/// Names become parts of paths, and anybody may have written the labels.
pub(super) fn is_plain(name: &str) -> bool {
    // An empty name counts as one of dots only.
    let dots_only = name.bytes().all(|byte| byte == b'.');
    !dots_only && name.len() <= NAME_MAX && !name.contains(['/', '\0'])
}

/// A listed sandbox, with the details of its status where they matter.
pub(super) fn sandbox(
    listed: &v1::PodSandbox,
    status: Option<&v1::PodSandboxStatus>,
) -> Option<ObservedSandbox> {
    let metadata = listed.metadata.as_ref()?;
    Some(ObservedSandbox {
        id: SandboxId::new(&listed.id),
        attempt: metadata.attempt,
        ready: is_ready(listed),
        created_at: timestamp(listed.created_at),
        host_network: status.is_some_and(shares_network),
        ips: status.map(addresses).unwrap_or_default(),
    })
}

/// A sandbox by its status alone.
pub(crate) fn sandbox_of(status: &v1::PodSandboxStatus, attempt: u32) -> ObservedSandbox {
    ObservedSandbox {
        id: SandboxId::new(&status.id),
        attempt,
        ready: status.state() == v1::PodSandboxState::SandboxReady,
        created_at: timestamp(status.created_at),
        host_network: shares_network(status),
        ips: addresses(status),
    }
}

fn shares_network(status: &v1::PodSandboxStatus) -> bool {
    let namespaces = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref());
    let options = namespaces.and_then(|namespaces| namespaces.options.as_ref());
    options.map(v1::NamespaceOption::network) == Some(v1::NamespaceMode::Node)
}

/// Primary first.
fn addresses(status: &v1::PodSandboxStatus) -> Vec<String> {
    let Some(network) = &status.network else { return Vec::new() };
    let first = (!network.ip.is_empty()).then(|| network.ip.clone());
    first.into_iter().chain(network.additional_ips.iter().map(|ip| ip.ip.clone())).collect()
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
    let name = listed.labels.get(labels::CONTAINER_NAME).filter(|name| is_plain(name))?;
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
        user: status.and_then(|s| s.user.as_ref()?.linux.as_ref()).map(|user| RunsAs {
            uid: user.uid,
            gid: user.gid,
            groups: user.supplemental_groups.clone(),
        }),
        stop_signal: status.and_then(|s| signals::name(s.stop_signal())),
        grace: annotated(labels::POD_DELETION_GRACE)
            .or_else(|| annotated(labels::POD_TERMINATION_GRACE))
            .and_then(|text| text.parse().ok())
            .map(|seconds: i64| Grace::from_secs(seconds.min(GRACE_S_MAX))),
        resources: status.and_then(resources_of),
        log_path: status.map_or_else(String::new, |status| status.log_path.clone()),
        state: status.map_or(ContainerState::Created, state),
    })
}

/// What a container was given, as far as its status tells.
fn resources_of(status: &v1::ContainerStatus) -> Option<ObservedResources> {
    const SHARES_MIN: i64 = 2;
    let linux = status.resources.as_ref()?.linux.as_ref()?;
    let positive = |value: i64| Some(value).filter(|value| *value > 0);
    let quota = positive(linux.cpu_quota).zip(positive(linux.cpu_period));
    let shares = Some(linux.cpu_shares).filter(|shares| *shares >= SHARES_MIN);
    let told = ObservedResources {
        cpu_request: shares.map(|shares| shares.saturating_mul(1000).saturating_add(1023) / 1024),
        cpu_limit: quota.and_then(|(quota, period)| positive(quota.saturating_mul(1000) / period)),
        memory_limit: positive(linux.memory_limit_in_bytes),
    };
    (told != ObservedResources::default()).then_some(told)
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
        let name = container.labels.get(labels::CONTAINER_NAME);
        let named = name.is_some_and(|name| is_plain(name));
        if let (true, Some(uid)) = (named, owner(&container.labels)) {
            let pod = pods.entry(uid).or_default();
            pod.name = pod_name(&container.labels).unwrap_or_default();
            pod.containers.insert(ContainerId::new(&container.id), container.state());
        }
    }
    pods
}

#[cfg(test)]
mod tests;
