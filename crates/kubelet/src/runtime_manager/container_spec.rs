//! The container configuration of one container of a pod.
//!
//! Pure. Mounts are added by `start`, which makes their files. Upstream:
//! pkg/kubelet/kuberuntime/kuberuntime_container.go, labels.go.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::Container;
use kubelet_model::hash::container_hash;
use kubelet_model::{ContainerName, DesiredPod};

use super::downward::Place;
use super::executor::PodIdentity;
use super::security::{self, ImageUser};
use super::{env, log_paths, resources};
use crate::pleg::{labels, signals};
use crate::settings::Settings;

/// What a container's configuration needs besides the pod.
pub(super) struct ContainerFacts<'a> {
    /// What the agent was told.
    pub(super) settings: &'a Settings,
    /// How many instances came before.
    pub(super) restart_count: u32,
    /// The image as the runtime names it.
    pub(super) image_ref: &'a str,
    /// The user the image runs as.
    pub(super) image_user: &'a ImageUser,
    /// Addresses of the pod.
    pub(super) pod_ips: &'a [String],
    /// The sandbox's namespaces.
    pub(super) namespaces: v1::NamespaceOption,
    /// The container whose processes this one joins.
    pub(super) target: Option<&'a str>,
    /// Where variables come from.
    pub(super) sources: env::Sources<'a>,
}

/// What the runtime needs to make a container, but for its mounts.
///
/// # Errors
/// In upstream's words, for the container's waiting message.
pub(super) fn container_config(
    pod: &DesiredPod,
    container: &Container,
    facts: ContainerFacts<'_>,
) -> Result<v1::ContainerConfig, String> {
    let ContainerFacts { settings, restart_count, image_user, .. } = facts;
    let name = ContainerName::new(&container.name);
    let place = Place {
        pod_ips: facts.pod_ips,
        node_ips: &settings.node_ips,
        allocatable: settings.allocatable,
    };
    let environment = env::environment(pod, container, &place, facts.sources)?;
    let namespaces = with_target(facts.namespaces, facts.target);
    let security = security::of_container(pod, container, image_user, namespaces, settings)?;
    let mut labels: BTreeMap<String, String> = PodIdentity::of(pod).labels().into();
    labels.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: restart_count,
        }),
        image: Some(v1::ImageSpec {
            image: facts.image_ref.to_owned(),
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
        stop_signal: stop_signal(container, settings).into(),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::linux_resources(
                pod,
                container,
                &settings.resources,
                settings.memory_bytes,
            )),
            security_context: Some(security),
        }),
        ..Default::default()
    })
}

/// A container that looks into another joins its processes, unless the pod's
/// are shared anyway.
fn with_target(mut namespaces: v1::NamespaceOption, target: Option<&str>) -> v1::NamespaceOption {
    if let Some(target) = target
        && namespaces.pid() == v1::NamespaceMode::Container
    {
        namespaces.set_pid(v1::NamespaceMode::Target);
        namespaces.target_id = target.to_owned();
    }
    namespaces
}

fn stop_signal(container: &Container, settings: &Settings) -> v1::Signal {
    let lifecycle = container.lifecycle.as_ref().filter(|_| settings.stop_signals);
    let name = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    name.and_then(signals::named).unwrap_or(v1::Signal::RuntimeDefault)
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
    let lifecycle = container.lifecycle.as_ref();
    if let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref())
        && let Ok(json) = serde_json::to_string(hook)
    {
        annotations.insert(labels::PRE_STOP_HANDLER.to_owned(), json);
    }
    if let Some(grace) = pod.pod().metadata.deletion_grace_period_seconds {
        annotations.insert(labels::POD_DELETION_GRACE.to_owned(), grace.to_string());
    }
    if let Some(grace) = pod.spec().termination_grace_period_seconds {
        annotations.insert(labels::POD_TERMINATION_GRACE.to_owned(), grace.to_string());
    }
    annotations
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use kubelet_model::Source;

    use super::*;
    use crate::object_cache::Objects;
    use crate::runtime_manager::env_file::EnvFiles;

    fn pod(container: &str, spec: &str) -> DesiredPod {
        let json = format!(
            r#"{{"metadata":{{"name":"web-node","namespace":"ns","uid":"u1","labels":{{"app":"web"}},"annotations":{{"a":"b"}}}},
                "spec":{{"containers":[{{"name":"test_container","image":"foo/image:v1"{container}}}]{spec}}}}}"#
        );
        let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
        kubelet_model::manifest::default_pod(&mut pod);
        DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
    }

    fn namespaces() -> v1::NamespaceOption {
        v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() }
    }

    fn config_for(
        container: &str,
        spec: &str,
        target: Option<&str>,
    ) -> Result<v1::ContainerConfig, String> {
        let pod = pod(container, spec);
        let settings =
            Settings { memory_bytes: 1 << 30, stop_signals: true, ..Settings::for_node("n") };
        let (objects, files) = (Objects::default(), EnvFiles::default());
        let facts = ContainerFacts {
            settings: &settings,
            restart_count: 2,
            image_ref: "sha256:1",
            image_user: &ImageUser::default(),
            pod_ips: &["10.0.0.2".to_owned()],
            namespaces: namespaces(),
            target,
            sources: env::Sources { objects: &objects, files: &files, services: &[] },
        };
        container_config(&pod, &pod.spec().containers[0], facts)
    }

    fn config(container: &str, spec: &str) -> v1::ContainerConfig {
        config_for(container, spec, None).expect("a good container")
    }

    fn text_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
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
                // Its own module says what is in there.
                security_context: config("", "").linux.and_then(|linux| linux.security_context),
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
    fn hooks_and_deletion_are_annotated_and_signals_sent() {
        let plain = config("", "");
        assert_eq!(plain.stop_signal(), v1::Signal::RuntimeDefault);
        let config = config(
            r#","lifecycle":{"stopSignal":"SIGUSR1","preStop":{"exec":{"command":["a","b"]}}}"#,
            "",
        );
        assert_eq!(config.stop_signal(), v1::Signal::Sigusr1);
        let real_time: Container =
            serde_json::from_str(r#"{"name":"a","lifecycle":{"stopSignal":"SIGRTMIN+3"}}"#)
                .expect("a container");
        let mut settings = Settings::for_node("n");
        assert_eq!(stop_signal(&real_time, &settings), v1::Signal::RuntimeDefault);
        settings.stop_signals = true;
        assert_eq!(stop_signal(&real_time, &settings), v1::Signal::Sigrtminplus3);
        assert_eq!(
            config.annotations["io.kubernetes.container.preStopHandler"],
            r#"{"exec":{"command":["a","b"]}}"#
        );
        let mut deleted: Pod = pod("", "").pod().as_ref().clone();
        deleted.metadata.deletion_grace_period_seconds = Some(4);
        let deleted = DesiredPod::new(Source::File, Arc::new(deleted)).expect("a complete pod");
        let found = annotations(&deleted, &deleted.spec().containers[0], 0);
        assert_eq!(found["io.kubernetes.pod.deletionGracePeriod"], "4");
    }

    #[test]
    fn processes_are_joined_only_if_they_are_apart() {
        let options = |target| {
            let linux = config_for("", "", target).expect("a good container").linux;
            linux.and_then(|linux| linux.security_context?.namespace_options).expect("namespaces")
        };
        assert_eq!(options(None), namespaces());
        let joined = options(Some("c1"));
        assert_eq!((joined.pid(), joined.target_id.as_str()), (v1::NamespaceMode::Target, "c1"));
        let shared = v1::NamespaceOption { pid: v1::NamespaceMode::Pod.into(), ..namespaces() };
        assert_eq!(with_target(shared.clone(), Some("c1")), shared);
    }

    #[test]
    fn what_cannot_be_resolved_is_an_error() {
        let missing = r#","envFrom":[{"configMapRef":{"name":"c"}}]"#;
        let error = config_for(missing, "", None).unwrap_err();
        assert_eq!(error, "configmap \"c\" not found");
        let root = r#","securityContext":{"runAsNonRoot":true,"runAsUser":0}"#;
        assert!(config_for(root, "", None).is_err());
    }
}
