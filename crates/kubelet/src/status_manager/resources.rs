//! What a status says of a container's resources. Pure.
//!
//! Upstream: convertContainerStatusResources in pkg/kubelet/kubelet_pods.go,
//! toKubeContainerStatus in pkg/kubelet/kuberuntime.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kubelet_model::quantity::Quantity;
use kubelet_model::resources::tidy;
use kubelet_model::{ContainerState, ObservedContainer, ObservedResources, Sizes};

use super::generate::Facts;

/// The kernel takes no smaller share, and tells none.
const CPU_REQUEST_MIN: i64 = 2;
/// The kernel takes no smaller limit.
const CPU_LIMIT_MIN: i64 = 10;

type List = BTreeMap<String, Text>;

/// The requests that a container was allocated.
pub(super) fn allocated(container: &Container) -> Option<List> {
    container.resources.as_ref().and_then(|own| tidy(own).requests)
}

/// What a container really has: what it was allocated, unless it runs with
/// something else. The runtime's word counts; what it does not tell was kept when
/// the container was told its size.
pub(super) fn in_force(
    facts: &Facts<'_>,
    container: &Container,
    instance: &ObservedContainer,
    before: Option<&ContainerStatus>,
) -> Option<ResourceRequirements> {
    let mut own = container.resources.as_ref().map(tidy)?;
    if !matches!(instance.state, ContainerState::Running { .. }) {
        return Some(own);
    }
    let kept = facts.actuated.and_then(|actuated| actuated.sizes(&container.name));
    // While nobody knows, what was said last of this instance stands.
    let said = before.and_then(|before| before.resources.as_ref());
    let kept = kept.or_else(|| said.map(|said| Sizes::of(said, None)));
    let asked = Sizes::of(&own, None);
    let told = instance.resources.or_else(|| kept.map(as_told)).unwrap_or_default();
    if let Some(limits) = &mut own.limits {
        set_cpu(limits, told.cpu_limit, asked.cpu_limit, CPU_LIMIT_MIN);
        set(limits, "memory", told.memory_limit.map(Quantity::bytes_text));
    }
    if let Some(requests) = &mut own.requests {
        set_cpu(requests, told.cpu_request, asked.cpu_request, CPU_REQUEST_MIN);
        // No runtime tells it: nothing in the kernel knows it.
        let kept = kept.map(|kept| kept.memory_request).filter(|kept| *kept != 0);
        set(requests, "memory", kept.map(Quantity::bytes_text));
    }
    Some(own)
}

fn as_told(sizes: Sizes) -> ObservedResources {
    let some = |value: i64| Some(value).filter(|value| *value != 0);
    ObservedResources {
        cpu_request: some(sizes.cpu_request),
        cpu_limit: some(sizes.cpu_limit),
        memory_limit: some(sizes.memory_limit),
    }
}

/// Amounts too small for the kernel stay as they are written.
fn set_cpu(list: &mut List, told: Option<i64>, asked: i64, least: i64) {
    let told = told.filter(|told| *told > least || asked > least);
    set(list, "cpu", told.map(Quantity::milli_text));
}

/// The same amount stays in its own words.
fn set(list: &mut List, name: &str, value: Option<String>) {
    let Some(value) = value else { return };
    let same = |old: &Text| Quantity::parse(&old.0) == Quantity::parse(&value);
    if !list.get(name).is_some_and(same) {
        list.insert(name.to_owned(), Text(value));
    }
}
