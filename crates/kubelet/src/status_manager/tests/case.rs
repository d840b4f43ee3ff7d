//! One set of facts, told step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec, PodStatus};
use kubelet_model::{
    ContainerId, ContainerName, DesiredPod, ObservedPod, PodResources, ProbeKind, ProbeResult,
    ProbeResults, Source, WaitReason, Waiting,
};

use super::dsl;
use crate::allocation::Refusal;
use crate::status_manager::{Ended, Facts, Resizing, Stage, generate};

/// Facts with defaults: a live pod, nothing probed, an agent as old as the pod.
#[derive(Clone)]
pub struct Case {
    pub pod: DesiredPod,
    pub waiting: BTreeMap<ContainerName, Waiting>,
    pub probes: ProbeResults,
    pub pending_resize: Option<Refusal>,
    pub resizing: bool,
    pub resize_error: Option<String>,
    pub actuated: Option<PodResources>,
    pub stop_signals: bool,
    pub recursive_read_only: bool,
    pub problem: Option<String>,
    pub ended: Option<Ended>,
    pub before: Option<PodStatus>,
    pub stage: Stage,
    pub node_ips: Vec<String>,
    pub agent_started: Timestamp,
    pub wall: Timestamp,
}

impl Case {
    /// `<policy> <init containers, sidecars with a star> | <containers> | <ephemeral>`.
    pub fn new(text: &str) -> Self {
        let parts: Vec<Vec<&str>> =
            text.split('|').map(|part| part.split_whitespace().collect()).collect();
        let [first, regular, ephemeral] = &parts[..] else { panic!("three parts: {text:?}") };
        let (policy, init) = first.split_first().expect("a pod has a policy");
        let debug = |name: &&str| EphemeralContainer {
            name: (*name).to_owned(),
            image: Some(dsl::image_of(name)),
            ..EphemeralContainer::default()
        };
        let mut pod = (**dsl::pod(&format!("web {policy} {}", regular.join(","))).pod()).clone();
        let spec = pod.spec.as_mut().expect("a pod has a spec");
        spec.init_containers = Some(init.iter().map(init_container).collect());
        spec.ephemeral_containers = Some(ephemeral.iter().map(debug).collect());
        Self::of(desired(pod))
    }

    pub fn of(pod: DesiredPod) -> Self {
        Self {
            pod,
            waiting: BTreeMap::new(),
            probes: ProbeResults::default(),
            pending_resize: None,
            resizing: false,
            resize_error: None,
            actuated: None,
            stop_signals: false,
            recursive_read_only: false,
            problem: None,
            ended: None,
            before: None,
            stage: Stage::Live,
            node_ips: ["192.0.2.1", "2001:db8::1", "192.0.2.9"].map(str::to_owned).to_vec(),
            agent_started: dsl::wall(),
            wall: dsl::wall(),
        }
    }

    /// Changes the pod.
    pub fn pod(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        let mut pod = (**self.pod.pod()).clone();
        change(&mut pod);
        self.pod = desired(pod);
        self
    }

    pub fn spec(self, change: impl FnOnce(&mut PodSpec)) -> Self {
        self.pod(|pod| change(pod.spec.as_mut().expect("a pod has a spec")))
    }

    /// Changes one init or regular container by merging JSON into it.
    pub fn container(self, name: &str, json: &str) -> Self {
        self.spec(|spec| {
            let init = spec.init_containers.iter_mut().flatten();
            let mut all = init.chain(&mut spec.containers);
            let found = all.find(|c| c.name == name).expect("a container of that name");
            let mut value = serde_json::to_value(&*found).expect("plain data");
            let more: serde_json::Value = serde_json::from_str(json).expect("JSON");
            let (Some(fields), Some(more)) = (value.as_object_mut(), more.as_object()) else {
                panic!("containers are objects");
            };
            fields.extend(more.clone());
            *found = serde_json::from_value(value).expect("a container");
        })
    }

    pub fn probe(mut self, id: &str, kind: ProbeKind, result: ProbeResult) -> Self {
        self.probes.set(&ContainerId::new(id), kind, result);
        self
    }

    pub fn waits(mut self, name: &str, reason: WaitReason) -> Self {
        let waiting = Waiting { reason, message: "it said no".to_owned() };
        self.waiting.insert(ContainerName::new(name), waiting);
        self
    }

    pub fn stage(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// The agent started this long after everything that runs.
    pub fn agent_restarted_after(mut self, seconds: i64) -> Self {
        self.agent_started = dsl::wall() + SignedDuration::from_secs(seconds);
        self
    }

    pub fn ended(mut self, reason: &str, message: &str) -> Self {
        self.ended = Some(Ended {
            disruption: None,
            reason: reason.to_owned(),
            message: message.to_owned(),
            before_anything: false,
        });
        self
    }

    /// The status that sees this, as scenes tell it.
    pub fn sees(&self, items: &str) -> PodStatus {
        self.generate(&dsl::scene(&format!("web Always: {items}")).seen)
    }

    /// The facts after a status that saw this.
    pub fn then(mut self, items: &str) -> Self {
        self.before = Some(self.sees(items));
        self
    }

    pub fn generate(&self, seen: &ObservedPod) -> PodStatus {
        generate(&Facts {
            pod: &self.pod,
            seen,
            waiting: &self.waiting,
            pod_problem: self.problem.as_deref(),
            ended: self.ended.as_ref(),
            probes: &self.probes,
            pending_resize: self.pending_resize.as_ref(),
            resizing: self.resizing.then_some(Resizing { error: self.resize_error.as_deref() }),
            actuated: self.actuated.as_ref(),
            stop_signals: self.stop_signals,
            recursive_read_only: self.recursive_read_only,
            before: self.before.as_ref(),
            stage: self.stage,
            runtime_name: "containerd",
            node_ips: &self.node_ips,
            agent_started: self.agent_started,
            wall: self.wall,
        })
    }
}

fn desired(pod: Pod) -> DesiredPod {
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

fn init_container(word: &&str) -> Container {
    let (name, policy) = match word.strip_suffix('*') {
        Some(name) => (name, Some("Always".to_owned())),
        None => (*word, None),
    };
    Container {
        name: name.to_owned(),
        image: Some(dsl::image_of(name)),
        restart_policy: policy,
        ..Container::default()
    }
}
