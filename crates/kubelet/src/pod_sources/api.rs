//! The API server as a source: the pods that were bound to this node.
//!
//! Follows them by watch, keeps the newest version of each, and hands the whole set
//! on whenever something changed that pods depend on. Mirrors of static pods come
//! the same way and are only noted. If the server does not answer as the agent starts,
//! pods that were kept stand in for it until it does. Upstream: pkg/kubelet/config/apiserver.go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Follower, News, Selection, Spread};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kubelet_model::manifest::from_api;
use kubelet_model::{EventObject, EventType, PodUid, Source};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::merge::SourceUpdate;
use crate::events::Recorder;
use crate::object_cache::Objects;
use crate::offline::FallBack;
use crate::pod_manager::{ApiCopies, ApiCopy};
use crate::status_manager::is_owned_condition;

/// What the source needs.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) node_name: String,
    pub(super) api: Arc<dyn Api>,
    pub(super) spread: Spread,
    pub(super) copies: ApiCopies,
    /// Takes what is wrong with pods.
    pub(super) recorder: Recorder,
    /// Where objects of kept pods go.
    pub(super) objects: Objects,
    /// Pods kept for the time without a server, if any are.
    pub(super) fall_back: Option<FallBack>,
}

/// How long the server may take at the start before kept pods are started.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(config: Config, sender: mpsc::Sender<SourceUpdate>) {
    let selection = Selection {
        path: "/api/v1/pods".to_owned(),
        query: vec![("fieldSelector", format!("spec.nodeName={}", config.node_name))],
    };
    let Config { objects, fall_back, .. } = config;
    let mut follower = Follower::new(config.api, selection, config.spread);
    let mut bound = Bound::new(config.copies, config.recorder);
    let mut said = String::new();
    // Until the server has spoken for the first time.
    let mut silent = fall_back.is_some();
    let patience = Instant::now() + PATIENCE;
    loop {
        let news = tokio::select! { biased;
            news = follower.next() => Some(news),
            // What was asked for is asked for again.
            () = sleep_until(patience), if silent => None,
        };
        if silent && matches!(news, None | Some(News::Failing(_))) {
            silent = false;
            let kept = fall_back.as_ref().and_then(|fall_back| fall_back.begin(&objects));
            if let Some(kept) = kept {
                bound.fall_back(kept);
                // Not complete: what else runs here is left as it is.
                let update = SourceUpdate { complete: false, ..bound.update() };
                if sender.send(update).await.is_err() {
                    return;
                }
            }
        }
        let Some(news) = news else { continue };
        let changed = match news {
            News::All(all) => {
                said.clear();
                silent = false;
                if let Some(fall_back) = &fall_back {
                    fall_back.end(&objects);
                }
                bound.replace(all)
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
        // Whoever takes it is gone only when the agent ends.
        if changed && sender.send(bound.update()).await.is_err() {
            return;
        }
    }
}

/// The pods that are bound to this node.
struct Bound {
    pods: BTreeMap<PodUid, Arc<Pod>>,
    copies: ApiCopies,
    recorder: Recorder,
}

impl Bound {
    fn new(copies: ApiCopies, recorder: Recorder) -> Self {
        Self { pods: BTreeMap::new(), copies, recorder }
    }

    fn update(&self) -> SourceUpdate {
        SourceUpdate {
            source: Source::Api,
            pods: self.pods.values().cloned().collect(),
            objects: Vec::new(),
            complete: true,
        }
    }

    /// Takes pods of another life of the agent: the server has not spoken yet.
    fn fall_back(&mut self, kept: Vec<Arc<Pod>>) {
        let uid = |pod: &Pod| PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default());
        self.pods = kept.into_iter().map(|pod| (uid(&pod), pod)).collect();
    }

    fn replace(&mut self, objects: Vec<Value>) -> bool {
        let (mut pods, mut copies) = (BTreeMap::new(), Vec::new());
        for object in objects {
            let uid = PodUid::new(object["metadata"]["uid"].as_str().unwrap_or_default());
            let Some((pod, copy)) = self.read(object) else {
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
        let Some((pod, copy)) = self.read(object) else { return false };
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

    /// A pod that cannot be used is left out, and whoever looks at it is told why.
    fn read(&self, object: Value) -> Option<(Pod, ApiCopy)> {
        let field = |name| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let (uid, name, namespace) = (field("uid"), field("name"), field("namespace"));
        match from_api(object) {
            Ok(pod) => ApiCopy::of(&pod).map(|copy| (pod, copy)),
            Err(error) => {
                tracing::error!(
                    pod = name,
                    error,
                    "pod of the API server ignored: it cannot be used"
                );
                let why = format!(
                    "Error validating pod {name}_{namespace}({uid}) from api, ignoring: {error}"
                );
                let uid = PodUid::new(uid);
                let pod = EventObject::Pod { uid, name, namespace, field_path: String::new() };
                self.recorder.record(&pod, EventType::Warning, "FailedValidation", why);
                None
            }
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
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use api_client::{ApiError, Call, Watching};
    use async_trait::async_trait;
    use serde_json::json;

    use super::*;
    use crate::events::NodeEvents;

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
        let mut bound = Bound::new(ApiCopies::default(), NodeEvents::for_test().1);
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
        let odd = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "spec": 7});
        assert!(!bound.put(odd.clone()));
        bound.replace(vec![odd]);
        assert!(bound.pods.contains_key(&PodUid::new("u")));
        assert!(bound.copies.get(&PodUid::new("u")).is_some());
        bound.replace(Vec::new());
        assert!(bound.pods.is_empty());
        // Whoever looks at the pod sees why nothing becomes of it.
        let events = bound.recorder.all();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(
            (event.kind, event.reason, event.count),
            (EventType::Warning, "FailedValidation", 2)
        );
        let begin = "Error validating pod a_ns(u) from api, ignoring: ";
        assert!(event.message.starts_with(begin), "{}", event.message);
        assert_eq!(
            event.object,
            EventObject::Pod {
                uid: PodUid::new("u"),
                name: "a".to_owned(),
                namespace: "ns".to_owned(),
                field_path: String::new(),
            }
        );
    }

    /// Answers lists as it is told, and then nothing any more.
    struct Scripted(Mutex<VecDeque<Result<Value, ApiError>>>);

    #[async_trait]
    impl Api for Scripted {
        async fn call(&self, _: Call) -> Result<Value, ApiError> {
            let next = self.0.lock().unwrap().pop_front();
            match next {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
        async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
            std::future::pending().await
        }
    }

    fn start(
        answers: Vec<Result<Value, ApiError>>,
        fall_back: Option<FallBack>,
    ) -> (impl Future<Output = ()>, mpsc::Receiver<SourceUpdate>) {
        let (sender, updates) = mpsc::channel(3);
        let config = Config {
            node_name: "n".to_owned(),
            api: Arc::new(Scripted(Mutex::new(answers.into()))),
            spread: Arc::new(|_| Duration::ZERO),
            copies: ApiCopies::default(),
            recorder: NodeEvents::for_test().1,
            objects: Objects::default(),
            fall_back,
        };
        (run(config, sender), updates)
    }

    fn told(update: &SourceUpdate) -> (Vec<&str>, bool) {
        let uids = update.pods.iter().map(|pod| pod.metadata.uid.as_deref().unwrap_or_default());
        (uids.collect(), update.complete)
    }

    fn named(uid: &str) -> Value {
        let mut pod = object("Running", "True");
        pod["metadata"]["uid"] = uid.into();
        pod
    }

    #[tokio::test(start_paused = true)]
    async fn kept_pods_stand_in_until_the_server_has_spoken() {
        let kept = || FallBack::for_test(vec![Arc::new(from_api(named("kept")).unwrap())]);
        let refused = || Err(ApiError::Unusable("as the test wants".to_owned()));
        let list = || Ok(json!({"metadata": {"resourceVersion": "1"}, "items": [named("new")]}));
        // What the server says; whether kept pods stand in.
        for (answers, stands_in) in
            [(vec![list()], false), (vec![refused(), refused(), list()], true), (vec![], true)]
        {
            let answers_all = !answers.is_empty();
            let (fall_back, offline) = kept();
            let (run, mut updates) = start(answers, Some(fall_back));
            tokio::select! { biased;
                () = run => panic!("it ended"),
                () = async {
                    if stands_in {
                        let update = updates.recv().await.unwrap();
                        assert_eq!(told(&update), (vec!["kept"], false), "others are left alone");
                        assert!(offline.running().is_some());
                    }
                    if answers_all {
                        let update = updates.recv().await.unwrap();
                        assert_eq!(told(&update), (vec!["new"], true));
                        assert_eq!(offline.running(), None);
                    }
                } => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_kept_pods_nothing_stands_in() {
        let refused = Err(ApiError::Unusable("as the test wants".to_owned()));
        let (run, mut updates) = start(vec![refused], None);
        tokio::select! { biased;
            () = run => panic!("it ended"),
            update = updates.recv() => panic!("{:?}", update.map(|update| update.pods)),
            () = tokio::time::sleep(Duration::from_secs(600)) => {}
        }
    }
}
