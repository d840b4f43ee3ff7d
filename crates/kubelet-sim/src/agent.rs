//! The real agent on simulated ports: starting it, reading what it reports.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api_client::Api;
use cluster::node::{NodeSettings, Reserved};
use cluster::objects::Strategy;
use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet::join::{Member, MemberSettings, NodeCertificates};
use kubelet::pod_workers::PodKiller;
use kubelet::ports::{Jitter, NoPrograms, Ports, Tasks};
use kubelet::settings::Settings;
use kubelet::status_manager::PodView;
use kubelet::wiring::Agent;

use crate::api::SimApi;
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
        let in_cluster = world.lock().api.is_some();
        let api = in_cluster
            .then(|| Arc::new(SimApi::new(Arc::clone(world), life.clone())) as Arc<dyn Api>);
        let ports = Ports {
            runtime: Arc::new(SimRuntime::new(Arc::clone(world), life.clone())),
            fs: Arc::new(SimFs::new(Arc::clone(world), life.clone())),
            volumes: Arc::new(SimVolumes::new(Arc::clone(world), life.clone())),
            cgroups: Arc::new(SimCgroups::new(Arc::clone(world), life.clone())),
            http: Arc::new(SimHttp::new(Arc::clone(world), life.clone())),
            probe_net: Arc::new(SimProbeNet::new(Arc::clone(world), life.clone())),
            programs: Arc::new(NoPrograms),
            plugins: Arc::new(SimPlugins::new(Arc::clone(world), life.clone())),
            api: api.clone(),
            clock: Arc::new(SimClock::new(Arc::clone(world))),
            jitter: Jitter::seeded(seed ^ life.number),
            tasks: tasks.clone(),
        };
        let mut agent = Agent::start(settings.clone(), ports.clone());
        let login = Arc::new(SimLogin::new(Arc::clone(world)));
        agent.watch_shutdowns(&ports, &settings, login);
        if let Some(api) = api {
            join(&agent, &ports, &settings, api);
        }
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

/// Ties the agent to its cluster, as a node that knows its address.
fn join(agent: &Agent, ports: &Ports, settings: &Settings, api: Arc<dyn Api>) {
    let clock = Arc::clone(&ports.clock);
    let first = Arc::clone(&api);
    let member = Member {
        settings: member_settings(&settings.node_name),
        connect: Arc::new(move || Arc::clone(&first)),
        reconnect: Arc::new(|| std::future::ready(()).boxed()),
        certificates: Arc::new(NodeCertificates::new(clock, ports.jitter.clone())),
        unpaced: Arc::clone(&api),
        api,
    };
    member.start(agent.parts(ports, settings));
}

fn member_settings(name: &str) -> MemberSettings {
    let node = NodeSettings {
        name: name.to_owned(),
        hostname: name.to_owned(),
        node_ips: vec![IpAddr::from([10, 0, 0, 1])],
        external_cloud: false,
        labels: Vec::new(),
        taints: Vec::new(),
        register: true,
        provider_id: String::new(),
        controller_attaches: false,
        max_pods: 110,
        pods_per_core: 0,
        max_images: 50,
        isolates_local_storage: true,
        port: 10_250,
        version: "v1.36.4".to_owned(),
        declared_features: None,
        update_every: Duration::from_secs(10),
        report_every: Duration::from_secs(300),
        lease_seconds: 40,
    };
    MemberSettings {
        node,
        reserved: Reserved::default(),
        strategy: Strategy::Watch,
        sync_frequency: Duration::from_secs(60),
        events: Some((50, 100)),
        trust_bundles: false,
        pod_certificates: false,
    }
}

fn reported_pod(view: &PodView) -> ReportedPod {
    reported(view.uid.as_str(), &view.pod.metadata, &view.status)
}

/// What a pod of the API server says.
pub(crate) fn stored_pod(pod: &Pod) -> ReportedPod {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    reported(uid, &pod.metadata, &pod.status.clone().unwrap_or_default())
}

fn reported(uid: &str, meta: &ObjectMeta, status: &PodStatus) -> ReportedPod {
    let label = meta.labels.as_ref().and_then(|all| all.get(REVISION_LABEL));
    let init = status.init_container_statuses.iter().flatten();
    let containers = init.chain(status.container_statuses.iter().flatten());
    ReportedPod {
        uid: uid.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        revision: label.and_then(|text| text.parse().ok()).unwrap_or(0),
        phase: status.phase.clone().unwrap_or_default(),
        reason: status.reason.clone(),
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
