//! The real agent on simulated ports: starting it, reading what it reports.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ContainerStatus;
use kubelet::pod_workers::PodKiller;
use kubelet::ports::{Jitter, NoPrograms, Ports, Tasks};
use kubelet::settings::Settings;
use kubelet::status_manager::PodView;
use kubelet::wiring::Agent;

use crate::checkers::{ReportedContainer, ReportedPod};
use crate::manifest::REVISION_LABEL;
use crate::node::{
    SimCgroups, SimClock, SimFs, SimHttp, SimLogin, SimPlugins, SimProbeNet, SimVolumes,
};
use crate::runtime::SimRuntime;
use crate::world::{Life, World};

/// One running life of the agent.
pub(crate) struct RunningAgent {
    agent: Agent,
    tasks: Tasks,
    life: Life,
}

impl RunningAgent {
    /// Starts the agent on fresh ports of the same world.
    pub(crate) fn start(world: &Arc<World>, settings: Settings, life: Life, seed: u64) -> Self {
        let tasks = Tasks::default();
        let ports = Ports {
            runtime: Arc::new(SimRuntime::new(Arc::clone(world), life.clone())),
            fs: Arc::new(SimFs::new(Arc::clone(world), life.clone())),
            volumes: Arc::new(SimVolumes::new(Arc::clone(world), life.clone())),
            cgroups: Arc::new(SimCgroups::new(Arc::clone(world), life.clone())),
            http: Arc::new(SimHttp::new(Arc::clone(world), life.clone())),
            probe_net: Arc::new(SimProbeNet::new(Arc::clone(world), life.clone())),
            programs: Arc::new(NoPrograms),
            plugins: Arc::new(SimPlugins::new(Arc::clone(world), life.clone())),
            api: None,
            clock: Arc::new(SimClock::new(Arc::clone(world))),
            jitter: Jitter::seeded(seed ^ life.number),
            tasks: tasks.clone(),
        };
        let mut agent = Agent::start(settings.clone(), ports.clone());
        let login = Arc::new(SimLogin::new(Arc::clone(world)));
        agent.watch_shutdowns(&ports, &settings, login);
        Self { agent, tasks, life }
    }

    /// Ends this life at once: its tasks drop where they stand.
    pub(crate) fn crash(self) {
        self.life.end();
        self.tasks.abort_all();
    }

    /// Ends pods as the node's own parts do.
    pub(crate) fn killer(&self) -> PodKiller {
        self.agent.killer()
    }

    /// What the agent reports.
    pub(crate) fn reported(&self) -> Vec<ReportedPod> {
        self.agent.pods().iter().map(reported_pod).collect()
    }
}

fn reported_pod(view: &PodView) -> ReportedPod {
    let meta = &view.pod.metadata;
    let label = meta.labels.as_ref().and_then(|all| all.get(REVISION_LABEL));
    let init = view.status.init_container_statuses.iter().flatten();
    let containers = init.chain(view.status.container_statuses.iter().flatten());
    ReportedPod {
        uid: view.uid.as_str().to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        revision: label.and_then(|text| text.parse().ok()).unwrap_or(0),
        phase: view.status.phase.clone().unwrap_or_default(),
        reason: view.status.reason.clone(),
        containers: containers.map(reported_container).collect(),
    }
}

fn reported_container(status: &ContainerStatus) -> ReportedContainer {
    let id = status.container_id.as_deref().unwrap_or_default();
    let state = status.state.as_ref();
    ReportedContainer {
        name: status.name.clone(),
        id: id.split_once("://").map(|(_, id)| id.to_owned()),
        restarts: status.restart_count,
        running: state.is_some_and(|state| state.running.is_some()),
        ready: status.ready,
        waiting: state.and_then(|state| state.waiting.as_ref()?.reason.clone()),
    }
}
