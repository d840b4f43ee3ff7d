//! The defaults the API server would fill in, since no API server does.
//!
//! Pure; writes only fields that are unset. An empty string counts as unset, as
//! it does upstream. Upstream: pkg/apis/core/v1/defaults.go and its generated
//! companion.

mod container;
mod volume;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::action::Grace;

/// Fills in a pod's defaults. Applying it twice changes nothing more.
pub fn default_pod(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    default_spec(spec);
    spec.volumes.iter_mut().flatten().for_each(volume::default_volume);
    for container in all_containers(spec) {
        container::default_container(container);
    }
    for ephemeral in spec.ephemeral_containers.iter_mut().flatten() {
        container::default_ephemeral(ephemeral);
    }
    for container in all_containers(spec) {
        container::default_requests(&mut container.resources);
    }
    container::default_pod_requests(spec);
    if spec.host_network == Some(true) {
        all_containers(spec).for_each(container::default_host_ports);
    }
}

/// Regular and init containers.
fn all_containers(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten())
}

fn default_spec(spec: &mut PodSpec) {
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(Grace::DEFAULT_SECONDS);
    spec.enable_service_links.get_or_insert(true);
    // The old name of the same field.
    if spec.service_account_name.as_deref().unwrap_or_default().is_empty() {
        spec.service_account_name = spec.service_account.clone();
    }
}

/// Sets text that is unset or empty.
fn text(value: &mut Option<String>, default: &str) {
    if value.as_deref().unwrap_or_default().is_empty() {
        *value = Some(default.to_owned());
    }
}

/// Sets a number that is unset or zero.
fn number(value: &mut Option<i32>, default: i32) {
    if value.unwrap_or_default() == 0 {
        *value = Some(default);
    }
}

/// Pull policy of an image: a moving tag is always asked for.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let (name, digest) = name.split_once('@').map_or((name, None), |(n, d)| (n, Some(d)));
    let tag = name.split_once(':').map(|(_, tag)| tag);
    let latest = match (tag, digest) {
        (Some(tag), _) => tag == "latest",
        (None, Some(_)) => false,
        (None, None) => !name.is_empty(),
    };
    if latest { "Always" } else { "IfNotPresent" }
}
