//! Statuses on their way to an API server: a real one, without its sockets.

mod churn;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api, ApiError, Call, Follower, Watching, path};
use apiserver::direct::Direct;
use async_trait::async_trait;
use expect_test::expect;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{DesiredPod, Source};
use serde_json::{Value, json};

use super::merge::{self, patch};
use super::*;
use crate::ports::{SystemClock, Tasks};

fn status(value: Value) -> PodStatus {
    serde_json::from_value(value).unwrap()
}

fn merge(server: &PodStatus, own: &PodStatus) -> PodStatus {
    merge::merge(server, own, "2026-02-01T00:00:00.5Z".parse().unwrap())
}

fn running(ready: &str) -> PodStatus {
    status(json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "app", "image": "i", "imageID": "i", "ready": true,
            "restartCount": 0, "state": {"running": {}}}],
        "podIPs": [{"ip": "10.0.0.1"}],
    }))
}

#[test]
fn others_words_stay_and_only_what_differs_is_sent() {
    let mut server = running("False");
    let theirs = json!([
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        {"type": "example.com/gate", "status": "True"},
    ]);
    server.conditions = serde_json::from_value(theirs).unwrap();
    server.start_time = status(json!({"startTime": "2025-01-01T00:00:00Z"})).start_time;
    let merged = merge(&server, &running("True"));
    let types: Vec<_> = merged.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["example.com/gate", "Ready"]);
    assert_eq!(merged.start_time, server.start_time);
    let change = patch("u", &server, &merged).unwrap();
    expect![[r#"{"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"example.com/gate"},{"type":"Ready"}],"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","reason":null,"status":"True","type":"Ready"}]}}"#]]
        .assert_eq(&change.to_string());
    assert_eq!(patch("u", &merged, &merge(&merged, &running("True"))), None);
}

#[test]
fn a_pod_does_not_end_before_its_containers() {
    let ended = PodStatus { phase: Some("Failed".to_owned()), ..running("False") };
    assert_eq!(merge(&running("True"), &ended).phase.as_deref(), Some("Running"));
    let over = PodStatus { container_statuses: None, ..ended };
    assert_eq!(merge(&running("True"), &over).phase.as_deref(), Some("Failed"));
    // And what has ended does not come back.
    assert_eq!(merge(&over, &running("True")).phase.as_deref(), Some("Failed"));
}

#[test]
fn what_has_ended_is_not_ready() {
    let told = |server: &PodStatus, own: &PodStatus| {
        let merged = merge(server, own);
        let ready = merged.conditions.into_iter().flatten().find(|c| c.type_ == "Ready").unwrap();
        let since = ready.last_transition_time.map(|since| since.0.to_string());
        (ready.status, ready.reason, since.unwrap_or_default())
    };
    let is = |status: &str, reason: Option<&str>, since: &str| {
        (status.to_owned(), reason.map(str::to_owned), since.to_owned())
    };
    let then = "2026-01-01T00:00:00Z";
    let failed = |ready| PodStatus { phase: Some("Failed".to_owned()), ..running(ready) };
    let ended = |ready| PodStatus { phase: Some("Succeeded".to_owned()), ..running(ready) };
    let now = "2026-02-01T00:00:00Z";
    // The server says that it has ended: the agent, which still sees it run, follows.
    assert_eq!(told(&failed("True"), &running("True")), is("False", Some("PodFailed"), now));
    assert_eq!(told(&ended("True"), &running("True")), is("False", Some("PodCompleted"), now));
    // What is told already stays as it is.
    assert_eq!(told(&failed("False"), &running("True")), is("False", Some("PodFailed"), then));
    assert_eq!(told(&running("True"), &running("True")), is("True", None, then));
    let first = merge(&failed("True"), &running("True"));
    assert_eq!(patch("u", &first, &merge(&first, &running("True"))), None);
}

#[test]
fn addresses_that_go_are_taken_away() {
    let other = status(json!({"podIPs": [{"ip": "10.0.0.2"}]}));
    let change = patch("u", &running("True"), &other).unwrap();
    expect![[r#"{"$setElementOrder/conditions":[],"$setElementOrder/podIPs":[{"ip":"10.0.0.2"}],"conditions":[{"$patch":"delete","type":"Ready"}],"containerStatuses":null,"phase":null,"podIPs":[{"ip":"10.0.0.2"},{"$patch":"delete","ip":"10.0.0.1"}]}"#]]
        .assert_eq(&change["status"].to_string());
}

/// An API server whose requests are counted, and fail or take long while they should.
struct Counted {
    api: Direct,
    writes: AtomicU32,
    failing: AtomicU32,
    delay_ms: AtomicU32,
    together: AtomicU32,
    together_max: AtomicU32,
    paths: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Api for Counted {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        if call.method != "GET" {
            self.writes.fetch_add(1, Ordering::SeqCst);
            self.paths.lock().unwrap().insert(call.path.clone());
            let together = self.together.fetch_add(1, Ordering::SeqCst) + 1;
            self.together_max.fetch_max(together, Ordering::SeqCst);
            let delay = self.delay_ms.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(delay.into())).await;
            self.together.fetch_sub(1, Ordering::SeqCst);
            if self.failing.load(Ordering::SeqCst) != 0 {
                let code = self.failing.load(Ordering::SeqCst) as u16;
                return Err(ApiError::of_status(&json!({"message": "not now"}), code, None));
            }
        }
        self.api.call(call).await
    }
    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.api.watch(path).await
    }
}

struct Bench {
    api: Arc<Counted>,
    statuses: Statuses,
    tasks: Tasks,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

fn no_spread(longest: Duration) -> Duration {
    longest
}

impl Bench {
    /// A writer beside an API server that it follows.
    async fn new() -> Self {
        let number = AtomicU32::default;
        let api = Arc::new(Counted {
            api: Direct::alone(Arc::new(Timestamp::now), 10_000).unwrap(),
            writes: number(),
            failing: number(),
            delay_ms: number(),
            together: number(),
            together_max: number(),
            paths: Mutex::default(),
        });
        let (statuses, copies, tasks) =
            (Statuses::default(), ApiCopies::default(), Tasks::default());
        let writer = StatusWriter {
            api: Arc::clone(&api) as Arc<dyn Api>,
            statuses: statuses.clone(),
            copies: copies.clone(),
            clock: Arc::new(SystemClock::new()),
            jitter: Jitter::seeded(1),
        };
        tasks.spawn(writer.run());
        let selection = api_client::Selection { path: "/api/v1/pods".to_owned(), query: vec![] };
        let mut follower =
            Follower::new(Arc::clone(&api) as Arc<dyn Api>, selection, Arc::new(no_spread));
        tasks.spawn(async move {
            let copy = |object| ApiCopy::of(&serde_json::from_value::<Pod>(object).unwrap());
            loop {
                match follower.next().await {
                    api_client::News::All(all) => copies.replace(all.into_iter().filter_map(copy)),
                    api_client::News::Put(object) => copies.put(copy(object).unwrap()),
                    api_client::News::Gone(object) => copies.remove(&copy(object).unwrap().uid),
                    api_client::News::Failing(error) => panic!("{error}"),
                }
            }
        });
        Self { api, statuses, tasks }
    }

    /// A pod of the API server, known here as well.
    async fn pod(&self, name: &str) -> DesiredPod {
        let object = json!({"metadata": {"name": name}, "spec": {
            "nodeName": "n", "containers": [{"name": "app", "image": "i"}]}});
        let pods = path("api/v1", "default", &["pods"]);
        let made = self.api.api.call(Call::post(&pods, object)).await.unwrap();
        let mut pod = kubelet_model::manifest::from_api(made).unwrap();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
        DesiredPod::new(Source::Api, Arc::new(pod)).unwrap()
    }

    async fn object(&self, name: &str) -> Result<Value, ApiError> {
        self.api.api.call(Call::get(&path("api/v1", "default", &["pods", name]))).await
    }

    /// Everybody does what there is to do.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }

    fn writes(&self) -> u32 {
        self.api.writes.swap(0, Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn one_patch_for_each_change() {
    let bench = Bench::new().await;
    let pod = bench.pod("a").await;
    for ready in ["False", "True"] {
        bench.statuses.set(&pod, running(ready));
        bench.settle().await;
        assert_eq!(bench.writes(), 1, "{ready}");
        let object = bench.object("a").await.unwrap();
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|c| c["type"] == "Ready").unwrap();
        assert_eq!(found["status"], ready);
    }
    bench.statuses.set(&pod, running("True"));
    bench.settle().await;
    assert_eq!(bench.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_once_it_can() {
    for code in [500, 429, 403] {
        let bench = Bench::new().await;
        let pod = bench.pod("a").await;
        bench.api.failing.store(code, Ordering::SeqCst);
        bench.statuses.set(&pod, running("False"));
        bench.settle().await;
        bench.statuses.set(&pod, running("True"));
        bench.settle().await;
        let tries = bench.writes();
        assert!((8..=30).contains(&tries), "{code}: {tries} in two minutes");
        bench.api.failing.store(0, Ordering::SeqCst);
        bench.settle().await;
        assert_eq!(bench.writes(), 1, "{code}");
        assert_eq!(bench.object("a").await.unwrap()["status"]["phase"], "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_once_its_end_is_written_and_nothing_is_left() {
    let bench = Bench::new().await;
    let pod = bench.pod("a").await;
    bench.statuses.set(&pod, running("True"));
    bench.settle().await;
    let place = path("api/v1", "default", &["pods", "a"]);
    let options = json!({"gracePeriodSeconds": 30});
    bench.api.api.call(Call::delete(&place, options)).await.unwrap();
    let ended = status(json!({"phase": "Succeeded"}));
    bench.statuses.set(&pod, ended);
    bench.settle().await;
    assert_eq!(bench.object("a").await.unwrap()["status"]["phase"], "Succeeded");
    bench.statuses.finish(pod.uid());
    bench.settle().await;
    assert!(bench.object("a").await.unwrap_err().is_not_found());
}

/// Both lists of addresses are merged by the address.
#[test]
fn addresses_of_the_node_that_go_are_taken_away() {
    let both = status(json!({"hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}));
    let one = status(json!({"hostIPs": [{"ip": "10.0.0.1"}]}));
    let change = patch("u", &both, &one).unwrap();
    expect![[r#"{"$setElementOrder/hostIPs":[{"ip":"10.0.0.1"}],"hostIPs":[{"$patch":"delete","ip":"fd00::1"}]}"#]]
        .assert_eq(&change["status"].to_string());
}

#[tokio::test]
async fn pods_that_are_forgotten_are_told_of() {
    let bench = Bench::new().await;
    bench.statuses.set(&bench.pod("a").await, running("True"));
    let news = bench.statuses.follow();
    bench.statuses.retain(|_| true);
    assert!(!news.has_changed().unwrap());
    bench.statuses.retain(|_| false);
    assert!(news.has_changed().unwrap());
}

/// A server that drops a field of the status must not keep the pod for ever.
#[test]
fn what_a_server_does_not_keep_does_not_hold_up_the_end() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": []},
        "status": {"phase": "Failed"},
    }))
    .unwrap();
    let copy = ApiCopy::of(&pod).unwrap();
    let own = Arc::new(status(json!({"phase": "Failed", "hostIP": "10.0.0.1"})));
    let view = PodView { uid: "u".into(), pod: Arc::new(pod), status: own };
    let (now, wall) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let (step, mut looked) = look(&view, true, &copy, None, (now, wall));
    assert!(matches!(step, Some(Step::Patch(_))), "{step:?}");
    looked.succeed(Arc::clone(&view.status), Some(&copy), false);
    let (step, _) = look(&view, true, &copy, Some(looked), (now, wall));
    assert_eq!(step, Some(Step::Delete));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_else_changes_is_put_right() {
    let bench = Bench::new().await;
    let pod = bench.pod("a").await;
    bench.statuses.set(&pod, running("True"));
    bench.settle().await;
    bench.writes();
    let place = path("api/v1", "default", &["pods", "a", "status"]);
    for _ in 0..2 {
        let change = json!({"status": {"phase": "Pending"}});
        let call = Call::patch(&place, Patch::Merge, change);
        bench.api.api.call(call).await.unwrap();
        bench.settle().await;
        assert_eq!(bench.object("a").await.unwrap()["status"]["phase"], "Running");
    }
    assert_eq!(bench.writes(), 2);
}

/// After a restored store the server holds something else than it last told, and only the
/// answer to a patch shows it.
#[tokio::test(start_paused = true)]
async fn a_patch_over_something_unknown_is_followed_by_the_rest() {
    let server = Direct::alone(Arc::new(Timestamp::now), 10_000).unwrap();
    let pods = path("api/v1", "default", &["pods"]);
    let object = json!({"metadata": {"name": "a"}, "spec": {
        "nodeName": "n", "containers": [{"name": "app", "image": "i"}]}});
    let made = server.call(Call::post(&pods, object)).await.unwrap();
    let mut pod = kubelet_model::manifest::from_api(made).unwrap();
    let copies = ApiCopies::default();
    // What klet believes is there: all but the newest condition.
    let believed = Pod { status: Some(running("False")), ..pod.clone() };
    copies.replace(ApiCopy::of(&believed).into_iter());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
    let statuses = Statuses::default();
    statuses.set(&DesiredPod::new(Source::Api, Arc::new(pod)).unwrap(), running("True"));
    let api: Arc<dyn Api> = Arc::new(server);
    let writer = StatusWriter {
        api: Arc::clone(&api),
        statuses,
        copies,
        clock: Arc::new(SystemClock::new()),
        jitter: Jitter::seeded(1),
    };
    let tasks = Tasks::default();
    tasks.spawn(writer.run());
    tokio::time::sleep(Duration::from_secs(1)).await;
    tasks.abort_all();
    let place = path("api/v1", "default", &["pods", "a"]);
    let found = api.call(Call::get(&place)).await.unwrap();
    assert_eq!(found["status"]["phase"], "Running");
    assert_eq!(found["status"]["containerStatuses"][0]["name"], "app");
}

#[test]
fn only_what_was_not_sent_goes_beyond_it() {
    let change = |status: Value| json!({"status": status});
    let condition =
        |name: &str| json!({"conditions": [{"type": name}], "$setElementOrder/conditions": []});
    let table = [
        (json!({"phase": "Running"}), json!({"phase": "Running"}), false),
        (json!({"phase": "Running"}), json!({"hostIP": "10.0.0.1"}), true),
        (condition("Ready"), condition("Ready"), false),
        (condition("Ready"), condition("Initialized"), true),
        (condition("Ready"), json!({"phase": "Running"}), true),
    ];
    for (after, sent, beyond) in table {
        let (after, sent) = (change(after), change(sent));
        assert_eq!(merge::goes_beyond(&after, &sent), beyond, "{after} after {sent}");
    }
}
