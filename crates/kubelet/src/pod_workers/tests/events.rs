//! Events about a whole pod, and what `klet why` is told meanwhile, from a worker
//! that is given its facts by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{
    Action, ContainerId, ContainerName, DesiredPod, EventType, Grace, Mono, ObservedPod, SandboxId,
    Source, Steps, StopReason, WaitReason, Waiting,
};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc, watch};

use super::super::Shared;
use super::super::events::resize_news;
use super::super::worker::{Decision, Intent, Order, Worker};
use crate::allocation::{Allocations, News, PendingReason, Refusal, Resize};
use crate::events::Recorder;
use crate::image_manager::Images;
use crate::metrics::Metrics;
use crate::object_cache::Objects;
use crate::pleg;
use crate::pod_sources::PodSetReader;
use crate::ports::Ports;
use crate::probe_manager::Probes;
use crate::progress::{Obstacle, ProgressBoard};
use crate::runtime_manager::ActionError;
use crate::runtime_manager::testing::fake::FakeRuntime;
use crate::settings::Settings;
use crate::status_manager::{Stage, Statuses};
use crate::volume_manager::Volumes;

fn pod(spec: serde_json::Value) -> DesiredPod {
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web-n", "namespace": "ns", "uid": "u1", "generation": 2}, "spec": spec,
    }))
    .unwrap();
    pod.spec.as_mut().unwrap().containers =
        vec![serde_json::from_value(json!({"name": "app"})).unwrap()];
    DesiredPod::new(Source::File, Arc::new(pod)).unwrap()
}

struct Bench {
    worker: Worker,
    order: Order,
    recorder: Recorder,
    board: ProgressBoard,
    _dir: tempfile::TempDir,
}

fn bench(pod: DesiredPod) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let ports = Ports::around(Arc::new(FakeRuntime::default()));
    let settings = Settings { root_dir: dir.path().to_owned(), ..Settings::for_node("n") };
    let metrics = Arc::new(Metrics::new());
    let (observations, runtime) = pleg::start(&ports, &metrics, false);
    let recorder = Recorder::new(Arc::clone(&ports.clock));
    let (statuses, board) = (Statuses::default(), ProgressBoard::default());
    let images = Images::start(&settings, &ports, &recorder, &metrics.images);
    let settings = Arc::new(settings);
    let (_, desired) = PodSetReader::for_test(&[&pod]);
    let shared = Shared {
        observations,
        runtime,
        probes: Probes::new(&ports, statuses.clone(), recorder.clone()),
        statuses,
        metrics: Arc::clone(&metrics),
        recorder: recorder.clone(),
        progress: board.clone(),
        pulse: Default::default(),
        images,
        admission: crate::admission::inputs(false, crate::node_shutdown::ShutdownFlag::new().1).1,
        allocations: Allocations::load(&ports.fs, dir.path(), metrics.resizes.clone()),
        volumes: Volumes::new(
            &ports,
            &settings,
            &recorder,
            &board,
            &Objects::default(),
            &desired,
            &crate::plugin_manager::Drivers::default(),
        ),
        objects: Objects::default(),
        lists: Default::default(),
        lanes: Arc::new(Semaphore::new(1)),
        settings,
        ports,
    };
    let order = Order {
        pod: Some(pod.clone()),
        intent: Intent::Run,
        resize: Resize::default(),
        kill: None,
        rejected: None,
    };
    let (_, orders) = watch::channel(order.clone());
    let (reports, _) = mpsc::channel(1);
    let mut worker =
        Worker::new(shared, pod.uid().clone(), pod.full_name().clone(), orders, reports);
    worker.runtime.problem = None;
    Bench { worker, order, recorder, board, _dir: dir }
}

impl Bench {
    fn told(&self) -> Vec<(EventType, &'static str, String)> {
        let events = self.recorder.all().into_iter();
        events.map(|event| (event.kind, event.reason, event.message)).collect()
    }

    fn obstacle(&self, decision: &Decision) -> Obstacle {
        self.worker.show_idle(&self.order, decision, None);
        self.board.get(&self.worker.uid).unwrap().waiting.unwrap().what
    }
}

fn decision(steps: Steps, waiting: &[(&str, WaitReason)]) -> Decision {
    let waits = |(name, reason): &(&str, WaitReason)| {
        (ContainerName::new(*name), Waiting { reason: *reason, message: String::new() })
    };
    let waiting: BTreeMap<_, _> = waiting.iter().map(waits).collect();
    Decision { steps, waiting, wake_at: None, stage: Stage::Live, finished: false }
}

fn warning(reason: &'static str, text: &str) -> (EventType, &'static str, String) {
    (EventType::Warning, reason, text.to_owned())
}

#[tokio::test]
async fn a_missing_network_is_told_to_those_that_need_it() {
    let sandbox = || decision(vec![vec![Action::CreateSandbox { attempt: 0 }]], &[]);
    let mut own = bench(pod(json!({})));
    own.worker.runtime.network_problem = Some("cni plugin not initialized".to_owned());
    own.worker.tell_of_wait(&own.order, &sandbox());
    let text = "network is not ready: cni plugin not initialized";
    assert_eq!(own.told(), [warning("NetworkNotReady", text)]);
    let network = Obstacle::Network("cni plugin not initialized".to_owned());
    assert_eq!(own.obstacle(&sandbox()), network);
    // What has its sandbox already waits for something else.
    let start = Action::StartContainer { name: ContainerName::new("app"), restart_count: None };
    assert_eq!(own.obstacle(&decision(vec![vec![start]], &[])), Obstacle::Retry);

    let mut hosts = bench(pod(json!({"hostNetwork": true})));
    hosts.worker.runtime.network_problem = Some("cni plugin not initialized".to_owned());
    hosts.worker.tell_of_wait(&hosts.order, &sandbox());
    assert_eq!(hosts.told(), []);
    assert_eq!(hosts.obstacle(&sandbox()), Obstacle::Retry);
}

#[tokio::test]
async fn a_pod_that_cannot_be_looked_at() {
    let bench = bench(pod(json!({})));
    bench.worker.tell_of_blindness(&bench.order, "no socket");
    assert_eq!(bench.told(), [warning("FailedSync", "error determining status: no socket")]);
}

#[tokio::test]
async fn a_pod_that_cannot_be_stopped() {
    let bench = bench(pod(json!({})));
    let failure = || ActionError::NotResized { message: "busy".to_owned() };
    let stop = Action::StopContainer {
        id: ContainerId::new("c1"),
        name: ContainerName::new("app"),
        grace: Grace::FLOOR,
        why: StopReason::PodTerminating,
        after: Vec::new(),
    };
    bench.worker.tell_of_failure(&bench.order, &[Action::RemovePodFiles], &failure());
    assert_eq!(bench.told(), [], "only stops are told of");
    bench.worker.tell_of_failure(&bench.order, &[stop], &failure());
    let text = "error killing pod: cannot resize the pod: busy";
    assert_eq!(bench.told(), [warning("FailedKillPod", text)]);
    let sandbox = Action::StopSandbox { id: SandboxId::new("s1") };
    bench.worker.tell_of_failure(&bench.order, &[sandbox], &failure());
    assert_eq!(bench.recorder.all()[0].count, 2);
}

#[tokio::test]
async fn each_rest_after_a_crash_is_told_once() {
    let mut bench = bench(pod(json!({})));
    let crashes = decision(Steps::new(), &[("app", WaitReason::CrashLoopBackOff)]);
    let pulls = decision(Steps::new(), &[("app", WaitReason::ImagePullBackOff)]);
    let order = bench.order.clone();
    for decision in [&pulls, &crashes, &crashes] {
        bench.worker.tell_of_back_off(&order, decision);
    }
    let text = "Back-off restarting failed container app in pod web-n_ns(u1)";
    assert_eq!(bench.told(), [warning("BackOff", text)]);
    assert_eq!(bench.recorder.all()[0].count, 1);
    for decision in [&decision(Steps::new(), &[]), &crashes] {
        bench.worker.tell_of_back_off(&order, decision);
    }
    assert_eq!(bench.recorder.all()[0].count, 2);
}

#[tokio::test]
async fn a_rest_shows_until_the_container_is_started() {
    let mut bench = bench(pod(json!({})));
    let (order, name) = (bench.order.clone(), ContainerName::new("app"));
    let start = || Action::StartContainer { name: name.clone(), restart_count: None };
    let steps: Steps = vec![vec![start()]];
    let seen = ObservedPod::absent(bench.worker.uid.clone(), Mono::default());
    let shown = |bench: &Bench, steps: &Steps| {
        let mut waiting = BTreeMap::new();
        bench.worker.keep_back_offs(&mut waiting, steps, &seen);
        waiting.into_values().map(|waiting| waiting.reason).collect::<Vec<_>>()
    };
    assert_eq!(shown(&bench, &steps), []);
    let crashes = decision(Steps::new(), &[("app", WaitReason::CrashLoopBackOff)]);
    bench.worker.tell_of_back_off(&order, &crashes);
    assert_eq!(shown(&bench, &steps), [WaitReason::CrashLoopBackOff]);
    assert_eq!(shown(&bench, &Steps::new()), [], "it is not to be started");
    bench.worker.learn(&order, &[start()], Vec::new());
    assert_eq!(shown(&bench, &steps), []);
    // The next rest is another one, though nobody saw it run between.
    bench.worker.tell_of_back_off(&order, &crashes);
    assert_eq!(bench.recorder.all()[0].count, 2);
}

#[tokio::test]
async fn it_is_told_since_when_a_container_fails() {
    let mut bench = bench(pod(json!({})));
    let waiting = Waiting { reason: WaitReason::ErrImagePull, message: "no".to_owned() };
    let (name, since) = (ContainerName::new("app"), Mono(Duration::from_secs(3)));
    bench.worker.memory.note_failed_start(&name, waiting, Duration::ZERO, since);
    let start = Action::StartContainer { name: name.clone(), restart_count: None };
    bench.worker.show_doing(&[start]);
    let failing = || bench.board.get(&bench.worker.uid).unwrap().failing;
    assert_eq!(failing(), BTreeMap::from([(name.clone(), since)]));
    bench.worker.memory.note_started(&name);
    bench.worker.show_waiting(Obstacle::Nothing, None);
    assert_eq!(failing(), BTreeMap::new());
}

#[test]
fn resizes_are_told_in_upstreams_words() {
    let sizes = r#"{"containers":[{"name":"app","resources":{}}],"generation":2"#;
    let pending = |reason| News::Pending {
        pod: pod(json!({})),
        refusal: Refusal { reason, message: "no room".to_owned() },
    };
    let started = News::Started { pod: pod(json!({})), deferred_until: None };
    let refused = format!(r#"{sizes},"error":"no room"}}"#);
    for (news, kind, reason, text) in [
        (started, EventType::Normal, "ResizeStarted", format!("Pod resize started: {sizes}}}")),
        (
            pending(PendingReason::Deferred),
            EventType::Warning,
            "ResizeDeferred",
            format!("Pod resize Deferred: {refused}"),
        ),
        (
            pending(PendingReason::Infeasible),
            EventType::Warning,
            "ResizeInfeasible",
            format!("Pod resize Infeasible: {refused}"),
        ),
    ] {
        assert_eq!(resize_news(&news), Some((kind, reason, text)));
    }
}
