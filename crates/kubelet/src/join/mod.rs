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
mod member;
mod objects;
mod own_node;
mod reports;

pub use certificates::NodeCertificates;
pub(crate) use config::storage_bytes;
pub use config::{JoinError, JoinSettings, settings};
pub(crate) use facts::machine_ids;
pub use member::{Member, MemberSettings, Reconnect};
pub(crate) use own_node::admission_rules;

use std::path::PathBuf;
use std::sync::Arc;

use api_client::{Api, ApiClient, Limit, Pace};
use cluster::node::NodeHandle;
use cluster::objects::Connect;
use futures_util::FutureExt as _;
use tokio::sync::watch;

use crate::admission::NodeNewsWriter;
use crate::events::{NodeEvents, Recorder};
use crate::node_shutdown::ShutdownReader;
use crate::object_cache::Objects;
use crate::pleg::RuntimeStateReader;
use crate::pod_manager::ApiCopies;
use crate::ports::Ports;
use crate::volume_manager::attach::Attachments;

/// How the agent names itself to the server.
const AGENT: &str = concat!("klet/", env!("CARGO_PKG_VERSION"));

/// The way to the API server.
pub struct Link {
    settings: JoinSettings,
    client: ApiClient,
    pace: Pace,
    connections: certificates::Client,
    certificates: Arc<NodeCertificates>,
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
    /// What the API server holds of the node's pods.
    pub copies: Option<ApiCopies>,
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
        let (qps, burst) = settings.rate;
        let pace = Pace::new(Limit::new(qps, burst));
        let client = (connections.connect)()?.at_pace(Some(pace.clone()));
        Ok(Self { settings, client, pace, connections, certificates })
    }

    /// The API server, for the parts that ask it themselves.
    pub fn api(&self) -> Arc<dyn Api> {
        Arc::new(self.client.clone())
    }

    /// Starts everything that ties the agent to its cluster.
    pub fn start(self, agent: AgentParts) -> NodeHandle {
        let Self { settings, client, pace, connections, certificates } = self;
        let tasks = agent.ports.tasks.clone();
        let api = Arc::new(client.clone());
        tracing::info!(server = client.server(), "joining the cluster");
        let (first, open) = (Arc::clone(&api), Arc::clone(&connections.connect));
        // Heartbeats must not wait behind other requests, and events have a limit of their
        // own: as upstream, whose clients for these are others.
        let unpaced = Arc::new(client.at_pace(None));
        let pace = Some(pace);
        let connect: Connect = Arc::new(move || {
            // Each connection carries so many watches only. A name that was sent once
            // can be sent again.
            match open() {
                Ok(client) => Arc::new(client.at_pace(pace.clone())),
                Err(_) => Arc::clone(&first) as Arc<dyn Api>,
            }
        });
        let (of, name) = (settings.credentials, settings.member.node.name.clone());
        let member = Member {
            settings: settings.member,
            api: Arc::clone(&api) as Arc<dyn Api>,
            unpaced,
            connect,
            reconnect: Arc::new(move || {
                let client = client.clone();
                async move { client.reconnect().await }.boxed()
            }),
            certificates: Arc::clone(&certificates),
        };
        let handle = member.start(agent);
        if let Some(state) =
            certificates::start(&tasks, &of, &name, connections, api, &certificates)
        {
            tasks.spawn(reports::poke_on_certificate(handle.clone(), state));
        }
        handle
    }
}
