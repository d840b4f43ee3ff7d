//! Containers of every kind: names, images, enumerations, and the rules that
//! only one kind has.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerResizePolicy, ContainerRestartRule, EnvFromSource, EnvVar,
    EphemeralContainer, Lifecycle, PodSpec, Probe, ResourceRequirements, SecurityContext,
    VolumeDevice, VolumeMount,
};

use super::super::problem::{Field, Report, quote};
use super::{
    claims, env, given, handlers, mounts, names, one_of, ports, resources, security, unique,
};

/// The fields that regular and ephemeral containers share.
pub(super) struct View<'p> {
    pub(super) name: &'p str,
    pub(super) image: &'p Option<String>,
    pub(super) image_pull_policy: &'p Option<String>,
    pub(super) termination_message_policy: &'p Option<String>,
    pub(super) restart_policy: &'p Option<String>,
    pub(super) restart_policy_rules: &'p Option<Vec<ContainerRestartRule>>,
    pub(super) resize_policy: &'p Option<Vec<ContainerResizePolicy>>,
    pub(super) ports: &'p Option<Vec<ContainerPort>>,
    pub(super) env: &'p Option<Vec<EnvVar>>,
    pub(super) env_from: &'p Option<Vec<EnvFromSource>>,
    pub(super) volume_mounts: &'p Option<Vec<VolumeMount>>,
    pub(super) volume_devices: &'p Option<Vec<VolumeDevice>>,
    pub(super) resources: &'p Option<ResourceRequirements>,
    pub(super) security_context: &'p Option<SecurityContext>,
    pub(super) lifecycle: &'p Option<Lifecycle>,
    pub(super) liveness_probe: &'p Option<Probe>,
    pub(super) readiness_probe: &'p Option<Probe>,
    pub(super) startup_probe: &'p Option<Probe>,
}

macro_rules! view {
    ($container:expr) => {
        View {
            name: &$container.name,
            image: &$container.image,
            image_pull_policy: &$container.image_pull_policy,
            termination_message_policy: &$container.termination_message_policy,
            restart_policy: &$container.restart_policy,
            restart_policy_rules: &$container.restart_policy_rules,
            resize_policy: &$container.resize_policy,
            ports: &$container.ports,
            env: &$container.env,
            env_from: &$container.env_from,
            volume_mounts: &$container.volume_mounts,
            volume_devices: &$container.volume_devices,
            resources: &$container.resources,
            security_context: &$container.security_context,
            lifecycle: &$container.lifecycle,
            liveness_probe: &$container.liveness_probe,
            readiness_probe: &$container.readiness_probe,
            startup_probe: &$container.startup_probe,
        }
    };
}

pub(super) fn check(spec: &PodSpec, field: &Field, report: &mut Report) {
    if spec.containers.is_empty() {
        report.add(&field.key("containers"), "a pod needs at least one container");
    }
    let mut seen = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let field = field.key("containers").index(index);
        check_common(&view!(container), spec, &mut seen, &field, report);
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let field = field.key("initContainers").index(index);
        check_common(&view!(container), spec, &mut seen, &field, report);
        check_init(container, &field, report);
    }
    let targets = seen.clone();
    for (index, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let field = field.key("ephemeralContainers").index(index);
        check_common(&view!(container), spec, &mut seen, &field, report);
        check_ephemeral(container, &targets, &field, report);
    }
}

fn check_common<'p>(
    container: &View<'p>,
    spec: &PodSpec,
    seen: &mut BTreeSet<&'p str>,
    field: &Field,
    report: &mut Report,
) {
    let name = field.key("name");
    if container.name.is_empty() {
        report.add(&name, "missing");
    } else {
        report.check(&name, names::dns_label(container.name));
        unique(seen, container.name, &name, report);
    }
    check_image(container.image, &field.key("image"), report);
    one_of(
        container.image_pull_policy,
        &["Always", "IfNotPresent", "Never"],
        &field.key("imagePullPolicy"),
        report,
    );
    one_of(
        container.termination_message_policy,
        &["File", "FallbackToLogsOnError"],
        &field.key("terminationMessagePolicy"),
        report,
    );
    ports::check(container.ports, &field.key("ports"), report);
    env::check(container, spec, field, report);
    mounts::check(container, spec, field, report);
    if let Some(resources) = container.resources {
        resources::check(resources, &claims(spec), &field.key("resources"), report);
    }
    security::check_container(
        container.security_context,
        spec,
        &field.key("securityContext"),
        report,
    );
    let never = spec.restart_policy.as_deref() == Some("Never");
    check_restarts(container, never, field, report);
    handlers::check(container, spec, field, report);
}

fn check_image(image: &Option<String>, field: &Field, report: &mut Report) {
    match given(image) {
        None => report.add(field, "missing"),
        Some(image) if image.trim() != image => {
            report.add(field, format!("{} has white space at an end", quote(image)));
        }
        Some(_) => {}
    }
}

fn check_restarts(container: &View<'_>, never: bool, field: &Field, report: &mut Report) {
    one_of(
        container.restart_policy,
        &["Always", "OnFailure", "Never"],
        &field.key("restartPolicy"),
        report,
    );
    let rules = field.key("restartPolicyRules");
    if container.restart_policy_rules.iter().flatten().count() > 20 {
        report.add(&rules, "at most 20 rules are allowed");
    }
    if container.restart_policy_rules.is_some() && container.restart_policy.is_none() {
        report.add(&rules, "needs restartPolicy on the same container");
    }
    for (index, rule) in container.restart_policy_rules.iter().flatten().enumerate() {
        let field = rules.index(index);
        let allowed = ["Restart", "RestartAllContainers"];
        one_of(&Some(rule.action.clone()), &allowed, &field.key("action"), report);
        let field = field.key("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            report.add(&field, "missing");
            continue;
        };
        let operator = Some(codes.operator.clone());
        one_of(&operator, &["In", "NotIn"], &field.key("operator"), report);
        if codes.values.iter().flatten().count() > 255 {
            report.add(&field.key("values"), "at most 255 values are allowed");
        }
    }
    let mut seen = BTreeSet::new();
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        let field = field.key("resizePolicy").index(index);
        let resource = &policy.resource_name;
        let name = Some(resource.clone());
        one_of(&name, &["cpu", "memory"], &field.key("resourceName"), report);
        unique(&mut seen, resource, &field.key("resourceName"), report);
        let restart = Some(policy.restart_policy.clone());
        let allowed = ["NotRequired", "RestartContainer"];
        one_of(&restart, &allowed, &field.key("restartPolicy"), report);
        if never && policy.restart_policy == "RestartContainer" {
            let message = "must be NotRequired when the pod's restartPolicy is Never";
            report.add(&field.key("restartPolicy"), message);
        }
    }
}

fn check_init(container: &Container, field: &Field, report: &mut Report) {
    if container.restart_policy.as_deref() == Some("Always") {
        return;
    }
    let set = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ];
    for (key, _) in set.into_iter().filter(|(_, set)| *set) {
        report.add(&field.key(key), "an init container has one only with restartPolicy Always");
    }
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        if policy.restart_policy == "RestartContainer" {
            let field = field.key("resizePolicy").index(index).key("restartPolicy");
            report.add(&field, "RestartContainer needs restartPolicy Always on an init container");
        }
    }
}

fn check_ephemeral(
    container: &EphemeralContainer,
    targets: &BTreeSet<&str>,
    field: &Field,
    report: &mut Report,
) {
    if let Some(target) = given(&container.target_container_name)
        && !targets.contains(target)
    {
        let message = format!("no container is named {}", quote(target));
        report.add(&field.key("targetContainerName"), message);
    }
    let forbidden = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("ports", container.ports.iter().flatten().next().is_some()),
        ("resources", container.resources.as_ref().is_some_and(|r| *r != Default::default())),
        ("resizePolicy", container.resize_policy.iter().flatten().next().is_some()),
        ("restartPolicy", container.restart_policy.is_some()),
        ("restartPolicyRules", container.restart_policy_rules.iter().flatten().next().is_some()),
    ];
    for (key, _) in forbidden.into_iter().filter(|(_, set)| *set) {
        report.add(&field.key(key), "an ephemeral container cannot have one");
    }
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let field = field.key("volumeMounts").index(index);
        for (key, value) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            if given(value).is_some() {
                report.add(&field.key(key), "an ephemeral container cannot have one");
            }
        }
    }
}
