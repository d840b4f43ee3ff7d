//! Tables: one pod, a node, the pods that are there, and the decision as text.

mod affinity;
mod handlers;
mod inputs;
mod preemption;
mod review;
mod room;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Mono, PodUid, Source};
use serde_json::{Value, json};

use super::{
    Circumstances, Decision, Known, NodeNews, NodeView, Recovered, Rejection, Verdict, Wait, decide,
};
use crate::container_manager::amounts;
use crate::settings::Settings;

/// A pod of the API server, of one container `app`, with more fields in its spec.
fn pod(uid: &str, spec: Value) -> DesiredPod {
    from(Source::Api, uid, spec)
}

fn from(source: Source, uid: &str, spec: Value) -> DesiredPod {
    let mut object = json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {"containers": [{"name": "app", "image": "i"}]},
        "status": {"phase": "Pending"},
    });
    let fields = spec.as_object().cloned().unwrap_or_default();
    for (name, value) in fields {
        match name.as_str() {
            "metadata" => merge(&mut object["metadata"], value),
            "status" => merge(&mut object["status"], value),
            "app" => merge(&mut object["spec"]["containers"][0], value),
            _ => object["spec"][name] = value,
        }
    }
    let mut pod: Pod = serde_json::from_value(object).expect("test pod");
    kubelet_model::manifest::default_pod(&mut pod);
    DesiredPod::new(source, Arc::new(pod)).expect("a complete pod")
}

fn merge(to: &mut Value, more: Value) {
    for (name, value) in more.as_object().cloned().unwrap_or_default() {
        to[name] = value;
    }
}

/// Requests of these amounts.
fn asks(requests: Value) -> Value {
    json!({"app": {"resources": {"requests": requests}}})
}

/// Limits of these amounts, which makes it Guaranteed if they are cpu and memory.
fn limits(list: Value) -> Value {
    json!({"app": {"resources": {"requests": list, "limits": list}}})
}

/// Everything but the pod that is judged.
struct World {
    settings: Settings,
    news: Option<NodeNews>,
    conditions: Vec<String>,
    shutting_down: bool,
    strict_groups: Option<bool>,
    now: Mono,
    pods: Vec<Entry>,
}

struct Entry {
    pod: DesiredPod,
    verdict: Option<Verdict>,
    active: bool,
    recorded: bool,
    recovered: Recovered,
    asked_node: Option<u64>,
}

/// 2 processors, 4 GiB, 10 GiB of disk, 3 pods.
fn world() -> World {
    let mut settings = Settings::for_node("n1");
    settings.machine.kernel = (6, 1);
    settings.admission.own_node = Some(NodeView::read(&json!({
        "metadata": {"name": "n1", "labels": {"zone": "a", "size": "7"}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi",
            "pods": "3", "example.com/gpu": "1", "hugepages-2Mi": "4Mi"}},
    })));
    World {
        settings,
        news: None,
        conditions: Vec::new(),
        shutting_down: false,
        strict_groups: Some(true),
        now: Mono(Duration::from_secs(100)),
        pods: Vec::new(),
    }
}

impl World {
    /// Adds a pod that was admitted.
    fn with(mut self, pod: DesiredPod) -> Self {
        self.pods.push(Entry { verdict: Some(Verdict::Admitted), ..entry(pod) });
        self
    }

    fn node(&mut self, change: impl FnOnce(&mut NodeView)) {
        change(self.settings.admission.own_node.as_mut().expect("a node"));
    }

    fn decide(&self, new: &[Entry]) -> BTreeMap<PodUid, Decision> {
        let known = self.pods.iter().chain(new).map(|entry| Known {
            pod: Cow::Borrowed(&entry.pod),
            verdict: entry.verdict.as_ref(),
            active: entry.active,
            holds: amounts::pod_requests(entry.pod.spec()),
            recorded: entry.recorded,
            recovered: entry.recovered,
            asked_node: entry.asked_node,
        });
        let known: Vec<Known<'_>> = known.collect();
        let at = Circumstances {
            settings: &self.settings,
            news: self.news.as_ref(),
            conditions: &self.conditions,
            shutting_down: self.shutting_down,
            strict_groups: self.strict_groups,
            now: self.now,
        };
        decide(&known, &at)
    }

    /// The decision about one new pod.
    fn judge(&self, pod: DesiredPod) -> String {
        let uid = pod.uid().clone();
        text(&self.decide(&[entry(pod)])[&uid])
    }
}

fn entry(pod: DesiredPod) -> Entry {
    Entry {
        pod,
        verdict: None,
        active: true,
        recorded: false,
        recovered: Recovered::New,
        asked_node: None,
    }
}

fn text(decision: &Decision) -> String {
    let uids = |all: &[PodUid]| all.iter().map(PodUid::as_str).collect::<Vec<_>>().join(" ");
    match decision {
        Decision::Verdict(Verdict::Admitted) => "admit".to_owned(),
        Decision::Verdict(Verdict::Leaving) => "leaving".to_owned(),
        Decision::Verdict(Verdict::Over) => "over".to_owned(),
        Decision::Verdict(Verdict::Preempting { .. }) => "preempting".to_owned(),
        Decision::Verdict(Verdict::Rejected(Rejection { reason, message })) => {
            format!("{reason}: {message}")
        }
        Decision::Preempt { victims, until, signal } => {
            format!("preempt {} for {signal} until {:?}", uids(victims), until.0)
        }
        Decision::Wait(Wait::Node) => "wait for the node".to_owned(),
        Decision::Wait(Wait::Runtime) => "wait for the runtime".to_owned(),
        Decision::Wait(Wait::Victims(victims)) => format!("wait for {}", uids(victims)),
    }
}

/// The decisions about several pods, by uid.
fn texts(decisions: &BTreeMap<PodUid, Decision>) -> Vec<String> {
    decisions.iter().map(|(uid, one)| format!("{uid}: {}", text(one))).collect()
}
