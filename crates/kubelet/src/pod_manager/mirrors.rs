//! Keeps the mirrors of static pods at the API server.
//!
//! Level-triggered: plans anew on every change of static pods, of what the server
//! holds, and of the node's own object. Upstream: pkg/kubelet/pod/mirror_client.go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, path};
use kubelet_model::{DesiredPod, FullName, PodSet};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::mirror_plan::{self, Step, mirror_of};
use super::{ApiCopies, ApiCopy};
use crate::pod_sources::PodSetReader;
use crate::ports::Jitter;
use crate::status_manager::Statuses;

/// First pause after a failure; it doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The node's own object: its uid, once it is registered and not being deleted.
pub type NodeIdentity = watch::Receiver<Option<String>>;

/// Makes and deletes mirrors.
pub struct Mirrors {
    /// The server.
    pub api: Arc<dyn Api>,
    /// This node's name.
    pub node_name: String,
    /// Its uid.
    pub node: NodeIdentity,
    /// Static pods.
    pub desired: PodSetReader,
    /// What the server holds.
    pub copies: ApiCopies,
    /// Pods that are still being removed have a status.
    pub statuses: Statuses,
    /// Spreads retries.
    pub jitter: Jitter,
}

/// A step that failed.
struct Failure {
    step: Step,
    text: String,
    count: u32,
    retry_at: Instant,
}

impl Mirrors {
    /// Works until it is dropped.
    pub async fn run(mut self) {
        let (mut copies, mut statuses) = (self.copies.follow(), self.statuses.follow());
        let mut failed: BTreeMap<FullName, Failure> = BTreeMap::new();
        loop {
            let node = self.node.borrow_and_update().clone();
            copies.borrow_and_update();
            statuses.borrow_and_update();
            let desired = self.desired.current();
            let ready = desired.sources_ready && self.copies.is_known();
            let steps = match &node {
                Some(uid) if ready => self.steps(&desired, uid),
                _ => Vec::new(),
            };
            failed.retain(|name, failure| {
                steps.iter().any(|(step, _)| step.full_name() == name && *step == failure.step)
            });
            for (step, call) in steps {
                let now = Instant::now();
                let known = failed.get(step.full_name());
                if known.is_some_and(|failure| failure.retry_at > now) {
                    continue;
                }
                match self.perform(&step, call).await {
                    Ok(()) => drop(failed.remove(step.full_name())),
                    Err(error) => self.note_failure(&mut failed, step, &error),
                }
            }
            let next = failed.values().map(|failure| failure.retry_at).min();
            tokio::select! { biased;
                () = self.desired.changed() => {}
                changed = copies.changed() => if changed.is_err() { return },
                // A pod that has gone no longer holds its mirror.
                changed = statuses.changed() => if changed.is_err() { return },
                // The node's follower ends only with the agent.
                changed = self.node.changed() => if changed.is_err() { return },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    fn steps(&self, desired: &PodSet, node_uid: &str) -> Vec<(Step, Call)> {
        let mut statics: BTreeMap<FullName, &DesiredPod> = BTreeMap::new();
        for pod in desired.pods.values().filter(|pod| pod.is_static()) {
            statics.insert(pod.full_name().clone(), pod);
        }
        let ending = |name: &FullName| self.statuses.has(name);
        let steps = mirror_plan::plan(&statics, &self.copies.mirrors(), &ending);
        let call = |step: Step| {
            let call = match &step {
                Step::Create(name) => create(statics.get(name)?, &self.node_name, node_uid),
                Step::Delete { full_name, uid } => delete(full_name.parts()?, uid.as_str()),
            };
            Some((step, call))
        };
        steps.into_iter().filter_map(call).collect()
    }

    async fn perform(&self, step: &Step, call: Call) -> Result<(), ApiError> {
        match (step, self.api.call(call).await) {
            (Step::Create(name), Ok(object)) => {
                tracing::info!(pod = %name, "static pod shown at the API server");
                self.note(object);
                Ok(())
            }
            (Step::Delete { full_name, uid }, Ok(_)) => {
                tracing::info!(pod = %full_name, %uid, "mirror deleted at the API server");
                self.copies.remove(uid);
                Ok(())
            }
            // Somebody else was first; the watch tells what there is now.
            (Step::Delete { uid, .. }, Err(error))
                if error.is_not_found() || error.is_conflict() =>
            {
                self.copies.remove(uid);
                Ok(())
            }
            (_, Err(error)) => Err(error),
        }
    }

    /// What was made is known before the watch tells of it.
    fn note(&self, object: Value) {
        let pod = kubelet_model::manifest::from_api(object);
        if let Some(copy) = pod.ok().as_ref().and_then(ApiCopy::of) {
            self.copies.put(copy);
        }
    }

    fn note_failure(&self, failed: &mut BTreeMap<FullName, Failure>, step: Step, error: &ApiError) {
        let (name, text) = (step.full_name().clone(), error.to_string());
        let before = failed.remove(&name);
        if before.as_ref().is_none_or(|before| before.text != text) {
            tracing::warn!(pod = %name, error = text, "mirror pod not in order; trying again");
        }
        let count = before.map_or(0, |before| before.count).saturating_add(1);
        let pause = PAUSE.saturating_mul(1 << (count - 1).min(10)).min(PAUSE_MAX);
        let pause = error.retry_after().unwrap_or_default().max(self.jitter.spread(pause));
        failed.insert(name, Failure { step, text, count, retry_at: Instant::now() + pause });
    }
}

fn create(pod: &DesiredPod, node_name: &str, node_uid: &str) -> Call {
    let object = mirror_of(pod, node_name, node_uid);
    // A Pod holds only strings, numbers, lists and maps with string keys.
    let object = serde_json::to_value(object).expect("a pod can be written as JSON");
    Call::post(&path("api/v1", pod.namespace(), &["pods"]), object)
}

fn delete((name, namespace): (&str, &str), uid: &str) -> Call {
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    Call::delete(&path("api/v1", namespace, &["pods", name]), options)
}
