//! Shutdowns of a machine whose login manager and whose pods do as the test says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use expect_test::expect;
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{DesiredPod, Source};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::plan::drop_in;
use super::*;
use crate::events::Recorder;
use crate::pod_workers::KillStage;
use crate::ports::{Inhibitor, LoginError, LoginSession};
use crate::runtime_manager::testing::fake::FakeRuntime;

fn pod(name: &str, priority: Option<i32>, grace: i64) -> DesiredPod {
    let object: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [], "priority": priority, "terminationGracePeriodSeconds": grace},
    }))
    .unwrap();
    DesiredPod::new(Source::Api, Arc::new(object)).unwrap()
}

const CRITICAL: i32 = 2_000_000_000;

#[test]
fn groups_by_priority() {
    let plan = |groups: &[(i32, i64)]| ShutdownPlan::by_priority(groups).unwrap();
    let simple = ShutdownPlan::of_periods(Duration::from_secs(30), Duration::from_secs(10));
    assert_eq!(simple, Some(plan(&[(CRITICAL, 10), (0, 20)])));
    assert_eq!(ShutdownPlan::of_periods(Duration::ZERO, Duration::ZERO), None);
    assert_eq!(ShutdownPlan::by_priority(&[]), None);
    assert_eq!(plan(&[(0, 20), (5, 10)]).total(), Duration::from_secs(30));

    let pods = [
        pod("none", None, 5),
        pod("low", Some(-7), 60),
        pod("usual", Some(0), 60),
        pod("upper", Some(999), 60),
        pod("high", Some(1000), 60),
        pod("critical", Some(CRITICAL), 3),
        pod("most", Some(i32::MAX), 60),
    ];
    let all: Vec<&DesiredPod> = pods.iter().collect();
    let shown = |plan: &ShutdownPlan| {
        let line = |doomed: &plan::Doomed<'_>| {
            let one = |(pod, grace): &(&DesiredPod, kubelet_model::Grace)| {
                format!("{}:{}", pod.name(), grace.duration().as_secs())
            };
            let pods: Vec<String> = doomed.pods.iter().map(one).collect();
            format!("{}s {}", doomed.period.as_secs(), pods.join(" "))
        };
        plan.doomed(&all).iter().map(line).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        20s none:5 low:20 usual:20 upper:20
        30s high:30
        10s critical:3 most:10"#]]
    .assert_eq(&shown(&plan(&[(CRITICAL, 10), (0, 20), (1000, 30)])));
    // Below the lowest is the lowest, and a group without pods takes no time.
    expect![[r#"
        7s none:5 low:7 usual:7 upper:7 high:7
        1s critical:1 most:1"#]]
    .assert_eq(&shown(&plan(&[(2_000, 1), (1, 7), (1_500, 99)])));
}

/// What the login manager does, and what was done to it.
#[derive(Default)]
struct Manager {
    delay: Duration,
    /// What its configuration says.
    configured: Option<Duration>,
    locks: usize,
    reloads: usize,
    signals: Option<mpsc::UnboundedSender<bool>>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Manager>>);

struct Lock(Fake);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().locks -= 1;
    }
}

struct Talk(Fake, mpsc::UnboundedReceiver<bool>);

#[async_trait]
impl LoginManager for Fake {
    async fn open(&self) -> Result<Box<dyn LoginSession>, LoginError> {
        let (signals, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap().signals = Some(signals);
        Ok(Box::new(Talk(self.clone(), receiver)))
    }
}

#[async_trait]
impl LoginSession for Talk {
    async fn inhibit_delay(&mut self) -> Result<Duration, LoginError> {
        Ok(self.0.0.lock().unwrap().delay)
    }
    async fn reload(&mut self) -> Result<(), LoginError> {
        let mut manager = self.0.0.lock().unwrap();
        manager.reloads += 1;
        manager.delay = manager.configured.unwrap_or(manager.delay);
        Ok(())
    }
    async fn inhibit(&mut self) -> Result<Inhibitor, LoginError> {
        self.0.0.lock().unwrap().locks += 1;
        Ok(Box::new(Lock(self.0.clone())))
    }
    async fn next(&mut self) -> Result<bool, LoginError> {
        let gone = || LoginError::Unreachable("hung up".to_owned());
        self.1.recv().await.ok_or_else(gone)
    }
}

/// A machine with pods that end as long after they are told to as the table says.
struct Machine {
    login: Fake,
    reader: ShutdownReader,
    recorder: Recorder,
    /// `name@second grace`, in the order in which pods were told to end.
    ended: Arc<Mutex<Vec<String>>>,
    metrics: ShutdownMetrics,
    dir: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Machine {
    #[allow(clippy::disallowed_methods)] // the test's own tasks
    fn new(plan: ShutdownPlan, pods: &[(DesiredPod, u64)], login: &Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports = Ports::around(Arc::new(FakeRuntime::default()));
        let recorder = Recorder::new(Arc::clone(&ports.clock));
        let all: Vec<&DesiredPod> = pods.iter().map(|(pod, _)| pod).collect();
        let (keep, desired) = PodSetReader::for_test(&all);
        let (killer, mut commands) = PodKiller::new(recorder.clone());
        let takes: BTreeMap<String, u64> =
            pods.iter().map(|(pod, takes)| (pod.uid().to_string(), *takes)).collect();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (list, began) = (Arc::clone(&ended), tokio::time::Instant::now());
        tokio::spawn(async move {
            let _keep = keep;
            while let Some(command) = commands.recv().await {
                assert_eq!(command.kill.reason, "Terminated");
                assert_eq!(command.kill.disruption.as_ref(), Some(&command.kill.message));
                let grace = command.kill.grace.unwrap().duration().as_secs();
                let line = format!("{}@{} {grace}", command.uid, began.elapsed().as_secs());
                list.lock().unwrap().push(line);
                let takes = takes[command.uid.as_str()];
                tokio::spawn(async move {
                    sleep(Duration::from_secs(takes)).await;
                    command.stage.send_replace(KillStage::CleanedUp);
                });
            }
        });
        let (flag, reader) = ShutdownFlag::new();
        let metrics = ShutdownMetrics::default();
        let parts = ShutdownParts {
            plan,
            login: Arc::new(login.clone()),
            desired,
            statuses: Statuses::default(),
            killer,
            events: NodeEvents::new(recorder.clone(), "n"),
            flag,
            metrics: metrics.clone(),
            root_dir: dir.path().to_owned(),
        };
        let watch = watch(&ports, parts, dir.path().join("logind.conf.d"));
        let task = tokio::spawn(watch.run());
        let login = login.clone();
        Self { login, reader, recorder, ended, metrics, dir, task }
    }

    fn signal(&self, goes: bool) {
        self.login.0.lock().unwrap().signals.as_ref().unwrap().send(goes).unwrap();
    }

    fn locks(&self) -> usize {
        self.login.0.lock().unwrap().locks
    }

    fn ended(&self) -> String {
        self.ended.lock().unwrap().join(", ")
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

async fn secs(seconds: u64) {
    sleep(Duration::from_millis(seconds * 1000 + 50)).await;
}

fn patient() -> Fake {
    let fake = Fake::default();
    fake.0.lock().unwrap().delay = Duration::from_secs(600);
    fake
}

fn two_groups() -> ShutdownPlan {
    ShutdownPlan::by_priority(&[(0, 20), (CRITICAL, 10)]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn pods_end_in_order_and_then_the_machine_may_go() {
    let pods = [(pod("a", None, 30), 5), (pod("b", None, 3), 2), (pod("c", Some(CRITICAL), 60), 4)];
    let machine = Machine::new(two_groups(), &pods, &patient());
    secs(0).await;
    assert_eq!((machine.locks(), machine.reader.is_shutting_down()), (1, false));
    machine.signal(true);
    secs(0).await;
    assert!(machine.reader.is_shutting_down());
    assert_eq!(machine.ended(), "a@0 20, b@0 3");
    assert!(
        machine
            .file("graceful_node_shutdown_state")
            .contains("\"endTime\":\"0001-01-01T00:00:00Z\"")
    );
    secs(6).await;
    assert_eq!(machine.ended(), "a@0 20, b@0 3, c@5 10", "once the first group has ended");
    assert_eq!(machine.locks(), 1, "the machine waits");
    secs(5).await;
    assert_eq!(machine.locks(), 0, "the machine may go");
    let told = "Normal Shutdown: Shutdown manager detected shutdown event";
    assert_eq!(machine.recorder.node_lines(), [told]);
    assert!(!machine.file("graceful_node_shutdown_state").contains("0001-01-01"));
    let mut registry = prometheus_client::registry::Registry::default();
    machine.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<i64>().unwrap()
    };
    assert!(value("kubelet_graceful_shutdown_start_time_seconds ") > 0, "{text}");
    assert!(value("kubelet_graceful_shutdown_end_time_seconds ") > 0, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_takes_no_more_than_its_groups_time() {
    let pods = [(pod("a", None, 300), 1_000), (pod("c", Some(CRITICAL), 60), 1_000)];
    let machine = Machine::new(two_groups(), &pods, &patient());
    secs(0).await;
    machine.signal(true);
    secs(21).await;
    assert_eq!((machine.ended().as_str(), machine.locks()), ("a@0 20, c@20 10", 1));
    secs(11).await;
    assert_eq!(machine.locks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_spares_who_is_left() {
    let pods = [(pod("a", None, 300), 1_000), (pod("c", Some(CRITICAL), 60), 1)];
    let machine = Machine::new(two_groups(), &pods, &patient());
    secs(0).await;
    machine.signal(true);
    secs(2).await;
    machine.signal(false);
    secs(60).await;
    assert_eq!((machine.ended().as_str(), machine.locks()), ("a@0 20", 1));
    assert!(!machine.reader.is_shutting_down());
    let lines = machine.recorder.node_lines();
    assert_eq!(lines[1], "Normal Shutdown: Shutdown manager detected shutdown cancellation");
    // The next one is heard of, too.
    machine.signal(true);
    secs(40).await;
    assert_eq!(machine.locks(), 0);
    assert!(machine.ended().ends_with("c@82 10"), "{}", machine.ended());
    // And so is one that is called off after all pods have ended.
    machine.signal(false);
    secs(1).await;
    assert_eq!((machine.locks(), machine.reader.is_shutting_down()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_goes_first_changes_nothing() {
    let pods = [(pod("a", None, 30), 5), (pod("c", Some(CRITICAL), 60), 4)];
    let machine = Machine::new(two_groups(), &pods, &patient());
    secs(0).await;
    machine.signal(true);
    secs(1).await;
    machine.login.0.lock().unwrap().signals = None;
    secs(8).await;
    assert_eq!(machine.ended(), "a@0 20, c@5 10");
    secs(60).await;
    assert_eq!(machine.locks(), 1, "on a new conversation a new lock is taken");
}

#[tokio::test(start_paused = true)]
async fn a_logind_that_does_not_wait_long_enough_is_told_to() {
    let login = Fake::default();
    login.0.lock().unwrap().configured = Some(Duration::from_secs(30));
    let machine = Machine::new(two_groups(), &[], &login);
    secs(2).await;
    let file = machine.file("logind.conf.d/99-kubelet.conf");
    assert_eq!(file, drop_in(Duration::from_secs(30)));
    assert!(file.contains("[Login]\nInhibitDelayMaxSec=30\n"), "{file}");
    assert_eq!((machine.locks(), login.0.lock().unwrap().reloads), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_listen_is_told_again_later() {
    let login = Fake::default();
    let machine = Machine::new(two_groups(), &[], &login);
    secs(4).await;
    assert_eq!((machine.locks(), login.0.lock().unwrap().reloads), (0, 1));
    login.0.lock().unwrap().configured = Some(Duration::from_secs(30));
    secs(5).await;
    assert_eq!((machine.locks(), login.0.lock().unwrap().reloads), (1, 2));
}

#[test]
fn the_last_shutdown_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let shown = |metrics: &ShutdownMetrics| {
        let mut registry = prometheus_client::registry::Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let values = text.lines().filter(|line| !line.starts_with('#'));
        values.filter_map(|line| line.split(' ').nth(1)).collect::<Vec<_>>().join(" ")
    };
    let load = |dir: &Path| {
        let metrics = ShutdownMetrics::default();
        Record::new(Arc::new(crate::ports::RealFs), dir, metrics.clone()).load();
        shown(&metrics)
    };
    assert_eq!(load(dir.path()), "0 0");
    let file = dir.path().join("graceful_node_shutdown_state");
    // As upstream writes it.
    let text = r#"{"startTime":"2026-01-01T00:00:01.5Z","endTime":"0001-01-01T00:00:00Z"}"#;
    std::fs::write(&file, text).unwrap();
    assert_eq!(load(dir.path()), "1767225601 0");
    std::fs::write(&file, "{\"startTi").unwrap();
    assert_eq!(load(dir.path()), "0 0");
}
