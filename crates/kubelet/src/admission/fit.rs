//! Does a pod fit the node beside the pods that are there? Pure.
//!
//! Upstream: generalFilter in pkg/kubelet/lifecycle/predicate.go, AdmissionCheck and
//! noderesources of pkg/scheduler.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kubelet_model::DesiredPod;

use super::ports::HostPorts;
use super::{NodeView, Rejection, affinity, taints};
use crate::container_manager::amounts::{self, Amounts};

/// What the admitted pods hold of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held {
    pods: i64,
    amounts: Amounts,
    ports: HostPorts,
}

impl Held {
    /// One more pod, which holds so much.
    pub(super) fn add(&mut self, spec: &PodSpec, holds: &Amounts) {
        self.pods += 1;
        for (name, amount) in holds {
            let sum = self.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        self.ports.add(spec);
    }
}

/// A resource of which there is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) resource: String,
    pub(super) requested: i64,
    pub(super) used: i64,
    pub(super) capacity: i64,
}

impl Shortage {
    /// How much is missing.
    pub(super) fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

/// Why a pod does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// Of what.
    Short(Shortage),
    /// Its selector or its affinity asks for another node.
    Affinity,
    /// It was meant for another node.
    Name,
    /// Another pod has its host port.
    Ports,
    /// The node is not to run pods like it any more.
    Taint,
}

impl Failure {
    /// What users are told.
    pub(super) fn rejection(&self) -> Rejection {
        let failed = |name: &str, why: &str| {
            Rejection::new(name, format!("Predicate {name} failed: node(s) {why}"))
        };
        match self {
            Self::Short(Shortage { resource, requested, used, capacity }) => Rejection::new(
                format!("OutOf{resource}"),
                format!(
                    "Node didn't have enough resource: {resource}, requested: {requested}, \
                     used: {used}, capacity: {capacity}"
                ),
            ),
            Self::Affinity => failed("NodeAffinity", "didn't match Pod's node affinity/selector"),
            Self::Name => failed("NodeName", "didn't match the requested node name"),
            Self::Ports => {
                failed("NodePorts", "didn't have free ports for the requested pod ports")
            }
            Self::Taint => failed("TaintToleration", "had taints that the pod didn't tolerate"),
        }
    }
}

/// Everything that keeps the pod from this node, in upstream's order.
pub(super) fn failures(
    pod: &DesiredPod,
    node: &NodeView,
    held: &Held,
    compares_taints: bool,
) -> Vec<Failure> {
    let spec = pod.spec();
    let mut failures: Vec<Failure> =
        shortages(spec, node, held).into_iter().map(Failure::Short).collect();
    if !affinity::matches(spec, node) {
        failures.push(Failure::Affinity);
    }
    let meant_for = spec.node_name.as_deref().filter(|name| !name.is_empty());
    if meant_for.is_some_and(|name| name != node.name) {
        failures.push(Failure::Name);
    }
    if held.ports.clash(spec) {
        failures.push(Failure::Ports);
    }
    let mut taints = node.taints.iter().filter(|taint| taint.effect == "NoExecute");
    if !pod.is_static() && taints.any(|taint| !taints::tolerates(spec, taint, compares_taints)) {
        failures.push(Failure::Taint);
    }
    failures
}

fn shortages(spec: &PodSpec, node: &NodeView, held: &Held) -> Vec<Shortage> {
    let mut found = Vec::new();
    let capacity = |name: &str| node.allocatable.get(name).copied().unwrap_or(0);
    if held.pods.saturating_add(1) > capacity("pods") {
        let (used, capacity) = (held.pods, capacity("pods"));
        found.push(Shortage { resource: "pods".to_owned(), requested: 1, used, capacity });
    }
    let wants = amounts::pod_requests(&known_only(spec, node));
    let first = ["cpu", "memory", "ephemeral-storage"];
    let scalar = wants.keys().map(String::as_str).filter(|name| is_scalar(name));
    for name in first.into_iter().chain(scalar) {
        let requested = wants.get(name).copied().unwrap_or(0);
        let used = held.amounts.get(name).copied().unwrap_or(0);
        if requested > 0 && requested > capacity(name).saturating_sub(used) {
            let (resource, capacity) = (name.to_owned(), capacity(name));
            found.push(Shortage { resource, requested, used, capacity });
        }
    }
    found
}

/// The spec without requests for what the node knows nothing of: that is a resource of
/// the whole cluster, which somebody else counts.
fn known_only<'a>(spec: &'a PodSpec, node: &NodeView) -> Cow<'a, PodSpec> {
    let unknown = |name: &String| is_extended(name) && !node.allocatable.contains_key(name);
    let asks = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|own| own.requests.as_ref());
        requests.is_some_and(|requests| requests.keys().any(unknown))
    };
    if !spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(asks) {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    let inits = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(inits) {
        let own = container.resources.as_mut().and_then(|own| own.requests.as_mut());
        if let Some(requests) = own {
            requests.retain(|name, _| !unknown(name));
        }
    }
    Cow::Owned(spec)
}

/// Is this a resource that Kubernetes itself knows nothing about?
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// Is this counted besides processors, memory and disk?
fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
}
