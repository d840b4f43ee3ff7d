//! The loop that keeps observations true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cri::{CallError, ExitNote, v1};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kubelet_model::{ContainerId, ContainerState, FullName, Mono, PodUid};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::evented::Events;
use super::inspect::{Look, inspect};
use super::runtime_state::RuntimeStateWriter;
use super::{Observations, diff, parse};
use crate::metrics::Metrics;
use crate::ports::Ports;

/// Between listings where the runtime does not stream events.
pub(super) const RELIST_ENGINE: Duration = Duration::from_secs(1);
/// Between listings where it does: only a net under the stream.
const RELIST_NET: Duration = Duration::from_secs(60);
/// Between listings while the runtime does not answer.
const RELIST_DOWN_MAX: Duration = Duration::from_secs(5);
/// Pause between failed inspections of one pod.
const INSPECT_RETRY: Duration = Duration::from_secs(1);
/// An exit event can overtake the runtime's own records by a little.
const EXIT_LAG_MIN: Duration = Duration::from_millis(2);
const EXIT_LAG_MAX: Duration = Duration::from_secs(1);
const EXIT_LAG_TRIES: u32 = 12;
/// One that is known already may take its time to be recorded.
const RECORD_LAG_MIN: Duration = Duration::from_millis(50);

type Inspection = Result<Look, CallError>;
type Listing = Result<(Vec<v1::PodSandbox>, Vec<v1::Container>), CallError>;
pub(super) type Health = Result<(Option<String>, v1::StatusResponse), CallError>;

/// An exit that an event told of and that no record has shown yet.
#[derive(Debug, Clone)]
pub(super) struct Announced {
    /// Whose it is, if that was known when it was told.
    pub(super) pod: Option<PodUid>,
    /// Looks for its record so far.
    pub(super) tries: u32,
    /// What the event said about it.
    pub(super) exit: Option<ExitNote>,
}

/// Owns every piece of work under way; nothing here blocks anything else.
pub(super) struct Relister {
    pub(super) ports: Ports,
    pub(super) all: Observations,
    pub(super) requests: mpsc::Receiver<PodUid>,
    pub(super) state: RuntimeStateWriter,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Events,
    pub(super) listing: Option<(Mono, BoxFuture<'static, Listing>)>,
    pub(super) next_listing: Instant,
    pub(super) failed_listings: u32,
    /// Another listing was asked for while one was under way.
    pub(super) list_again: bool,
    pub(super) events_lost: bool,
    /// Why the last listing failed, and why the runtime calls itself unready.
    pub(super) listing_problem: Option<String>,
    pub(super) health_problem: Option<String>,
    pub(super) health: Option<BoxFuture<'static, Health>>,
    pub(super) next_health: Instant,
    pub(super) inspections: FuturesUnordered<BoxFuture<'static, (PodUid, Inspection)>>,
    /// Pods under inspection; true if another look was asked for meanwhile.
    pub(super) inspecting: BTreeMap<PodUid, bool>,
    /// Exits announced but not yet recorded.
    pub(super) exits: BTreeMap<ContainerId, Announced>,
    pub(super) strangers: BTreeMap<ContainerId, Instant>,
    /// Questions under way: whose is this id?
    pub(super) identifications: FuturesUnordered<BoxFuture<'static, Option<PodUid>>>,
}

impl Relister {
    pub(super) fn new(
        ports: Ports,
        all: Observations,
        requests: mpsc::Receiver<PodUid>,
        state: RuntimeStateWriter,
        metrics: Arc<Metrics>,
        follow_events: bool,
    ) -> Self {
        let now = Instant::now();
        Self {
            events: Events::new(Arc::clone(&ports.runtime), follow_events),
            ports,
            all,
            requests,
            state,
            metrics,
            listing: None,
            next_listing: now,
            failed_listings: 0,
            list_again: false,
            events_lost: false,
            listing_problem: None,
            health_problem: Some("the runtime has not answered yet".to_owned()),
            health: None,
            next_health: now,
            inspections: FuturesUnordered::new(),
            inspecting: BTreeMap::new(),
            exits: BTreeMap::new(),
            strangers: BTreeMap::new(),
            identifications: FuturesUnordered::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let next_stranger = self.strangers.values().min().copied();
            tokio::select! { biased;
                Some((uid, pod)) = self.inspections.next() => self.inspected(uid, pod),
                Some(owner) = self.identifications.next() => self.identified(owner),
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
                self.state.heard(|contact| contact.listed = Some(began));
                self.compare(began, &sandboxes, &containers);
            }
            Err(error) => {
                self.failed_listings += 1;
                self.listing_problem = Some(error.to_string());
            }
        }
        self.publish_state(|_| {});
        self.next_listing = Instant::now() + self.listing_period();
        if std::mem::take(&mut self.list_again) {
            self.next_listing = Instant::now();
        }
    }

    /// Asks for a listing that begins after this call.
    pub(super) fn list_now(&mut self) {
        self.list_again = self.listing.is_some();
        self.next_listing = Instant::now();
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
        // What the listing does not have is gone, should its last event be lost.
        let ids: BTreeSet<&str> = containers.iter().map(|c| c.id.as_str()).collect();
        let strangers = &self.strangers;
        self.exits.retain(|id, _| ids.contains(id.as_str()) || strangers.contains_key(id));
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
    }

    /// Starts a look at one pod, or another one after that under way.
    pub(super) fn inspect(&mut self, uid: PodUid, delay: Duration) {
        if let Some(again) = self.inspecting.get_mut(&uid) {
            *again = true;
            return;
        }
        self.inspecting.insert(uid.clone(), false);
        let (ports, all) = (self.ports.clone(), self.all.clone());
        let told = self.told_exits(&uid);
        self.inspections.push(Box::pin(async move {
            sleep(delay).await;
            let began = ports.clock.mono();
            let known = all.details(&uid);
            let look = inspect(&*ports.runtime, &*ports.fs, &uid, known, &told, began).await;
            (uid, look)
        }));
    }

    /// What events said of exits of this pod, or of nobody knows which.
    fn told_exits(&self, uid: &PodUid) -> BTreeMap<ContainerId, ExitNote> {
        let exits = self.exits.iter();
        let own = exits.filter(|(_, exit)| exit.pod.as_ref().is_none_or(|pod| pod == uid));
        own.filter_map(|(id, exit)| Some((id.clone(), exit.exit?))).collect()
    }

    fn inspected(&mut self, uid: PodUid, look: Inspection) {
        let again = self.inspecting.remove(&uid).unwrap_or(false);
        let look = match look {
            Ok(look) => look,
            Err(error) => {
                self.all.set_problem(&uid, error.to_string());
                let delay = self.ports.jitter.spread(INSPECT_RETRY);
                return self.inspect(uid, delay);
            }
        };
        let lag = self.lagging_exit(&look);
        self.all.publish(look.pod);
        match lag {
            _ if again => self.inspect(uid, Duration::ZERO),
            Some(delay) => self.inspect(uid, delay),
            None => {}
        }
    }

    /// If an announced exit is not recorded yet, how long to wait before looking again.
    fn lagging_exit(&mut self, look: &Look) -> Option<Duration> {
        let containers = look.pod.containers.iter().map(|container| {
            let runs = matches!(container.state, ContainerState::Running { .. });
            (container.id.clone(), runs, look.ahead.contains(&container.id))
        });
        let sandboxes = look.pod.sandboxes.iter();
        let sandboxes = sandboxes.map(|s| (ContainerId::new(s.id.as_str()), s.ready, false));
        let waits = containers.chain(sandboxes).filter_map(|(id, runs, ahead)| {
            let announced = self.exits.get_mut(&id)?;
            announced.tries += 1;
            let tries = announced.tries;
            if tries > EXIT_LAG_TRIES && ahead {
                // The process is gone, whatever the record says; no need to hurry.
                return None;
            }
            if !(ahead || runs) || tries > EXIT_LAG_TRIES {
                self.exits.remove(&id);
                return None;
            }
            let shortest = if ahead { RECORD_LAG_MIN } else { EXIT_LAG_MIN };
            Some((EXIT_LAG_MIN * 2u32.saturating_pow(tries)).clamp(shortest, EXIT_LAG_MAX))
        });
        waits.min()
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
