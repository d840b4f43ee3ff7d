//! A pod's status from what is observed. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_model::{ContainerName, DesiredPod, ObservedPod, PodResources, ProbeResults, Waiting};

use super::{addresses, conditions, containers, finish, messages, phase};
use crate::allocation::Refusal;
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

/// Why the agent itself ended a pod, e.g. `DeadlineExceeded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// It was refused: nothing of it was ever made.
    pub before_anything: bool,
    /// Message of the condition `DisruptionTarget`, if the pod has it from the agent.
    pub disruption: Option<String>,
}

impl Ended {
    /// The pod's time is up.
    pub fn deadline_exceeded() -> Self {
        Self {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
            before_anything: false,
            disruption: None,
        }
    }

    /// The pod lost its sandbox and gets no other.
    pub fn sandbox_lost() -> Self {
        Self {
            reason: "SandboxLost".to_owned(),
            message:
                "The pod's sandbox was lost, and a pod whose restartPolicy is Never gets no other"
                    .to_owned(),
            before_anything: false,
            disruption: None,
        }
    }

    /// The node cannot run the pod.
    pub fn rejected(reason: &str, message: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            message: format!("Pod was rejected: {message}"),
            before_anything: true,
            disruption: None,
        }
    }
}

/// A resize that is being put in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resizing<'a> {
    /// Why it did not succeed so far.
    pub error: Option<&'a str>,
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
    /// Why the agent ended the pod, if it did.
    pub ended: Option<&'a Ended>,
    /// What the probes of its containers say.
    pub probes: &'a ProbeResults,
    /// Why the size that the pod's source asks for is not allocated, if so.
    pub pending_resize: Option<&'a Refusal>,
    /// A resize is being put in force.
    pub resizing: Option<Resizing<'a>>,
    /// What its containers were last given.
    pub actuated: Option<&'a PodResources>,
    /// Statuses tell the signal that stops a container.
    pub stop_signals: bool,
    /// The pod's runtime handler can mount recursively read-only.
    pub recursive_read_only: bool,
    /// Its status before.
    pub before: Option<&'a PodStatus>,
    /// How far along it is.
    pub stage: Stage,
    /// The runtime's name.
    pub runtime_name: &'a str,
    /// The node's addresses, primary first.
    pub node_ips: &'a [String],
    /// Wall-clock time at which the agent started.
    pub agent_started: Timestamp,
    /// Wall-clock now.
    pub wall: Timestamp,
}

/// The status.
pub fn generate(facts: &Facts<'_>) -> PodStatus {
    if let Some(ended) = facts.ended.filter(|ended| ended.before_anything) {
        return rejected(facts, ended);
    }
    let mut statuses = containers::statuses(facts);
    let outcome = outcome(facts, phase::phase(facts, &statuses));
    if facts.stage == Stage::Terminated {
        finish::finish(facts, &mut statuses);
    }
    let spec = facts.pod.spec();
    messages::limit(spec, &mut statuses);
    let (host_ips, pod_ips) = (addresses::host_ips(facts), addresses::pod_ips(facts));
    PodStatus {
        conditions: Some(conditions::conditions(facts, &outcome, &statuses)),
        init_container_statuses: list(statuses.init.into_iter()),
        container_statuses: Some(statuses.regular),
        ephemeral_container_statuses: list(statuses.ephemeral.into_iter()),
        host_ip: host_ips.first().cloned(),
        host_ips: list(host_ips.into_iter().map(|ip| HostIP { ip })),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: list(pod_ips.into_iter().map(|ip| PodIP { ip })),
        qos_class: Some(qos_class(spec).as_str().to_owned()),
        observed_generation: generation(facts),
        start_time: Some(Time(start_time(facts.before, facts.seen, facts.wall))),
        phase: Some(outcome.phase),
        reason: outcome.reason,
        message: outcome.message,
        ..PodStatus::default()
    }
}

/// A pod that was refused has no containers to speak of.
fn rejected(facts: &Facts<'_>, ended: &Ended) -> PodStatus {
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(ended.reason.clone()),
        message: Some(ended.message.clone()),
        qos_class: Some(qos_class(facts.pod.spec()).as_str().to_owned()),
        observed_generation: generation(facts),
        start_time: Some(Time(start_time(facts.before, facts.seen, facts.wall))),
        ..PodStatus::default()
    }
}

/// When the pod began: set once. An agent that was restarted takes it from the
/// oldest sandbox, which it may see only after its first status.
pub fn start_time(before: Option<&PodStatus>, seen: &ObservedPod, wall: Timestamp) -> Timestamp {
    let before = before.and_then(|before| before.start_time.as_ref()).map(|time| time.0);
    let sandboxes = seen.sandboxes.iter().map(|sandbox| sandbox.created_at);
    let start = sandboxes.chain(before).min().unwrap_or(wall);
    truncate(start.min(wall))
}

/// Succeeded or Failed: it stays so.
pub fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whole seconds, as the API carries them.
pub(super) fn truncate(wall: Timestamp) -> Timestamp {
    Timestamp::from_second(wall.as_second()).unwrap_or(wall)
}

/// The version of the pod that this status speaks of.
pub(super) fn generation(facts: &Facts<'_>) -> Option<i64> {
    facts.pod.pod().metadata.generation.filter(|generation| *generation != 0)
}

/// The phase with what explains it.
pub(super) struct Outcome {
    pub(super) phase: String,
    pub(super) reason: Option<String>,
    message: Option<String>,
}

/// A terminal phase never changes again; the agent's own verdict comes next;
/// otherwise the containers tell. What explains a phase stays as long as it does.
fn outcome(facts: &Facts<'_>, told: &str) -> Outcome {
    let terminal = facts.before.filter(|before| is_terminal(before));
    if let (None, Some(ended)) = (terminal, facts.ended) {
        return Outcome {
            phase: "Failed".to_owned(),
            reason: Some(ended.reason.clone()),
            message: Some(ended.message.clone()),
        };
    }
    let phase = terminal.and_then(|before| before.phase.as_deref()).unwrap_or(told);
    // What a pod without a start waited for is over once it has a worker.
    let was_same = |before: &&PodStatus| before.phase.as_deref() == Some(phase);
    let has_begun = |before: &&PodStatus| before.start_time.is_some() || is_terminal(before);
    let kept = facts.before.filter(was_same).filter(has_begun);
    Outcome {
        phase: phase.to_owned(),
        reason: kept.and_then(|before| before.reason.clone()),
        message: kept.and_then(|before| before.message.clone()),
    }
}

fn list<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then_some(items)
}
