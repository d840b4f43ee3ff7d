//! The loop that keeps observations true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cri::{CallError, RuntimeEvent, RuntimeEventKind, v1};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kubelet_model::{ContainerId, ContainerState, FullName, Mono, ObservedPod, PodUid};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::evented::{Events, Signal};
use super::inspect::inspect;
use super::runtime_state::RuntimeStateWriter;
use super::{Observations, RuntimeState, diff, parse};
use crate::metrics::Metrics;
use crate::ports::Ports;

/// Between listings where the runtime does not stream events.
const RELIST_ENGINE: Duration = Duration::from_secs(1);
/// Between listings where it does: only a net under the stream.
const RELIST_NET: Duration = Duration::from_secs(60);
/// Between listings while the runtime does not answer.
const RELIST_DOWN_MAX: Duration = Duration::from_secs(5);
/// How often the runtime is asked whether it and its network are ready.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// Pause between failed inspections of one pod.
const INSPECT_RETRY: Duration = Duration::from_secs(1);
/// How long our own call may take to tell us a container's id before the
/// container counts as somebody's surprise.
const STRANGER_DELAY: Duration = Duration::from_secs(5);
/// Ids waiting to be identified; beyond this a full listing is cheaper.
const STRANGERS_MAX: usize = 256;
/// An exit event can overtake the runtime's own records by a little.
const EXIT_LAG_MIN: Duration = Duration::from_millis(5);
const EXIT_LAG_MAX: Duration = Duration::from_secs(1);
const EXIT_LAG_TRIES: u32 = 12;

type Listing = Result<(Vec<v1::PodSandbox>, Vec<v1::Container>), CallError>;
type Health = Result<(String, v1::StatusResponse), CallError>;

/// Owns every piece of work under way; nothing here blocks anything else.
pub(super) struct Relister {
    ports: Ports,
    all: Observations,
    requests: mpsc::Receiver<PodUid>,
    state: RuntimeStateWriter,
    metrics: Arc<Metrics>,
    events: Events,
    listing: Option<(Mono, BoxFuture<'static, Listing>)>,
    next_listing: Instant,
    failed_listings: u32,
    /// Why the last listing failed, and why the runtime calls itself unready.
    listing_problem: Option<String>,
    health_problem: Option<String>,
    health: Option<BoxFuture<'static, Health>>,
    next_health: Instant,
    inspections: FuturesUnordered<BoxFuture<'static, ObservedPod>>,
    /// Pods under inspection; true if another look was asked for meanwhile.
    inspecting: BTreeMap<PodUid, bool>,
    /// Exits announced but not yet visible, with the tries so far.
    exits: BTreeMap<ContainerId, u32>,
    strangers: BTreeMap<ContainerId, Instant>,
}

impl Relister {
    pub(super) fn new(
        ports: Ports,
        all: Observations,
        requests: mpsc::Receiver<PodUid>,
        state: RuntimeStateWriter,
        metrics: Arc<Metrics>,
    ) -> Self {
        let now = Instant::now();
        Self {
            events: Events::new(Arc::clone(&ports.runtime)),
            ports,
            all,
            requests,
            state,
            metrics,
            listing: None,
            next_listing: now,
            failed_listings: 0,
            listing_problem: None,
            health_problem: Some("the runtime has not answered yet".to_owned()),
            health: None,
            next_health: now,
            inspections: FuturesUnordered::new(),
            inspecting: BTreeMap::new(),
            exits: BTreeMap::new(),
            strangers: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let next_stranger = self.strangers.values().min().copied();
            tokio::select! { biased;
                Some(pod) = self.inspections.next() => self.inspected(pod),
                signal = self.events.next() => self.on_signal(signal),
                Some(uid) = self.requests.recv() => self.inspect(uid, Duration::ZERO),
                listing = finished(&mut self.listing) => self.listed(listing.0, listing.1),
                health = answered(&mut self.health) => self.on_health(health),
                () = sleep_until(self.next_listing), if self.listing.is_none() => self.list(),
                () = sleep_until(self.next_health), if self.health.is_none() => self.ask_health(),
                () = sleep_until(next_stranger.unwrap_or(self.next_listing)), if next_stranger.is_some() => {
                    self.identify_strangers();
                }
            }
        }
    }

    fn list(&mut self) {
        let runtime = Arc::clone(&self.ports.runtime);
        let work = async move {
            futures_util::future::try_join(
                runtime.list_pod_sandbox(None),
                runtime.list_containers(None),
            )
            .await
        };
        self.metrics.relists.inc();
        self.listing = Some((self.ports.clock.mono(), Box::pin(work)));
    }

    fn listed(&mut self, began: Mono, listing: Listing) {
        self.metrics.relist_seconds.observe(self.ports.clock.mono().since(began).as_secs_f64());
        match listing {
            Ok((sandboxes, containers)) => {
                self.failed_listings = 0;
                self.listing_problem = None;
                self.compare(began, &sandboxes, &containers);
            }
            Err(error) => {
                self.failed_listings += 1;
                self.listing_problem = Some(error.to_string());
            }
        }
        self.publish_state(|_| {});
        self.next_listing = Instant::now() + self.listing_period();
    }

    fn listing_period(&self) -> Duration {
        if self.failed_listings > 0 {
            (RELIST_ENGINE * self.failed_listings).min(RELIST_DOWN_MAX)
        } else if self.events.live() {
            RELIST_NET
        } else {
            RELIST_ENGINE
        }
    }

    fn compare(&mut self, began: Mono, sandboxes: &[v1::PodSandbox], containers: &[v1::Container]) {
        let pods = parse::by_pod(sandboxes, containers);
        let (mut present, mut unchanged, mut changed) =
            (BTreeMap::new(), BTreeSet::new(), Vec::new());
        for (uid, listed) in pods {
            let same = self.all.get(&uid).is_some_and(|seen| diff::unchanged(&listed, &seen));
            if same {
                unchanged.insert(uid.clone());
            } else {
                changed.push(uid.clone());
            }
            present.insert(uid, FullName::of(&listed.name.0, &listed.name.1));
        }
        self.all.listed_all(began, &present, &unchanged);
        for uid in changed {
            if self.all.touch(&uid) {
                self.inspect(uid, Duration::ZERO);
            }
        }
        let running =
            containers.iter().filter(|c| c.state() == v1::ContainerState::ContainerRunning);
        self.metrics.running_containers.set(running.count() as i64);
        let ready = sandboxes.iter().filter(|s| parse::is_ready(s));
        self.metrics.running_pods.set(ready.count() as i64);
    }

    /// Starts a look at one pod, or another one after that under way.
    fn inspect(&mut self, uid: PodUid, delay: Duration) {
        if let Some(again) = self.inspecting.get_mut(&uid) {
            *again = true;
            return;
        }
        self.inspecting.insert(uid.clone(), false);
        let (ports, all) = (self.ports.clone(), self.all.clone());
        self.inspections.push(Box::pin(async move {
            sleep(delay).await;
            loop {
                let began = ports.clock.mono();
                match inspect(&*ports.runtime, &uid, all.get(&uid), began).await {
                    Ok(pod) => return pod,
                    Err(error) => {
                        tracing::debug!(pod = %uid, %error, "pod could not be inspected; trying again");
                        sleep(ports.jitter.spread(INSPECT_RETRY)).await;
                    }
                }
            }
        }));
    }

    fn inspected(&mut self, pod: ObservedPod) {
        let uid = pod.uid.clone();
        let again = self.inspecting.remove(&uid).unwrap_or(false);
        let lag = self.lagging_exit(&pod);
        self.all.publish(pod);
        match lag {
            _ if again => self.inspect(uid, Duration::ZERO),
            Some(delay) => self.inspect(uid, delay),
            None => {}
        }
    }

    /// If an announced exit does not show yet, how long to wait before looking again.
    fn lagging_exit(&mut self, pod: &ObservedPod) -> Option<Duration> {
        let mut delay: Option<Duration> = None;
        for container in &pod.containers {
            let Some(tries) = self.exits.get_mut(&container.id) else { continue };
            *tries += 1;
            let lags = matches!(container.state, ContainerState::Running { .. });
            if !lags || *tries > EXIT_LAG_TRIES {
                self.exits.remove(&container.id);
                continue;
            }
            let wait = (EXIT_LAG_MIN * 2u32.saturating_pow(*tries)).min(EXIT_LAG_MAX);
            delay = Some(delay.map_or(wait, |other| other.min(wait)));
        }
        delay
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Event(event) => self.on_event(event),
            Signal::Connected => {
                tracing::info!("following the runtime's events");
                self.next_listing = Instant::now();
            }
            Signal::Lost(error) => {
                let why = error.map_or("the runtime closed it".to_owned(), |e| e.to_string());
                tracing::debug!(why, "event stream lost; listing until it is back");
                self.next_listing = self.next_listing.min(Instant::now() + RELIST_ENGINE);
            }
            Signal::Unsupported => {
                tracing::info!("the runtime streams no events; listing every second");
                self.next_listing = self.next_listing.min(Instant::now() + RELIST_ENGINE);
            }
        }
    }

    fn on_event(&mut self, event: RuntimeEvent) {
        self.metrics.events.inc();
        let id = ContainerId::new(event.container_id);
        let ended = matches!(event.kind, RuntimeEventKind::Stopped | RuntimeEventKind::Deleted);
        let Some(uid) = self.all.owner(&id) else {
            return self.on_stranger(id, event.pod_uid, event.kind);
        };
        if ended {
            if event.kind == RuntimeEventKind::Stopped {
                self.exits.insert(id, 0);
            }
            if self.all.touch(&uid) {
                self.inspect(uid, Duration::ZERO);
            }
        }
    }

    /// An id nobody knows: mostly one of our own calls that has not returned yet.
    fn on_stranger(&mut self, id: ContainerId, pod_uid: Option<String>, kind: RuntimeEventKind) {
        if let Some(uid) = pod_uid.filter(|uid| !uid.is_empty()).map(PodUid::new) {
            if self.all.touch(&uid) {
                self.inspect(uid, Duration::ZERO);
            }
        } else if kind == RuntimeEventKind::Deleted {
            self.strangers.remove(&id);
        } else if self.strangers.len() < STRANGERS_MAX {
            self.strangers.entry(id).or_insert(Instant::now() + STRANGER_DELAY);
        } else {
            self.strangers.clear();
            self.next_listing = Instant::now();
        }
    }

    /// One listing tells whose they are, unless all became known meanwhile.
    fn identify_strangers(&mut self) {
        let now = Instant::now();
        let due: Vec<_> =
            self.strangers.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.strangers.remove(&id);
            if self.all.owner(&id).is_none() {
                self.next_listing = now;
            }
        }
    }

    fn ask_health(&mut self) {
        let runtime = Arc::clone(&self.ports.runtime);
        self.health = Some(Box::pin(async move {
            let (version, status) =
                futures_util::future::try_join(runtime.version(), runtime.status()).await?;
            Ok((version.runtime_name, status))
        }));
    }

    fn on_health(&mut self, health: Health) {
        self.next_health = Instant::now() + STATUS_PERIOD;
        match health {
            Ok((name, status)) => {
                self.health_problem = condition(&status, "RuntimeReady");
                self.publish_state(|state| {
                    state.name = name;
                    state.network_problem = condition(&status, "NetworkReady");
                });
            }
            Err(error) => {
                self.health_problem = Some(error.to_string());
                self.publish_state(|_| {});
            }
        }
    }

    fn publish_state(&self, edit: impl FnOnce(&mut RuntimeState)) {
        let problem = self.listing_problem.clone().or_else(|| self.health_problem.clone());
        self.state.update(|state| {
            edit(state);
            state.problem = problem;
        });
    }
}

/// Why a condition of the runtime does not hold.
fn condition(status: &v1::StatusResponse, name: &str) -> Option<String> {
    let conditions = status.status.as_ref().map_or(&[][..], |s| &s.conditions);
    match conditions.iter().find(|c| c.r#type == name) {
        Some(condition) if condition.status => None,
        Some(condition) => {
            Some(format!("{name} is false: {} {}", condition.reason, condition.message))
        }
        None => Some(format!("the runtime reports no {name} condition")),
    }
}

async fn finished(slot: &mut Option<(Mono, BoxFuture<'static, Listing>)>) -> (Mono, Listing) {
    match slot {
        Some((began, work)) => {
            let (began, listing) = (*began, work.await);
            *slot = None;
            (began, listing)
        }
        None => std::future::pending().await,
    }
}

async fn answered<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    match slot {
        Some(work) => {
            let answer = work.await;
            *slot = None;
            answer
        }
        None => std::future::pending().await,
    }
}
