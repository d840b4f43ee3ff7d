//! Every state has an answer that says more than that something is wrong.

mod endings;
mod images;
mod manifests;
mod reasons;
mod whole;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{EventObject, EventType, Mono, PodUid};
use serde_json::{Value, json};

use super::{Explanation, Manifest, WhyFacts, explain, render};
use crate::events::Event;
use crate::pod_sources::Namesake;
use crate::progress::Progress;

/// 1970-01-01T01:00:00Z.
fn now() -> Timestamp {
    Timestamp::from_second(3_600).unwrap()
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web-n1", "namespace": "default", "uid": "u"}, "spec": spec,
    }))
    .unwrap()
}

fn one(container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("app");
    json!({"containers": [container]})
}

fn container_status(state: Value, last: Value) -> Value {
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 4,
        "state": state, "lastState": last,
    }]})
}

struct Case {
    pod: Pod,
    status: PodStatus,
    progress: Option<Progress>,
    events: Vec<Event>,
    logs: BTreeMap<String, Vec<String>>,
    manifest: Manifest,
    namesakes: Vec<Namesake>,
    unheeded: Vec<String>,
}

impl Case {
    fn new(spec: Value, status: Value) -> Self {
        Self {
            pod: pod(spec),
            status: serde_json::from_value(status).unwrap(),
            progress: None,
            events: Vec::new(),
            logs: BTreeMap::new(),
            manifest: Manifest::File("/etc/klet/pods/web.yaml".into()),
            namesakes: Vec::new(),
            unheeded: Vec::new(),
        }
    }
    fn waiting(reason: &str, message: &str, container: Value) -> Self {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        Self::new(one(container), container_status(state, json!({})))
    }
    fn event(self, reason: &'static str, message: &str) -> Self {
        self.event_of("app", reason, message)
    }
    fn event_of(mut self, container: &str, reason: &'static str, message: &str) -> Self {
        self.events.push(Event {
            object: EventObject::Pod {
                uid: PodUid::new("u"),
                name: "web-n1".into(),
                namespace: "default".into(),
                field_path: format!("spec.containers{{{container}}}"),
            },
            kind: EventType::Warning,
            reason,
            message: message.to_owned(),
            count: 1,
            first: Timestamp::from_second(3_590).unwrap(),
            last: now(),
        });
        self
    }
    fn explain(&self) -> Explanation {
        explain(&WhyFacts {
            pod: &self.pod,
            status: &self.status,
            progress: self.progress.as_ref(),
            events: &self.events,
            logs: &self.logs,
            manifest: &self.manifest,
            namesakes: &self.namesakes,
            unheeded: &self.unheeded,
            wall: now(),
            mono: Mono(Duration::from_secs(100)),
        })
    }
    fn text(&self) -> String {
        render(&self.explain(), now())
    }
}

#[track_caller]
fn has(text: &str, needles: &[&str]) {
    // Lines are broken for the screen; the words count.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for needle in needles {
        assert!(flat.contains(needle), "{needle:?} is missing from:\n{text}");
    }
}
