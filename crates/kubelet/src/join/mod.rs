//! The node in its cluster: what ties the agent to an API server.
//!
//! Owns the API client. Gives the agent's parts what the cluster knows, and the
//! cluster what they know: the node's object and lease, objects, tokens and certificates
//! that pods use, events. Pods come and statuses go elsewhere: see pod_sources, pod_manager and
//! status_manager. Upstream: cmd/kubelet/app, pkg/kubelet/kubelet_node_status.go.

mod certificates;
mod config;
mod credentials;
mod facts;
mod objects;
mod own_node;
mod reports;

pub use certificates::NodeCertificates;
pub(crate) use config::storage_bytes;
pub use config::{JoinError, JoinSettings, settings};
pub(crate) use facts::machine_ids;
pub(crate) use own_node::admission_rules;

use std::path::PathBuf;
use std::sync::Arc;

use api_client::{Api, ApiClient, Clock, Spread};
use cluster::node::{self, NodeHandle, NodeParts};
use cluster::objects::{Connect, Settings as ObjectSettings, ttl};
use cluster::tokens::Tokens;
use cluster::trust_bundles::Draw;
use tokio::sync::watch;

use crate::admission::NodeNewsWriter;
use crate::events::{NodeEvents, Recorder};
use crate::node_shutdown::ShutdownReader;
use crate::object_cache::Objects;
use crate::pleg::RuntimeStateReader;
use crate::ports::{Jitter, Ports};
use crate::volume_manager::attach::Attachments;
use credentials::Makers;
use facts::NodeFactsReader;
use objects::ObjectKeeper;
use reports::NodeReports;

/// How the agent names itself to the server.
const AGENT: &str = concat!("klet/", env!("CARGO_PKG_VERSION"));

/// The way to the API server.
pub struct Link {
    settings: JoinSettings,
    client: ApiClient,
    connections: certificates::Client,
    certificates: Arc<NodeCertificates>,
    clock: Clock,
}

/// What the agent's parts need to be told of, and to be asked for.
pub struct AgentParts {
    /// Everything outside.
    pub ports: Ports,
    /// Whether the runtime is usable.
    pub runtime: RuntimeStateReader,
    /// Where the agent's files are.
    pub root_dir: PathBuf,
    /// What pods use.
    pub objects: Objects,
    /// Takes the uid of the node's object.
    pub identity: watch::Sender<Option<String>>,
    /// Takes what happens to the node.
    pub events: NodeEvents,
    /// Every event.
    pub recorder: Recorder,
    /// Takes what the API server says of the Node, for admission.
    pub node_news: Option<NodeNewsWriter>,
    /// What keeps the node from being ready for volumes of CSI drivers.
    pub csi_node: Option<watch::Receiver<Option<String>>>,
    /// Which volumes are in use, and are attached.
    pub attachments: Attachments,
    /// Whether the machine is about to go.
    pub shutting_down: ShutdownReader,
}

impl Link {
    /// A link that connects when it is first used.
    ///
    /// # Errors
    /// The client cannot be made, or its certificate cannot be kept.
    pub fn new(
        settings: JoinSettings,
        certificates: Arc<NodeCertificates>,
    ) -> Result<Self, JoinError> {
        let connections = certificates::Client::new(&settings.credentials, &certificates)?;
        let (client, clock) = ((connections.connect)()?, Arc::clone(&certificates.clock));
        Ok(Self { settings, client, connections, certificates, clock })
    }

    /// The API server, for the parts that ask it themselves.
    pub fn api(&self) -> Arc<dyn Api> {
        Arc::new(self.client.clone())
    }

    /// Starts everything that ties the agent to its cluster.
    pub fn start(self, agent: AgentParts) -> NodeHandle {
        let AgentParts { ports, runtime, root_dir, objects, identity, events, .. } = agent;
        let AgentParts { recorder, node_news, csi_node, attachments, shutting_down, .. } = agent;
        let Self { settings, client, connections, certificates, clock } = self;
        let tasks = ports.tasks.clone();
        let jitter = ports.jitter.clone();
        let spread: Spread = Arc::new(move |longest| jitter.below(longest));
        let api: Arc<dyn Api> = Arc::new(client.clone());
        tracing::info!(server = client.server(), "joining the cluster");
        let reader = NodeFactsReader {
            state: runtime.clone(),
            shutting_down: shutting_down.clone(),
            root_dir,
            hostname: settings.node.hostname.clone(),
            reserved: settings.reserved,
            looks_up: settings.node.looks_up_name(),
            prefers_v6: settings.node.node_ips.first().is_some_and(|ip| ip.is_ipv6()),
            asked: Default::default(),
            storage: csi_node.clone(),
            attachments: attachments.clone(),
            certificates: Arc::clone(&certificates),
            ports: ports.clone(),
        };
        let (handle, keeper) = node::start(NodeParts {
            settings: settings.node.clone(),
            api: Arc::clone(&api),
            facts: facts::arc(reader),
            reports: Arc::new(NodeReports {
                events,
                client: client.clone(),
                runtime: Arc::clone(&ports.runtime),
                attachments: attachments.clone(),
            }),
            clock: Arc::clone(&clock),
            spread: Arc::clone(&spread),
        });
        tasks.spawn_vital("node keeper", keeper.run());
        tasks.spawn(reports::tell_identity(handle.clone(), identity));
        if let Some(news) = node_news {
            let tells = reports::tell_admission(handle.clone(), news, ports.jitter.clone());
            tasks.spawn_vital("node reader", tells);
        }
        tasks.spawn(reports::poke_on_change(handle.clone(), runtime));
        tasks.spawn(reports::poke_on_shutdown(handle.clone(), shutting_down));
        if let Some(problem) = csi_node {
            tasks.spawn(reports::poke_on_problem(handle.clone(), problem));
        }
        tasks.spawn(reports::poke_on_use(handle.clone(), attachments.clone()));
        tasks.spawn(reports::tell_attached(handle.clone(), attachments));
        let (first, open) = (api.clone(), Arc::clone(&connections.connect));
        let connect: Connect = Arc::new(move || {
            // Each connection carries so many watches only. A name that was sent once
            // can be sent again.
            match open() {
                Ok(client) => Arc::new(client),
                Err(_) => Arc::clone(&first),
            }
        });
        let makers = Makers {
            trust: settings.trust_bundles.then(|| credentials::Trust {
                api: Arc::clone(&api),
                // As upstream: two sources for each pod.
                cache_max: usize::try_from(settings.node.max_pods).unwrap_or(110) * 2,
                draw: draw(ports.jitter.clone()),
                spread: Arc::clone(&spread),
            }),
            certificates: settings.pod_certificates.then(|| {
                let of_node = handle.node();
                let uid = move || of_node.borrow().as_ref().map(|node| node.uid().to_owned());
                credentials::Certificates {
                    api: Arc::clone(&api),
                    node: settings.node.name.clone(),
                    node_uid: Arc::new(uid),
                    recorder: recorder.clone(),
                    clock: Arc::clone(&clock),
                    spread: Arc::clone(&spread),
                }
            }),
        };
        let (of, name) = (&settings.credentials, &settings.node.name);
        let own = Arc::clone(&api);
        if let Some(state) = certificates::start(&tasks, of, name, connections, own, &certificates)
        {
            tasks.spawn(reports::poke_on_certificate(handle.clone(), state));
        }
        let of_node = handle.node();
        let (of_api, of_spread) = (Arc::clone(&api), Arc::clone(&spread));
        let keeper = ObjectKeeper {
            cache: objects,
            connect,
            settings: ObjectSettings {
                strategy: settings.strategy,
                sync_frequency: settings.sync_frequency,
                ttl: Arc::new(move || {
                    let node = of_node.borrow();
                    let annotations = node.as_ref().map(|node| node.annotations());
                    let mut annotations = annotations.unwrap_or_default().into_iter();
                    let own = annotations.find(|(key, _)| *key == "node.alpha.kubernetes.io/ttl");
                    ttl(own.map(|(_, value)| value))
                }),
            },
            spread: of_spread.clone(),
            tokens: Arc::new(Tokens::new(api, clock, spread)),
            makers,
            clock: Arc::clone(&ports.clock),
        };
        tasks.spawn_vital("object keeper", keeper.run());
        let (qps, burst) = settings.events.unwrap_or_default();
        let node_name = settings.node.name.clone();
        let of_events = cluster::events::Settings { node_name, qps, burst };
        let (sink, writer) = cluster::events::new(of_api, of_events, of_spread);
        recorder.tell(Box::new(move |key, event| sink.push(reports::event(key, event))));
        tasks.spawn_vital("event writer", writer.run());
        handle
    }
}

/// Numbers below others, for whoever shuffles.
fn draw(jitter: Jitter) -> Draw {
    Arc::new(move |below| {
        let number = usize::try_from(jitter.number()).unwrap_or_default();
        number.checked_rem(below).unwrap_or_default()
    })
}
