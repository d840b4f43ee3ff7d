//! The container configuration of one container of a pod.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::Container;
use kubelet_model::hash::container_hash;
use kubelet_model::{ContainerName, DesiredPod};

use super::executor::PodIdentity;
use super::{env, log_paths, resources, sandbox_spec};
use crate::pleg::labels;

/// What the runtime needs to make a container.
pub(super) fn container_config(
    pod: &DesiredPod,
    container: &Container,
    restart_count: u32,
    image_ref: &str,
    memory_bytes: u64,
) -> v1::ContainerConfig {
    let spec = pod.spec();
    let name = ContainerName::new(&container.name);
    let environment = env::environment(container);
    let mut labels: BTreeMap<String, String> = PodIdentity::of(pod).labels().into();
    labels.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: restart_count,
        }),
        image: Some(v1::ImageSpec {
            image: image_ref.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command: env::expand_all(container.command.as_ref(), &environment),
        args: env::expand_all(container.args.as_ref(), &environment),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: environment
            .into_iter()
            .map(|(key, value)| v1::KeyValue { key, value: value.into_bytes() })
            .collect(),
        labels,
        annotations: annotations(pod, container, restart_count),
        log_path: log_paths::container_log(&name, restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::linux_resources(spec, container, memory_bytes)),
            security_context: Some(security_context(pod)),
        }),
        ..Default::default()
    }
}

fn annotations(
    pod: &DesiredPod,
    container: &Container,
    restart_count: u32,
) -> BTreeMap<String, String> {
    let image = container.image.as_deref().unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (
            labels::CONTAINER_HASH.to_owned(),
            format!("{:x}", container_hash(&container.name, image)),
        ),
        (labels::RESTART_COUNT.to_owned(), restart_count.to_string()),
        (
            labels::TERMINATION_MESSAGE_PATH.to_owned(),
            container.termination_message_path.clone().unwrap_or_default(),
        ),
        (
            labels::TERMINATION_MESSAGE_POLICY.to_owned(),
            container.termination_message_policy.clone().unwrap_or_default(),
        ),
    ]);
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty())
        && let Ok(json) = serde_json::to_string(ports)
    {
        annotations.insert(labels::PORTS.to_owned(), json);
    }
    if let Some(grace) = pod.spec().termination_grace_period_seconds {
        annotations.insert(labels::POD_TERMINATION_GRACE.to_owned(), grace.to_string());
    }
    annotations
}

/// What upstream sends for a container that asks for nothing special.
fn security_context(pod: &DesiredPod) -> v1::LinuxContainerSecurityContext {
    v1::LinuxContainerSecurityContext {
        namespace_options: Some(sandbox_spec::namespaces(pod.spec())),
        seccomp: Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::Unconfined.into(),
            ..Default::default()
        }),
        masked_paths: MASKED_PATHS.map(str::to_owned).into(),
        readonly_paths: READONLY_PATHS.map(str::to_owned).into(),
        ..Default::default()
    }
}

const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
