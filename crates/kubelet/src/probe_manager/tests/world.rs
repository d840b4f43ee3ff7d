//! A node with one pod, whose endpoints answer what a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cri::{ClientConfig, CriClient};
use jiff::Timestamp;
use kubelet_model::{ContainerId, DesiredPod, Mono, PodUid, ProbeKind, Source};
use kubelet_model::{ProbeResult, ProbeResults};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::events::{Event, Recorder};
use crate::ports::{Clock, HttpAnswer, HttpRequest, Ports, ProbeNet};
use crate::probe_manager::Probes;
use crate::status_manager::Statuses;

/// Wall-clock seconds at the start of a test.
const EPOCH: i64 = 1_000_000;

struct PausedClock(Instant);

impl Clock for PausedClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_second(EPOCH).unwrap() + self.mono().0
    }
    fn mono(&self) -> Mono {
        Mono(self.0.elapsed())
    }
}

/// Endpoints: a port that is told to be unwell is; all note when they are asked.
pub(super) struct Net {
    began: Instant,
    pub(super) takes: Mutex<Duration>,
    pub(super) unwell: Mutex<bool>,
    asked: Mutex<Vec<(u16, String, u64)>>,
}

impl Net {
    async fn ask(&self, host: &str, port: u16, timeout: Duration) -> Result<(), String> {
        let at = self.began.elapsed().as_secs();
        self.asked.lock().unwrap().push((port, host.to_owned(), at));
        let takes = *self.takes.lock().unwrap();
        sleep(takes.min(timeout)).await;
        if takes >= timeout {
            return Err("too slow".to_owned());
        }
        if *self.unwell.lock().unwrap() { Err("unwell".to_owned()) } else { Ok(()) }
    }

    /// When a port was asked, in seconds.
    pub(super) fn times(&self, port: u16) -> Vec<u64> {
        self.asked.lock().unwrap().iter().filter(|a| a.0 == port).map(|a| a.2).collect()
    }

    /// Whom the last question went to.
    pub(super) fn last_host(&self) -> String {
        self.asked.lock().unwrap().last().map(|asked| asked.1.clone()).unwrap_or_default()
    }
}

#[async_trait]
impl ProbeNet for Net {
    async fn http(&self, request: &HttpRequest) -> Result<HttpAnswer, String> {
        self.ask(&request.host, request.port, request.timeout).await?;
        let body = b"elsewhere".to_vec();
        Ok(HttpAnswer { status: 302, body, body_error: None, location: None })
    }
    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), String> {
        self.ask(host, port, timeout).await
    }
    async fn grpc(
        &self,
        host: &str,
        port: u16,
        _service: &str,
        timeout: Duration,
    ) -> Result<(), String> {
        self.ask(host, port, timeout).await
    }
}

/// Everything a test needs.
pub(super) struct World {
    pub(super) probes: Probes,
    pub(super) net: Arc<Net>,
    pub(super) pod: DesiredPod,
    pub(super) ports: Ports,
    statuses: Statuses,
    recorder: Recorder,
}

impl World {
    /// A node whose agent started `uptime` ago, and a pod of this spec.
    pub(super) async fn new(uptime: Duration, spec: Value) -> Self {
        let began = Instant::now();
        let net = Arc::new(Net {
            began: began + uptime,
            takes: Mutex::default(),
            unwell: Mutex::default(),
            asked: Mutex::default(),
        });
        let nowhere = ClientConfig {
            runtime_endpoint: "unix:///nonexistent/runtime.sock".to_owned(),
            image_endpoint: None,
            request_timeout: Duration::from_secs(1),
        };
        let ports = Ports {
            probe_net: Arc::clone(&net) as Arc<dyn ProbeNet>,
            clock: Arc::new(PausedClock(began)),
            ..Ports::around(Arc::new(CriClient::new(nowhere).unwrap()))
        };
        let recorder = Recorder::new(Arc::clone(&ports.clock));
        let statuses = Statuses::default();
        let probes = Probes::new(&ports, statuses.clone(), recorder.clone());
        let pod = json!({
            "metadata": {"name": "pod", "namespace": "ns", "uid": "uid"},
            "spec": spec,
        });
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        let pod = DesiredPod::new(Source::File, pod).unwrap();
        sleep(uptime).await;
        Self { probes, net, pod, ports, statuses, recorder }
    }

    pub(super) fn uid(&self) -> &PodUid {
        self.pod.uid()
    }

    /// Publishes a status in which containers run since an hour or so before
    /// the agent's start if `old`, else since its start.
    pub(super) fn run(&self, containers: &[&str], sidecars: &[&str], started: bool, old: bool) {
        let since = EPOCH - if old { 3_600 } else { 0 };
        let since = Timestamp::from_second(since).unwrap();
        let running = |names: &[&str]| -> Vec<Value> {
            let status = |name: &&str| {
                json!({
                    "name": name, "containerID": format!("sim://{name}-1"), "started": started,
                    "state": {"running": {"startedAt": since.to_string()}},
                    "image": "", "imageID": "", "ready": false, "restartCount": 0,
                })
            };
            names.iter().map(status).collect()
        };
        self.publish(json!({
            "phase": "Running", "podIP": "10.0.0.9",
            "containerStatuses": running(containers),
            "initContainerStatuses": running(sidecars),
        }));
    }

    pub(super) fn publish(&self, status: Value) {
        self.statuses.set(&self.pod, serde_json::from_value(status).unwrap());
    }

    pub(super) fn result(&self, container: &str, kind: ProbeKind) -> Option<ProbeResult> {
        self.results().get(&ContainerId::new(format!("{container}-1")), kind)
    }

    pub(super) fn results(&self) -> ProbeResults {
        self.probes.results(self.uid())
    }

    /// Events as `REASON MESSAGE xCOUNT`.
    pub(super) fn events(&self) -> Vec<String> {
        let text = |e: Event| format!("{} {} x{}", e.reason, e.message, e.count);
        self.recorder.all().into_iter().map(text).collect()
    }
}
