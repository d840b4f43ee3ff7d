//! A node in its cluster, whatever way leads to the API server.
//!
//! Starts what keeps the node's object and lease, the objects, tokens and certificates
//! that pods use, and what writes events. Owns no connection: whoever makes one hands
//! it over.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Spread};
use cluster::node::{self, NodeHandle, NodeParts, NodeSettings, Reserved};
use cluster::objects::{Connect, Settings as ObjectSettings, Strategy, ttl};
use cluster::pod_certificates::ThreadedKeys;
use cluster::tokens::Tokens;
use cluster::trust_bundles::Draw;
use futures_util::future::BoxFuture;
use kubelet_model::PodUid;

use super::credentials::{self, Makers};
use super::facts::{self, NodeFactsReader};
use super::objects::ObjectKeeper;
use super::reports::{self, NodeReports};
use super::{AgentParts, NodeCertificates};
use crate::ports::Jitter;

/// Gives up the connection to the server, so that the next request opens another.
pub type Reconnect = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// How the node takes part in its cluster.
#[derive(Debug, Clone)]
pub struct MemberSettings {
    /// How the node presents itself.
    pub node: NodeSettings,
    /// What pods cannot have.
    pub reserved: Reserved,
    /// How ConfigMaps and Secrets are kept up to date.
    pub strategy: Strategy,
    /// How often objects are looked at that are not watched.
    pub sync_frequency: Duration,
    /// Events written in a second, and at once; none is no limit.
    pub events: Option<(u32, u32)>,
    /// Pods may have certificates that they trust.
    pub trust_bundles: bool,
    /// Pods may have certificates of their own.
    pub pod_certificates: bool,
}

/// A node that is about to take part.
pub struct Member {
    /// How.
    pub settings: MemberSettings,
    /// The API server.
    pub api: Arc<dyn Api>,
    /// The same, for heartbeats and events, which do not wait for their turn.
    pub unpaced: Arc<dyn Api>,
    /// Opens further connections, for watches.
    pub connect: Connect,
    /// Gives up the first connection.
    pub reconnect: Reconnect,
    /// The node's own certificates.
    pub certificates: Arc<NodeCertificates>,
}

impl Member {
    /// Starts everything that ties the agent to its cluster.
    pub fn start(self, agent: AgentParts) -> NodeHandle {
        let AgentParts { ports, runtime, root_dir, objects, identity, events, .. } = agent;
        let AgentParts {
            recorder, node_news, csi_node, attachments, shutting_down, copies, ..
        } = agent;
        let Self { settings, api, unpaced, connect, reconnect, certificates } = self;
        let clock = Arc::clone(&certificates.clock);
        let tasks = ports.tasks.clone();
        let jitter = ports.jitter.clone();
        let spread: Spread = Arc::new(move |longest| jitter.below(longest));
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
            api: Arc::clone(&unpaced),
            facts: facts::arc(reader),
            reports: Arc::new(NodeReports {
                events,
                reconnect,
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
        let clock_of_node = Arc::clone(&ports.clock);
        tasks.spawn(reports::poke_on_change(handle.clone(), runtime, clock_of_node));
        tasks.spawn(reports::poke_on_shutdown(handle.clone(), shutting_down));
        if let Some(problem) = csi_node {
            tasks.spawn(reports::poke_on_problem(handle.clone(), problem));
        }
        tasks.spawn(reports::poke_on_use(handle.clone(), attachments.clone()));
        tasks.spawn(reports::tell_attached(handle.clone(), attachments));
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
                    keys: Arc::new(ThreadedKeys::default()),
                    clock: Arc::clone(&clock),
                    spread: Arc::clone(&spread),
                }
            }),
        };
        let of_node = handle.node();
        let of_spread = Arc::clone(&spread);
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
        let (sink, writer) = cluster::events::new(unpaced, of_events, of_spread);
        let revision = move |uid: &PodUid| Some(copies.as_ref()?.get(uid)?.revision);
        recorder.tell(Box::new(move |key, event| sink.push(reports::event(key, event, &revision))));
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
