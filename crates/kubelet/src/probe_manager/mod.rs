//! Probes: whether containers have started, may be sent traffic, must be restarted.
//!
//! Owns the stored results and one task per probe, which sleeps on a timer and
//! not on a thread. Reads statuses: one status holds the instance, whether it
//! has started and the pod's address, so that they belong together. Writes
//! events. Never restarts anything: the pod's worker reads the results.
//! Upstream: pkg/kubelet/prober, pkg/kubelet/prober/results.

mod ask;
mod metrics;
mod plan;
mod question;
mod table;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use plan::RESTART_GRACE;
pub use table::ProbeWatch;

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Probe};
use kubelet_model::{
    ContainerKind, ContainerName, DesiredPod, Mono, PodUid, ProbeKind, ProbeResults,
};
use tokio::sync::{Notify, oneshot};

use self::metrics::{Snapshot, Whose};
use self::table::{Key, Table};
use self::worker::Worker;
use crate::events::Recorder;
use crate::ports::Ports;
use crate::status_manager::Statuses;

/// Every pod's probes. Cheap to clone.
#[derive(Clone)]
pub struct Probes(Arc<Shared>);

struct Shared {
    ports: Ports,
    statuses: Statuses,
    recorder: Recorder,
    /// When the agent started by the clock that never jumps.
    started: Mono,
    /// The same by the wall clock, as early as it ever seemed: were that clock set
    /// back, containers of this agent would seem to be older than it is.
    agent_started: Mutex<Timestamp>,
    table: Mutex<Table>,
}

impl Shared {
    /// By the wall clock: containers much older were probed by an earlier agent.
    fn agent_started(&self) -> Timestamp {
        let clock = &self.ports.clock;
        let up = SignedDuration::try_from(clock.mono().since(self.started));
        let now = clock.wall();
        let seems = up.ok().and_then(|up| now.checked_sub(up).ok()).unwrap_or(now);
        let mut earliest = self.agent_started.lock().expect("no code panics while holding it");
        *earliest = seems.min(*earliest);
        *earliest
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("probe lock: no code panics while holding it")
    }
}

impl Probes {
    /// No probes yet; the agent counts as started now.
    pub fn new(ports: &Ports, statuses: Statuses, recorder: Recorder) -> Self {
        Self(Arc::new(Shared {
            started: ports.clock.mono(),
            agent_started: Mutex::new(ports.clock.wall()),
            ports: ports.clone(),
            statuses,
            recorder,
            table: Mutex::default(),
        }))
    }

    /// When the agent started, by the wall clock. A container that started more
    /// than ten seconds before that keeps its readiness until it has a result.
    pub fn agent_started(&self) -> Timestamp {
        self.0.agent_started()
    }

    /// Starts the probes of a pod's regular containers and sidecars that do not
    /// run yet. What a running probe asks does not change.
    pub fn ensure(&self, pod: &DesiredPod) {
        let spec = pod.spec();
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|c| ContainerKind::of_init(c) == ContainerKind::Sidecar);
        let containers = spec.containers.iter().map(|container| (container, false));
        for (container, sidecar) in containers.chain(sidecars.map(|container| (container, true))) {
            for (kind, probe) in probes_of(container) {
                self.start(pod, container, kind, probe, sidecar);
            }
        }
    }

    fn start(
        &self,
        pod: &DesiredPod,
        container: &Container,
        kind: ProbeKind,
        probe: &Probe,
        sidecar: bool,
    ) {
        let key = Key { container: ContainerName::new(&container.name), kind };
        if self.0.table().handle(pod.uid(), &key).is_some() {
            return;
        }
        let (stop, stopped) = oneshot::channel();
        let trigger = Arc::new(Notify::new());
        let whose = Whose {
            namespace: pod.namespace().to_owned(),
            pod: pod.name().to_owned(),
            container: container.name.clone(),
            kind,
        };
        let handle = table::Handle::new(stop, Arc::clone(&trigger), sidecar, whose);
        let Some(ticket) = self.0.table().register(pod.uid(), key, handle) else { return };
        let worker =
            Worker::new(Arc::clone(&self.0), pod, container, probe, ticket, trigger, sidecar);
        self.0.ports.tasks.spawn(worker.run(stopped));
    }

    /// The pod is being stopped: its regular containers are no longer restarted,
    /// but whether they are ready still matters.
    pub fn stop_liveness_and_startup(&self, uid: &PodUid) {
        self.0.table().stop_liveness_and_startup(uid);
    }

    /// Ends every probe of a pod and forgets its results.
    pub fn remove(&self, uid: &PodUid) {
        self.0.table().remove(uid);
    }

    /// What is known of a pod's containers now.
    pub fn results(&self, uid: &PodUid) -> ProbeResults {
        self.0.table().results(uid)
    }

    /// What the probes that run have found so far, as `/metrics/probes` tells it.
    pub fn metrics(&self) -> String {
        let agent_started = self.agent_started().as_millisecond() as f64 / 1e3;
        let tallies = self.0.table().tallies();
        Snapshot { tallies, agent_started }.text()
    }

    /// Follows a pod's results, for one reader at a time.
    pub fn follow(&self, uid: &PodUid) -> ProbeWatch {
        self.0.table().follow(uid)
    }

    /// Asks at once whether a container is ready, without waiting for its turn.
    pub fn retrigger_readiness(&self, uid: &PodUid, container: &ContainerName) {
        let key = Key { container: container.clone(), kind: ProbeKind::Readiness };
        if let Some(handle) = self.0.table().handle(uid, &key) {
            handle.trigger();
        }
    }
}

/// A container's probes, in the order in which they matter.
fn probes_of(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    let all = [
        (ProbeKind::Startup, &container.startup_probe),
        (ProbeKind::Readiness, &container.readiness_probe),
        (ProbeKind::Liveness, &container.liveness_probe),
    ];
    all.into_iter().filter_map(|(kind, probe)| Some((kind, probe.as_ref()?)))
}
