//! Defaults of containers: image, ports, environment, probes, hooks, resources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EphemeralContainer, HTTPGetAction, Lifecycle, PodSpec, Probe,
    ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{number, pull_policy, text};
use crate::quantity;

/// Regular and ephemeral containers are distinct types with the same fields.
macro_rules! default_common {
    ($container:expr) => {
        let container = $container;
        let policy = pull_policy(container.image.as_deref().unwrap_or_default());
        text(&mut container.image_pull_policy, policy);
        text(&mut container.termination_message_path, "/dev/termination-log");
        text(&mut container.termination_message_policy, "File");
        container.ports.iter_mut().flatten().for_each(default_port);
        container.env.iter_mut().flatten().for_each(default_env);
        container.liveness_probe.as_mut().map(default_probe);
        container.readiness_probe.as_mut().map(default_probe);
        container.startup_probe.as_mut().map(default_probe);
        container.lifecycle.as_mut().map(default_lifecycle);
    };
}

pub(super) fn default_container(container: &mut Container) {
    default_common!(container);
}

pub(super) fn default_ephemeral(container: &mut EphemeralContainer) {
    default_common!(container);
}

fn default_port(port: &mut ContainerPort) {
    text(&mut port.protocol, "TCP");
}

fn default_env(env: &mut EnvVar) {
    let source = env.value_from.as_mut();
    if let Some(field) = source.and_then(|source| source.field_ref.as_mut()) {
        text(&mut field.api_version, "v1");
    }
}

fn default_probe(probe: &mut Probe) {
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    probe.http_get.as_mut().map(default_http);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_lifecycle(lifecycle: &mut Lifecycle) {
    let hooks = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
    for hook in hooks.into_iter().flatten() {
        hook.http_get.as_mut().map(default_http);
    }
}

fn default_http(http: &mut HTTPGetAction) {
    text(&mut http.path, "/");
    text(&mut http.scheme, "HTTP");
}

/// On the host's network a container port is a host port.
pub(super) fn default_host_ports(container: &mut Container) {
    for port in container.ports.iter_mut().flatten() {
        let container_port = port.container_port;
        number(&mut port.host_port, container_port);
    }
}

/// A limit without a request is also the request.
pub(super) fn default_requests(resources: &mut Option<ResourceRequirements>) {
    let Some(resources) = resources else { return };
    let Some(limits) = &resources.limits else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// Pod-level requests: what the containers ask for together, else the limit.
pub(super) fn default_pod_requests(spec: &mut PodSpec) {
    let Some(limits) = spec.resources.as_ref().and_then(|r| r.limits.clone()) else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let sums = container_requests(&spec.containers);
    let requests = spec.resources.get_or_insert_default().requests.get_or_insert_default();
    for (name, sum) in sums {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.entry(name).or_insert(sum);
        }
    }
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn container_requests(containers: &[Container]) -> BTreeMap<String, Quantity> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    let resources = containers.iter().filter_map(|container| container.resources.as_ref());
    for (name, request) in resources.filter_map(|r| r.requests.as_ref()).flatten() {
        let milli = quantity::Quantity::parse(&request.0).map_or(0, quantity::Quantity::milli);
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(milli);
    }
    let text = |milli: i64| match milli % 1_000 {
        0 => format!("{}", milli / 1_000),
        _ => format!("{milli}m"),
    };
    sums.into_iter().map(|(name, milli)| (name, Quantity(text(milli)))).collect()
}
