//! What the PLEG makes of events: each is a reason to look. One that says how a
//! container ended is believed until the runtime's records say so too.

use std::sync::Arc;
use std::time::Duration;

use cri::{RuntimeEvent, RuntimeEventKind, v1};
use kubelet_model::{ContainerId, PodUid};
use tokio::time::Instant;

use super::evented::Signal;
use super::parse;
use super::relist::{Announced, RELIST_ENGINE, Relister};

/// How long our own call may take to tell us a container's id before the
/// container counts as somebody's surprise.
const STRANGER_DELAY: Duration = Duration::from_secs(10);
/// Ids waiting to be identified, or exits to show; beyond this a full listing is cheaper.
const STRANGERS_MAX: usize = 4096;

impl Relister {
    pub(super) fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Event(event) => self.on_event(event),
            Signal::Connected => {
                tracing::info!("following the runtime's events");
                self.events_lost = false;
                self.list_now();
            }
            Signal::Lost(error) => {
                let why = error.map_or("the runtime closed it".to_owned(), |e| e.to_string());
                if !std::mem::replace(&mut self.events_lost, true) {
                    tracing::warn!(why, "event stream lost; listing every second until it is back");
                }
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
        let owner = self.all.owner(&id);
        match event.kind {
            RuntimeEventKind::Stopped if self.exits.len() < STRANGERS_MAX => {
                let told = event.pod_uid.clone().filter(|uid| parse::is_plain(uid));
                let pod = owner.clone().or(told.map(PodUid::new));
                let announced = Announced { pod, tries: 0, exit: event.exit };
                self.exits.insert(id.clone(), announced);
            }
            RuntimeEventKind::Deleted => {
                self.exits.remove(&id);
            }
            _ => {}
        }
        let Some(uid) = owner else {
            return self.on_stranger(id, event.pod_uid, event.kind);
        };
        if ended && self.all.touch(&uid) {
            self.inspect(uid, Duration::ZERO);
        }
    }

    /// An id nobody knows: mostly one of our own calls that has not returned yet.
    fn on_stranger(&mut self, id: ContainerId, pod_uid: Option<String>, kind: RuntimeEventKind) {
        if let Some(uid) = pod_uid.filter(|uid| parse::is_plain(uid)).map(PodUid::new) {
            if self.all.touch(&uid) {
                self.inspect(uid, Duration::ZERO);
            }
        } else if kind == RuntimeEventKind::Deleted {
            self.strangers.remove(&id);
        } else if self.strangers.len() < STRANGERS_MAX {
            self.strangers.entry(id).or_insert(Instant::now() + STRANGER_DELAY);
        } else {
            self.strangers.clear();
            self.exits.clear();
            self.list_now();
        }
    }

    /// Asks whose they are, unless they became known meanwhile.
    pub(super) fn identify_strangers(&mut self) {
        let now = Instant::now();
        let due: Vec<_> =
            self.strangers.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.strangers.remove(&id);
            // By now its exit shows, or it is not a container at all.
            self.exits.remove(&id);
            if self.all.owner(&id).is_none() {
                let runtime = Arc::clone(&self.ports.runtime);
                self.identifications.push(Box::pin(identify(runtime, id)));
            }
        }
    }

    pub(super) fn identified(&mut self, owner: Option<PodUid>) {
        if let Some(uid) = owner.filter(|uid| self.all.touch(uid)) {
            self.inspect(uid, Duration::ZERO);
        }
    }
}

/// The pod that an id belongs to, by asking the runtime for that id alone. The
/// next full listing is a net for questions that fail.
async fn identify(runtime: Arc<dyn cri::Runtime>, id: ContainerId) -> Option<PodUid> {
    let filter = v1::ContainerFilter { id: id.to_string(), ..Default::default() };
    let containers = runtime.list_containers(Some(filter)).await.ok()?;
    if let Some(uid) = containers.iter().find_map(|c| parse::owner(&c.labels)) {
        return Some(uid);
    }
    let filter = v1::PodSandboxFilter { id: id.to_string(), ..Default::default() };
    let sandboxes = runtime.list_pod_sandbox(Some(filter)).await.ok()?;
    sandboxes.iter().find_map(|s| parse::owner(&s.labels))
}
