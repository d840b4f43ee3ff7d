//! A pod's status from what is observed. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{ContainerName, DesiredPod, ObservedPod, Waiting};

use super::{conditions, containers, phase};
use crate::runtime_manager::qos_class;

/// How far along a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It should run.
    Live,
    /// It is being stopped.
    Terminating,
    /// Nothing of it runs any more.
    Terminated,
}

/// Everything a status depends on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The pod as asked for.
    pub pod: &'a DesiredPod,
    /// What the runtime holds of it.
    pub seen: &'a ObservedPod,
    /// Containers held back, and why.
    pub waiting: &'a BTreeMap<ContainerName, Waiting>,
    /// Why the whole pod makes no progress, if so.
    pub pod_problem: Option<&'a str>,
    /// Its status before.
    pub before: Option<&'a PodStatus>,
    /// How far along it is.
    pub stage: Stage,
    /// The runtime's name.
    pub runtime_name: &'a str,
    /// The node's addresses, primary first.
    pub node_ips: &'a [String],
    /// Wall-clock now.
    pub wall: Timestamp,
}

/// The status.
pub fn generate(facts: &Facts<'_>) -> PodStatus {
    let spec = facts.pod.spec();
    let statuses = containers::statuses(facts);
    let phase = phase::phase(facts, &statuses);
    let sticky = facts.before.filter(|before| is_terminal(before));
    let phase = sticky.and_then(|before| before.phase.clone()).unwrap_or_else(|| phase.to_owned());
    let pod_ips = pod_ips(facts);
    PodStatus {
        conditions: Some(conditions::conditions(facts, &phase, &statuses)),
        container_statuses: Some(statuses),
        host_ip: facts.node_ips.first().cloned(),
        host_ips: list(facts.node_ips.iter().take(2).map(|ip| HostIP { ip: ip.clone() })),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: list(pod_ips.iter().map(|ip| PodIP { ip: ip.clone() })),
        qos_class: Some(qos_class(spec).as_str().to_owned()),
        start_time: facts
            .before
            .and_then(|before| before.start_time.clone())
            .or(Some(Time(truncate(facts.wall)))),
        phase: Some(phase),
        ..PodStatus::default()
    }
}

/// Succeeded or Failed: it stays so.
pub fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whole seconds, as the API carries them.
pub(super) fn truncate(wall: Timestamp) -> Timestamp {
    Timestamp::from_second(wall.as_second()).unwrap_or(wall)
}

fn pod_ips(facts: &Facts<'_>) -> Vec<String> {
    if facts.pod.spec().host_network.unwrap_or(false) {
        return facts.node_ips.to_vec();
    }
    let seen = facts.seen.sandboxes.iter().find(|s| !s.ips.is_empty()).map(|s| s.ips.clone());
    let before = || {
        let ips = facts.before?.pod_ips.as_ref()?;
        Some(ips.iter().map(|ip| ip.ip.clone()).collect())
    };
    // A pod that has lost its sandbox keeps its address until it has a new one.
    seen.or_else(before).unwrap_or_default()
}

fn list<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then_some(items)
}
