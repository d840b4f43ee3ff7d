//! What the agent may ask of the server and write there, checked as it happens; and
//! what it has heard of the pods.

use std::collections::{BTreeMap, BTreeSet};

use api_client::{ApiError, Call, Change, WatchEvent};
use serde_json::Value;

use super::port::unreachable;
use crate::manifest::REVISION_LABEL;
use crate::world::State;

/// Requests of one minute that only a storm makes.
///
/// At most six pods live here. The agent follows pods, services, runtime classes, its
/// Node and one ConfigMap: each of the five begins a watch once a second at most, which
/// a server that cuts watches every second brings about: 300. Statuses are retried
/// every half second first and every 10 s later, together where the server refuses
/// everybody: at most 20 for each pod, 120 in all. The lease is renewed and retried 60
/// times at most, the Node's status 5 times in 10 s, which makes 30, CSINode and the
/// Node for admission every 2 s: 60. Events of six pods that start, fail and stop with
/// their retries: 150 more.
pub(super) const REQUESTS_PER_MINUTE_MAX: u32 = 720;

/// What was asked and written so far.
#[derive(Default)]
pub(crate) struct Record {
    minute: u64,
    requests: BTreeMap<String, u32>,
    /// Most requests of one minute so far, and what they were.
    pub(crate) most: (u32, String),
    /// Phases that the agent wrote last, by uid.
    phases: BTreeMap<String, String>,
    /// Status patches by uid that changed something, that changed nothing, and those of
    /// the latter that have an excuse.
    patches: BTreeMap<String, [u32; 3]>,
}

impl Record {
    /// The agent, or the server, has forgotten what was written.
    pub(crate) fn excuse_all(&mut self) {
        self.patches.values_mut().for_each(|counts| counts[2] += 1);
    }

    /// Status patches of a pod that changed something.
    pub(crate) fn patches_of(&self, uid: &str) -> u32 {
        self.patches.get(uid).map_or(0, |counts| counts[0] + counts[1])
    }

    /// What was said before the server was restored does not bind.
    pub(super) fn forget_phases(&mut self) {
        self.phases.clear();
    }
}

fn kind_of(method: &str, path: &str) -> String {
    let plain = path.split('?').next().unwrap_or_default();
    let kinds = ["pods", "nodes", "leases", "events", "csinodes", "services", "configmaps"];
    let kind = kinds.into_iter().find(|kind| plain.split('/').any(|part| part == *kind));
    format!("{method} {}", kind.unwrap_or(plain))
}

fn is_terminal(phase: &str) -> bool {
    phase == "Succeeded" || phase == "Failed"
}

/// Uid, revision and whether it is being deleted.
fn sight(object: &Value) -> (String, u64, bool) {
    let meta = &object["metadata"];
    let revision = meta["labels"][REVISION_LABEL].as_str().and_then(|text| text.parse().ok());
    let uid = meta["uid"].as_str().unwrap_or_default().to_owned();
    (uid, revision.unwrap_or(0), meta["deletionTimestamp"].is_string())
}

impl State {
    /// The agent makes a request.
    pub(super) fn count_request(&mut self, method: &str, path: &str) {
        let minute = self.now().as_secs() / 60;
        let text = format!("{method} {}", path.split('?').next().unwrap_or_default());
        self.note("", text);
        let Some(server) = &mut self.api else { return };
        let record = &mut server.record;
        if record.minute != minute {
            (record.minute, record.requests) = (minute, BTreeMap::new());
        }
        *record.requests.entry(kind_of(method, path)).or_default() += 1;
        let count: u32 = record.requests.values().sum();
        if count > record.most.0 {
            record.most = (count, format!("{:?}", record.requests));
        }
        if count == REQUESTS_PER_MINUTE_MAX {
            let text = format!("storm: {count} requests in a minute: {:?}", record.requests);
            self.violate("", text);
        }
    }

    /// The server does what it is asked for.
    pub(super) fn serve(&mut self, call: &Call, lost: bool) -> Result<Value, ApiError> {
        if self.api_away().is_some() {
            return Err(unreachable("connection reset"));
        }
        let Some(server) = &self.api else { return Err(unreachable("no server")) };
        let pod = pod_of(&call.path);
        let before = pod.and_then(|name| server.pod(name));
        let answer = server.ask(call.clone());
        let Some((name, before)) = pod.zip(before) else { return answer };
        let name = name.to_owned();
        match (call.method.as_str(), &answer) {
            ("PATCH", Ok(after)) => self.check_patch(&name, &before, after, lost),
            ("DELETE", Ok(_)) => self.check_pod_deleted(&name, &before),
            _ => {}
        }
        answer
    }

    fn check_patch(&mut self, name: &str, before: &Value, after: &Value, lost: bool) {
        let phase = |of: &Value| of["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let (uid, ..) = sight(after);
        let (was, is) = (phase(before), phase(after));
        let Some(server) = &mut self.api else { return };
        let said = server.record.phases.insert(uid.clone(), is.clone()).unwrap_or(was);
        let counts = server.record.patches.entry(uid).or_default();
        counts[usize::from(before["status"] == after["status"])] += 1;
        counts[2] += u32::from(lost);
        let counts = *counts;
        if is_terminal(&said) && said != is {
            self.violate(name, format!("phase {said} reverts to {is}"));
        }
        if counts[1] > counts[2] {
            let text =
                format!("{} status patches changed nothing, {} excused", counts[1], counts[2]);
            self.violate(name, text);
        }
    }

    fn check_pod_deleted(&mut self, name: &str, before: &Value) {
        let (uid, _, deleted) = sight(before);
        if !deleted {
            self.violate(name, "the agent deletes a pod that nobody wants deleted".to_owned());
        }
        let mut all = self.objects.containers.values();
        let running = all.find(|c| c.is_running() && c.uid() == uid && !self.is_unheard_of(c));
        if let Some(container) = running.map(|c| c.name().to_owned()) {
            self.violate(name, format!("its object is deleted while {container} runs"));
        }
    }

    /// The agent gets an answer: a list of its pods tells it which there are.
    pub(super) fn hear_answer(&mut self, call: &Call, answer: &Result<Value, ApiError>) {
        let Ok(list) = answer else { return };
        if call.method != "GET" || !call.path.starts_with("/api/v1/pods?") {
            return;
        }
        let now = self.now();
        let mut there = BTreeSet::new();
        for object in list["items"].as_array().into_iter().flatten() {
            let (uid, revision, deleted) = sight(object);
            self.oracle.hear(&uid, Some(revision), deleted, now);
            there.insert(uid);
        }
        for uid in self.oracle.unheard().difference(&there) {
            self.oracle.hear(uid, None, true, now);
        }
    }

    /// The agent gets an event of a pod.
    pub(super) fn hear_event(&mut self, event: &WatchEvent) {
        if event.change == Change::Bookmark {
            return;
        }
        let now = self.now();
        let (uid, revision, deleted) = sight(&event.object);
        let gone = event.change == Change::Deleted;
        self.oracle.hear(&uid, (!gone).then_some(revision), deleted || gone, now);
    }
}

/// The name in a path that is of one pod.
fn pod_of(path: &str) -> Option<&str> {
    let mut parts = path.split('?').next()?.split('/').skip_while(|part| *part != "pods");
    parts.next()?;
    parts.next()
}
