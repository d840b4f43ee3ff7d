//! The API server as a source: the pods that were bound to this node.
//!
//! Follows them by watch, keeps the newest version of each, and hands the whole set
//! on whenever something changed that pods depend on. Mirrors of static pods come
//! the same way and are only noted. Upstream: pkg/kubelet/config/apiserver.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::{Api, Follower, News, Selection, Spread};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kubelet_model::manifest::from_api;
use kubelet_model::{PodUid, Source};
use serde_json::Value;
use tokio::sync::mpsc;

use super::merge::SourceUpdate;
use crate::pod_manager::{ApiCopies, ApiCopy};
use crate::status_manager::is_owned_condition;

/// What the source needs.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) node_name: String,
    pub(super) api: Arc<dyn Api>,
    pub(super) spread: Spread,
    pub(super) copies: ApiCopies,
}

pub(super) async fn run(config: Config, sender: mpsc::Sender<SourceUpdate>) {
    let selection = Selection {
        path: "/api/v1/pods".to_owned(),
        query: vec![("fieldSelector", format!("spec.nodeName={}", config.node_name))],
    };
    let mut follower = Follower::new(config.api, selection, config.spread);
    let mut bound = Bound { copies: config.copies, ..Bound::default() };
    let mut said = String::new();
    loop {
        let changed = match follower.next().await {
            News::All(objects) => {
                said.clear();
                bound.replace(objects)
            }
            News::Put(object) => bound.put(object),
            News::Gone(object) => bound.remove(&object),
            News::Failing(error) => {
                let text = error.to_string();
                if text != said {
                    tracing::warn!(
                        error = text,
                        "pods of the API server are not followed; those known keep running"
                    );
                    said = text;
                }
                false
            }
        };
        let update = || SourceUpdate {
            source: Source::Api,
            pods: bound.pods.values().cloned().collect(),
            objects: Vec::new(),
            complete: true,
        };
        // Whoever takes it is gone only when the agent ends.
        if changed && sender.send(update()).await.is_err() {
            return;
        }
    }
}

/// The pods that are bound to this node.
#[derive(Default)]
struct Bound {
    pods: BTreeMap<PodUid, Arc<Pod>>,
    copies: ApiCopies,
}

impl Bound {
    fn replace(&mut self, objects: Vec<Value>) -> bool {
        let (mut pods, mut copies) = (BTreeMap::new(), Vec::new());
        for object in objects {
            let uid = PodUid::new(object["metadata"]["uid"].as_str().unwrap_or_default());
            let Some((pod, copy)) = read(object) else {
                // It is there all the same: what was known of it stands.
                if let Some(old) = self.pods.get(&uid) {
                    copies.extend(self.copies.get(&uid));
                    pods.insert(uid, Arc::clone(old));
                }
                continue;
            };
            if copy.mirror.is_none() {
                let pod = noted(self.pods.get(&copy.uid), pod);
                pods.insert(copy.uid.clone(), pod);
            }
            copies.push(copy);
        }
        self.copies.replace(copies);
        self.pods = pods;
        true
    }

    fn put(&mut self, object: Value) -> bool {
        let Some((pod, copy)) = read(object) else { return false };
        let (uid, is_mirror) = (copy.uid.clone(), copy.mirror.is_some());
        self.copies.put(copy);
        if is_mirror {
            return false;
        }
        let old = self.pods.get(&uid);
        let pod = noted(old, pod);
        let changed = old.is_none_or(|old| !Arc::ptr_eq(old, &pod));
        self.pods.insert(uid, pod);
        changed
    }

    fn remove(&mut self, object: &Value) -> bool {
        let Some(uid) = object["metadata"]["uid"].as_str() else { return false };
        let uid = PodUid::new(uid);
        self.copies.remove(&uid);
        self.pods.remove(&uid).is_some()
    }
}

/// A pod that cannot be used is left out: its server holds it, and says why.
fn read(object: Value) -> Option<(Pod, ApiCopy)> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match from_api(object) {
        Ok(pod) => ApiCopy::of(&pod).map(|copy| (pod, copy)),
        Err(error) => {
            tracing::error!(pod = name, error, "pod of the API server ignored: it cannot be used");
            None
        }
    }
}

/// What this agent wrote itself comes back with every status: a pod changes only by
/// what others say of it. The first status stays, for an agent that has just started
/// knows no other.
fn noted(old: Option<&Arc<Pod>>, mut new: Pod) -> Arc<Pod> {
    new.metadata.resource_version = None;
    let Some(old) = old else { return Arc::new(new) };
    new.status = Some(noted_status(old.status.as_ref(), new.status.take().unwrap_or_default()));
    if **old == new { Arc::clone(old) } else { Arc::new(new) }
}

fn noted_status(old: Option<&PodStatus>, new: PodStatus) -> PodStatus {
    let mut kept = old.cloned().unwrap_or_default();
    let own = |c: &&PodCondition| is_owned_condition(&c.type_);
    let conditions = kept.conditions.iter().flatten().filter(own).cloned();
    let mut conditions: Vec<PodCondition> = conditions.collect();
    conditions.extend(new.conditions.into_iter().flatten().filter(|c| !own(&c)));
    kept.conditions = (!conditions.is_empty()).then_some(conditions);
    kept.resource_claim_statuses = new.resource_claim_statuses;
    // Whoever says that the pod has ended has the last word.
    if matches!(new.phase.as_deref(), Some("Succeeded" | "Failed")) {
        kept.phase = new.phase;
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(phase: &str, gate: &str) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"containers": [{"name": "app", "image": "i"}]},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": "False"}, {"type": "example.com/gate", "status": gate},
            ]},
        })
    }

    fn bound(first: Value) -> Bound {
        let mut bound = Bound::default();
        assert!(bound.replace(vec![first]));
        bound
    }

    #[test]
    fn only_what_others_say_changes_a_pod() {
        let mut bound = bound(object("Pending", "False"));
        assert!(!bound.put(object("Running", "False")), "the agent wrote that itself");
        assert!(bound.put(object("Running", "True")), "somebody opened the gate");
        assert!(bound.put(object("Failed", "True")), "somebody ended the pod");
        let pod = bound.pods.values().next().unwrap();
        assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Failed"));
    }

    #[test]
    fn a_version_that_cannot_be_read_does_not_end_the_pod() {
        let mut bound = bound(object("Running", "True"));
        let odd = json!({"metadata": {"name": "a", "uid": "u"}, "spec": 7});
        assert!(!bound.put(odd.clone()));
        bound.replace(vec![odd]);
        assert!(bound.pods.contains_key(&PodUid::new("u")));
        assert!(bound.copies.get(&PodUid::new("u")).is_some());
        bound.replace(Vec::new());
        assert!(bound.pods.is_empty());
    }
}
