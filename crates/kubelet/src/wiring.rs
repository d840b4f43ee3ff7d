//! The only module that knows every other: builds the agent and starts it.

use std::sync::Arc;

use api_client::Spread;
use cluster::csi_node::{self, CsiNodeHandle, CsiNodeParts};
use kubelet_model::{EventObject, EventType};
use tokio::sync::{Semaphore, watch};

use crate::admission;
use crate::allocation::Allocations;
use crate::cluster_lists::ClusterLists;
use crate::events::{NodeEvents, Recorder};
use crate::image_manager::Images;
use crate::join::AgentParts;
use crate::metered::Metered;
use crate::metrics::Metrics;
use crate::node_shutdown::{self, ShutdownFlag, ShutdownParts, ShutdownReader};
use crate::object_cache::Objects;
use crate::offline::{self, Files, Keeper, Offline};
use crate::pleg::{Observations, RuntimeStateReader};
use crate::plugin_manager::{Drivers, Refresh};
use crate::pod_manager::{ApiCopies, Mirrors};
use crate::pod_sources::{ApiSource, PodSetReader, UrlNews};
use crate::pod_usage::PodUsage;
use crate::pod_workers::{self, PodKiller, Shared};
use crate::ports::{CsiMetrics, LoginManager, MeteredPlugins, Ports};
use crate::probe_manager::Probes;
use crate::progress::ProgressBoard;
use crate::pulse::Pulse;
use crate::server::View;
use crate::settings::Settings;
use crate::status_manager::api::StatusWriter;
use crate::status_manager::{PodView, Statuses};
use crate::volume_manager::Volumes;
use crate::{container_logs, eviction, pleg, plugin_manager, pod_sources};

/// A running agent. Its tasks live until the ports' `Tasks` end them.
pub struct Agent {
    statuses: Statuses,
    observations: Observations,
    metrics: Arc<Metrics>,
    recorder: Recorder,
    probes: Probes,
    progress: ProgressBoard,
    pulse: Pulse,
    copies: Option<ApiCopies>,
    url_news: UrlNews,
    volumes: Volumes,
    node_identity: watch::Sender<Option<String>>,
    runtime: RuntimeStateReader,
    objects: Objects,
    killer: PodKiller,
    reports: admission::Reports,
    csi_node: Option<CsiNodeHandle>,
    offline: Offline,
    desired: PodSetReader,
    /// Taken by whoever watches for shutdowns.
    shutdown: Option<ShutdownFlag>,
    shutting_down: ShutdownReader,
}

impl Agent {
    /// Starts every task on the current tokio runtime; returns at once.
    pub fn start(settings: Settings, ports: Ports) -> Self {
        let metrics = Arc::new(Metrics::new());
        metrics.pods.know_node(&settings.node_name);
        let statuses = Statuses::default();
        let runtime = Metered::new(Arc::clone(&ports.runtime), Arc::clone(&metrics));
        let of_drivers = CsiMetrics::default();
        let plugins = MeteredPlugins::new(Arc::clone(&ports.plugins), of_drivers.clone());
        let ports = Ports { runtime: Arc::new(runtime), plugins: Arc::new(plugins), ..ports };
        let (observations, runtime) = pleg::start(&ports, &metrics, settings.follow_events);
        container_logs::start(&ports, &settings.log_rotation, &observations);
        let recorder = Recorder::new(Arc::clone(&ports.clock));
        let node = EventObject::Node(settings.node_name.clone());
        recorder.record(&node, EventType::Normal, "Starting", "Starting kubelet.");
        let source = ports.api.clone().map(|api| {
            let jitter = ports.jitter.clone();
            let spread: Spread = Arc::new(move |longest| jitter.below(longest));
            ApiSource { api, copies: ApiCopies::default(), spread, fall_back: None }
        });
        let lists = ClusterLists::start(&ports);
        let (offline, source, kept) = open_kept(&settings, &ports, &recorder, &lists, source);
        let (desired, objects) = pod_sources::start(&settings, &ports, &recorder, source.clone());
        if source.is_some() {
            objects.expect_cluster();
        }
        let url_news = desired.url_news();
        let (progress, pulse) = (ProgressBoard::default(), Pulse::default());
        let probes = Probes::new(&ports, statuses.clone(), recorder.clone());
        let images = Images::start(&settings, &ports, &recorder, &metrics.images);
        let allocations = Allocations::load(&ports.fs, &settings.root_dir, metrics.resizes.clone());
        let (node_identity, node) = watch::channel(None);
        let drivers = Drivers::default();
        let csi_node = source.as_ref().map(|source| {
            let (handle, keeper) = csi_node::new(CsiNodeParts {
                node_name: settings.node_name.clone(),
                api: Arc::clone(&source.api),
                registered: Arc::new(drivers.clone()),
                node: node.clone(),
                spread: Arc::clone(&source.spread),
            });
            ports.tasks.spawn_vital("CSINode keeper", keeper.run());
            handle
        });
        let copies = source.as_ref().map(|source| source.copies.clone());
        if let Some(ApiSource { api, copies, .. }) = source {
            let (statuses, jitter) = (statuses.clone(), ports.jitter.clone());
            let writer = StatusWriter {
                api: Arc::clone(&api),
                statuses: statuses.clone(),
                copies: copies.clone(),
                clock: Arc::clone(&ports.clock),
                jitter: jitter.clone(),
            };
            ports.tasks.spawn_vital("status writer", writer.run());
            let (node_name, desired) = (settings.node_name.clone(), desired.clone());
            let mirrors = Mirrors { api, node_name, node, desired, copies, statuses, jitter };
            ports.tasks.spawn_vital("mirrors", mirrors.run());
        }
        let (shutdown, shutting_down) = ShutdownFlag::new();
        let (reports, admission) = admission::inputs(ports.api.is_some(), shutting_down.clone());
        let (of_runtime, of_pods) = (runtime.clone(), objects.clone());
        let lanes = settings.lanes;
        let settings = Arc::new(settings);
        if let Some(announcer) = csi_node.clone() {
            let (drivers, objects) = (drivers.clone(), objects.clone());
            ports.tasks.spawn(Refresh { drivers, objects, announcer }.run());
        }
        plugin_manager::start(&settings.root_dir, &ports, &drivers, csi_node.clone(), &objects);
        let volumes =
            Volumes::new(&ports, &settings, &recorder, &progress, &objects, &desired, &drivers);
        metrics.add_volumes(&volumes, &of_drivers);
        if let Some((files, copies)) = kept.zip(copies.clone()) {
            let keeper = Keeper {
                files,
                desired: desired.clone(),
                objects: objects.clone(),
                lists: lists.clone(),
                statuses: statuses.clone(),
                copies,
                recorder: recorder.clone(),
                attachments: volumes.attachments(),
            };
            ports.tasks.spawn_vital("keeper of pods", keeper.run());
        }
        let shared = Shared {
            ports,
            settings,
            observations: observations.clone(),
            runtime,
            statuses: statuses.clone(),
            metrics: Arc::clone(&metrics),
            recorder: recorder.clone(),
            probes: probes.clone(),
            progress: progress.clone(),
            pulse: pulse.clone(),
            images,
            allocations,
            admission,
            volumes: volumes.clone(),
            objects,
            lists,
            lanes: Arc::new(Semaphore::new(lanes)),
        };
        let (outside, told) = (shared.ports.clone(), Arc::clone(&shared.settings));
        let killer = pod_workers::start(shared, desired.clone());
        if told.storage_limits {
            let usage = PodUsage {
                statuses: statuses.clone(),
                observations: observations.clone(),
                volumes: volumes.clone(),
                clock: Arc::clone(&outside.clock),
                fs: Arc::clone(&outside.fs),
                cgroups: Arc::clone(&outside.cgroups),
                root_dir: told.root_dir.clone(),
                pod_logs_dir: told.pod_logs_dir.clone(),
            };
            let (killer, counts) = (killer.clone(), metrics.evictions.clone());
            eviction::start(&outside, desired.clone(), usage, killer, recorder.clone(), counts);
        }
        Self {
            statuses,
            observations,
            metrics,
            recorder,
            probes,
            progress,
            pulse,
            copies,
            url_news,
            volumes,
            node_identity,
            runtime: of_runtime,
            objects: of_pods,
            killer,
            reports,
            csi_node,
            offline,
            desired,
            shutdown: Some(shutdown),
            shutting_down,
        }
    }

    /// Has pods end before the machine does, where the settings say so.
    pub fn watch_shutdowns(
        &mut self,
        ports: &Ports,
        settings: &Settings,
        login: Arc<dyn LoginManager>,
    ) {
        let (Some(plan), Some(flag)) = (settings.shutdown.clone(), self.shutdown.take()) else {
            return;
        };
        let parts = ShutdownParts {
            plan,
            login,
            desired: self.desired.clone(),
            statuses: self.statuses.clone(),
            killer: self.killer.clone(),
            events: NodeEvents::new(self.recorder.clone(), &settings.node_name),
            flag,
            metrics: self.metrics.shutdown.clone(),
            root_dir: settings.root_dir.clone(),
        };
        node_shutdown::start(ports, parts);
    }

    /// Ends pods for the node's sake.
    pub fn killer(&self) -> PodKiller {
        self.killer.clone()
    }

    /// Tells admission what the node is short of, and that the machine goes.
    pub fn admission_reports(&self) -> admission::Reports {
        self.reports.clone()
    }

    /// What ties the agent to its cluster takes from it, and gives it.
    pub fn parts(&self, ports: &Ports, settings: &Settings) -> AgentParts {
        AgentParts {
            ports: ports.clone(),
            runtime: self.runtime.clone(),
            root_dir: settings.root_dir.clone(),
            objects: self.objects.clone(),
            identity: self.node_identity.clone(),
            events: NodeEvents::new(self.recorder.clone(), &settings.node_name),
            recorder: self.recorder.clone(),
            node_news: self.reports.node.clone(),
            csi_node: self.csi_node.as_ref().map(CsiNodeHandle::problem),
            attachments: self.volumes.attachments(),
            copies: self.copies.clone(),
            shutting_down: self.shutting_down.clone(),
        }
    }

    /// Every pod the agent knows, with its status.
    pub fn pods(&self) -> Vec<PodView> {
        self.statuses.all()
    }

    /// What the servers show.
    pub fn view(&self) -> View {
        View {
            desired: self.desired.clone(),
            statuses: self.statuses.clone(),
            observations: self.observations.clone(),
            metrics: Arc::clone(&self.metrics),
            recorder: self.recorder.clone(),
            probes: self.probes.clone(),
            progress: self.progress.clone(),
            pulse: self.pulse.clone(),
            copies: self.copies.clone(),
            url_news: self.url_news.clone(),
            volumes: self.volumes.clone(),
            offline: self.offline.clone(),
        }
    }
}

/// What is kept for the time without an API server, if the user wants that; else what
/// an earlier life kept goes.
fn open_kept(
    settings: &Settings,
    ports: &Ports,
    recorder: &Recorder,
    lists: &ClusterLists,
    source: Option<ApiSource>,
) -> (Offline, Option<ApiSource>, Option<Files>) {
    let Some(source) = source.clone().filter(|_| settings.offline_autonomy) else {
        if let Err(error) = offline::discard(&*ports.fs, &settings.root_dir) {
            tracing::error!(%error, "kept pods not removed; remove them by hand");
        }
        return (Offline::default(), source, None);
    };
    let events = NodeEvents::new(recorder.clone(), &settings.node_name);
    let clock = Arc::clone(&ports.clock);
    let fs = Arc::clone(&ports.fs);
    let (offline, opened) = offline::open(fs, clock, settings, events, lists.clone());
    let (fall_back, files) = opened.unzip();
    (offline, Some(ApiSource { fall_back, ..source }), files)
}
