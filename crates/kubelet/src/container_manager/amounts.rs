//! Sums of requests and limits over a pod's containers.
//!
//! Pure. Processors are counted in thousandths, all else in whole units.
//! Upstream: component-helpers/resource.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_model::quantity::Quantity as Amount;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, i64>;

/// Requests or limits?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What is set aside.
    Request,
    /// What may be used at most.
    Limit,
}

/// One resource of a list, `None` if it is not named there.
pub fn amount(list: Option<&BTreeMap<String, Quantity>>, resource: &str) -> Option<i64> {
    let quantity = Amount::parse(&list?.get(resource)?.0)?;
    Some(if resource == "cpu" { quantity.milli() } else { quantity.units() })
}

/// What one container says.
pub fn of_container(container: &Container, side: Side) -> Amounts {
    let resources = container.resources.as_ref();
    let list = resources.and_then(|resources| match side {
        Side::Request => resources.requests.as_ref(),
        Side::Limit => resources.limits.as_ref(),
    });
    all(list)
}

/// What the pod as a whole says.
pub fn of_pod_level(spec: &PodSpec, side: Side) -> Amounts {
    let resources = spec.resources.as_ref();
    let list = resources.and_then(|resources| match side {
        Side::Request => resources.requests.as_ref(),
        Side::Limit => resources.limits.as_ref(),
    });
    let mut amounts = all(list);
    amounts.retain(|name, _| is_pod_level(name));
    amounts
}

/// Does the pod as a whole ask for or limit anything?
pub fn has_pod_level(spec: &PodSpec) -> bool {
    [Side::Request, Side::Limit].iter().any(|side| !of_pod_level(spec, *side).is_empty())
}

/// What the pod needs at its busiest: all containers with sidecars, or an init
/// container with the sidecars started before it, whichever is more. `each` sees
/// what runs together with every container's own.
pub fn of_containers(spec: &PodSpec, side: Side, mut each: impl FnMut(&Amounts)) -> Amounts {
    let mut total = Amounts::new();
    for container in &spec.containers {
        let own = of_container(container, side);
        each(&own);
        add(&mut total, &own);
    }
    let mut sidecars = Amounts::new();
    let mut busiest_init = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let mut own = of_container(container, side);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        each(&own);
        raise(&mut busiest_init, &own);
    }
    raise(&mut total, &busiest_init);
    total
}

/// Requests or limits of the whole pod without its overhead: pod-level ones before
/// sums; `each` as for [`of_containers`].
pub fn without_overhead(spec: &PodSpec, side: Side, each: impl FnMut(&Amounts)) -> Amounts {
    let mut total = of_containers(spec, side, each);
    total.extend(of_pod_level(spec, side));
    total
}

/// What the pod costs besides its containers.
pub fn overhead(spec: &PodSpec) -> Amounts {
    all(spec.overhead.as_ref())
}

/// Requests of the whole pod and its overhead.
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut total = without_overhead(spec, Side::Request, |_| {});
    add(&mut total, &overhead(spec));
    total
}

/// Limits of the whole pod; `each` as for [`of_containers`]. Overhead is added only
/// to what is limited.
pub fn pod_limits(spec: &PodSpec, each: impl FnMut(&Amounts)) -> Amounts {
    let mut total = without_overhead(spec, Side::Limit, each);
    for (name, more) in overhead(spec) {
        if let Some(value) = total.get_mut(&name).filter(|value| **value != 0) {
            *value = value.saturating_add(more);
        }
    }
    total
}

/// An init container that is kept running.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Bytes by page size in bytes, from resources such as `hugepages-2Mi`.
pub fn huge_pages(amounts: &Amounts) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    for (name, bytes) in amounts {
        let size = name.strip_prefix("hugepages-").and_then(Amount::parse).map(Amount::units);
        let Some(Ok(size)) = size.map(u64::try_from) else { continue };
        let sum: &mut u64 = pages.entry(size).or_default();
        *sum = sum.saturating_add(u64::try_from(*bytes).unwrap_or(0));
    }
    pages
}

fn all(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let names = list.into_iter().flat_map(BTreeMap::keys);
    names.filter_map(|name| Some((name.clone(), amount(list, name)?))).collect()
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, value) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*value);
    }
}

fn raise(to: &mut Amounts, at_least: &Amounts) {
    for (name, value) in at_least {
        let most = to.entry(name.clone()).or_insert(*value);
        *most = (*most).max(*value);
    }
}
