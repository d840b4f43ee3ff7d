//! The container configuration of one container of a pod.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::Container;
use kubelet_model::hash::container_hash;
use kubelet_model::{ContainerName, DesiredPod};

use super::executor::PodIdentity;
use super::{env, log_paths, resources, sandbox_spec};
use crate::pleg::labels;
use crate::settings::Settings;

/// What the runtime needs to make a container.
pub(super) fn container_config(
    pod: &DesiredPod,
    container: &Container,
    restart_count: u32,
    image_ref: &str,
    settings: &Settings,
) -> v1::ContainerConfig {
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
            resources: Some(resources::linux_resources(
                pod,
                container,
                &settings.resources,
                settings.memory_bytes,
            )),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use kubelet_model::Source;

    use super::*;

    fn pod(container: &str, spec: &str) -> DesiredPod {
        let json = format!(
            r#"{{"metadata":{{"name":"web-node","namespace":"ns","uid":"u1","labels":{{"app":"web"}},"annotations":{{"a":"b"}}}},
                "spec":{{"containers":[{{"name":"test_container","image":"foo/image:v1"{container}}}]{spec}}}}}"#
        );
        let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
        kubelet_model::manifest::default_pod(&mut pod);
        DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
    }

    fn config(container: &str, spec: &str) -> v1::ContainerConfig {
        let pod = pod(container, spec);
        let settings = Settings { memory_bytes: 1 << 30, ..Settings::for_node("n") };
        container_config(&pod, &pod.spec().containers[0], 2, "sha256:1", &settings)
    }

    fn text_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn plain_security_context() -> v1::LinuxContainerSecurityContext {
        let proc = |names: &[&str]| names.iter().map(|name| format!("/proc/{name}")).collect();
        let mut masked_paths: Vec<String> = proc(&[
            "asound",
            "acpi",
            "interrupts",
            "kcore",
            "keys",
            "latency_stats",
            "timer_list",
            "timer_stats",
            "sched_debug",
            "scsi",
        ]);
        masked_paths.push("/sys/firmware".to_owned());
        masked_paths.push("/sys/devices/virtual/powercap".to_owned());
        v1::LinuxContainerSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                network: v1::NamespaceMode::Pod.into(),
                pid: v1::NamespaceMode::Container.into(),
                ipc: v1::NamespaceMode::Pod.into(),
                ..Default::default()
            }),
            seccomp: Some(v1::SecurityProfile {
                profile_type: v1::security_profile::ProfileType::Unconfined.into(),
                ..Default::default()
            }),
            masked_paths,
            readonly_paths: proc(&["bus", "fs", "irq", "sys", "sysrq-trigger"]),
            ..Default::default()
        }
    }

    #[test]
    fn a_plain_container_to_the_letter() {
        let expected = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "test_container".to_owned(), attempt: 2 }),
            image: Some(v1::ImageSpec {
                image: "sha256:1".to_owned(),
                user_specified_image: "foo/image:v1".to_owned(),
                ..Default::default()
            }),
            labels: text_map(&[
                ("io.kubernetes.container.name", "test_container"),
                ("io.kubernetes.pod.name", "web-node"),
                ("io.kubernetes.pod.namespace", "ns"),
                ("io.kubernetes.pod.uid", "u1"),
            ]),
            annotations: text_map(&[
                ("io.kubernetes.container.hash", "8e45cbd0"),
                ("io.kubernetes.container.restartCount", "2"),
                ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
                ("io.kubernetes.container.terminationMessagePolicy", "File"),
                ("io.kubernetes.pod.terminationGracePeriod", "30"),
            ]),
            log_path: "test_container/2.log".to_owned(),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_period: 100_000,
                    cpu_shares: 2,
                    oom_score_adj: 1000,
                    ..Default::default()
                }),
                security_context: Some(plain_security_context()),
            }),
            ..Default::default()
        };
        assert_eq!(config("", ""), expected);
    }

    #[test]
    fn everything_a_container_may_ask_for() {
        let config = config(
            r#","command":["/bin/$(WHO)"],"args":["$(WHO)","$$(WHO)","$(NONE)"],"workingDir":"/srv",
                "env":[{"name":"WHO","value":"me"},{"name":"SELF","value":"$(WHO)!"},{"name":"EMPTY"}],
                "stdin":true,"stdinOnce":true,"tty":true"#,
            "",
        );
        assert_eq!(config.command, ["/bin/me"]);
        assert_eq!(config.args, ["me", "$(WHO)", "$(NONE)"]);
        assert_eq!(config.working_dir, "/srv");
        let envs: Vec<_> = config
            .envs
            .iter()
            .map(|e| format!("{}={}", e.key, String::from_utf8_lossy(&e.value)))
            .collect();
        assert_eq!(envs, ["WHO=me", "SELF=me!", "EMPTY="]);
        assert!(config.stdin && config.stdin_once && config.tty);
    }

    #[test]
    fn ports_and_grace_are_annotated_if_set() {
        let plain = config("", r#","terminationGracePeriodSeconds":7"#).annotations;
        assert_eq!(plain["io.kubernetes.pod.terminationGracePeriod"], "7");
        assert_eq!(plain.get("io.kubernetes.container.ports"), None);
        let ports = config(
            r#","ports":[{"name":"http","hostPort":8080,"containerPort":80,"protocol":"TCP"}]"#,
            "",
        );
        let text = &ports.annotations["io.kubernetes.container.ports"];
        let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let expected = serde_json::json!(
            [{"name": "http", "hostPort": 8080, "containerPort": 80, "protocol": "TCP"}]
        );
        assert_eq!(value, expected);
    }

    #[test]
    fn namespaces_are_the_sandboxes() {
        for spec in ["", r#","hostNetwork":true,"hostPID":true,"hostIPC":true"#] {
            let linux = config("", spec).linux.expect("linux");
            let options = linux.security_context.and_then(|context| context.namespace_options);
            assert_eq!(options, Some(sandbox_spec::namespaces(pod("", spec).spec())));
        }
    }
}
