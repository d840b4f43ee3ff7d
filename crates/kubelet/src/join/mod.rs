//! The node in its cluster: what ties the agent to an API server.
//!
//! Owns the API client. Gives the agent's parts what the cluster knows, and the
//! cluster what they know: the node's object and lease, objects and tokens that pods
//! use, events. Pods come and statuses go elsewhere: see pod_sources, pod_manager and
//! status_manager. Upstream: cmd/kubelet/app, pkg/kubelet/kubelet_node_status.go.

mod config;
mod facts;
mod objects;
mod reports;

pub(crate) use config::storage_bytes;
pub use config::{JoinError, JoinSettings, settings};

use std::path::PathBuf;
use std::sync::Arc;

use api_client::{Api, ApiClient, ApiError, Clock, Spread};
use cluster::node::{self, NodeHandle, NodeParts};
use cluster::objects::{Connect, Settings as ObjectSettings, ttl};
use cluster::tokens::Tokens;
use tokio::sync::watch;

use crate::events::{NodeEvents, Recorder};
use crate::node_shutdown::ShutdownReader;
use crate::object_cache::Objects;
use crate::pleg::RuntimeStateReader;
use crate::ports::Ports;
use facts::NodeFactsReader;
use objects::ObjectKeeper;
use reports::NodeReports;

/// How the agent names itself to the server.
const AGENT: &str = concat!("klet/", env!("CARGO_PKG_VERSION"));

/// The way to the API server.
pub struct Link {
    settings: JoinSettings,
    client: ApiClient,
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
    /// Whether the machine is about to go.
    pub shutting_down: ShutdownReader,
}

impl Link {
    /// A link that connects when it is first used.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn new(
        settings: JoinSettings,
        ports_clock: Arc<dyn crate::ports::Clock>,
    ) -> Result<Self, ApiError> {
        let clock: Clock = Arc::new(move || ports_clock.wall());
        let client = ApiClient::new(settings.access.clone(), AGENT, Arc::clone(&clock))?;
        Ok(Self { settings, client, clock })
    }

    /// The API server, for the parts that ask it themselves.
    pub fn api(&self) -> Arc<dyn Api> {
        Arc::new(self.client.clone())
    }

    /// Starts everything that ties the agent to its cluster.
    pub fn start(self, agent: AgentParts) -> NodeHandle {
        let AgentParts { ports, runtime, root_dir, objects, identity, events, .. } = agent;
        let (recorder, shutting_down) = (agent.recorder, agent.shutting_down);
        let Self { settings, client, clock } = self;
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
            }),
            clock: Arc::clone(&clock),
            spread: Arc::clone(&spread),
        });
        tasks.spawn_vital("node keeper", keeper.run());
        tasks.spawn(reports::tell_identity(handle.clone(), identity));
        tasks.spawn(reports::poke_on_change(handle.clone(), runtime));
        tasks.spawn(reports::poke_on_shutdown(handle.clone(), shutting_down));
        let (access, of_clock) = (settings.access.clone(), Arc::clone(&clock));
        let first = api.clone();
        let connect: Connect = Arc::new(move || {
            // Each connection carries so many watches only. A name that was sent once
            // can be sent again.
            match ApiClient::new(access.clone(), AGENT, Arc::clone(&of_clock)) {
                Ok(client) => Arc::new(client),
                Err(_) => Arc::clone(&first),
            }
        });
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
