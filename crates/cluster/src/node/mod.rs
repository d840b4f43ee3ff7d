//! The Node object: registers it, keeps its status and its lease, and follows it.
//!
//! Owns everything this node writes about itself. Told what the node is like through
//! [`Facts`], tells what comes of it through [`Reports`]; reads no file, asks no runtime,
//! decides nothing about pods. Objects stay JSON, so that fields of others survive.
//! Upstream: pkg/kubelet/kubelet_node_status.go, pkg/kubelet/nodestatus,
//! component-helpers apimachinery/lease.

mod addresses;
mod conditions;
mod context;
mod facts;
mod fields;
mod follow;
mod health;
mod lease;
mod own;
mod patch;
mod registration;
mod resources;
mod settings;
mod status;
mod update;

#[cfg(test)]
mod loop_tests;
#[cfg(test)]
mod registration_tests;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod test_parts;

use std::sync::Arc;

use api_client::{Api, ApiError, Clock, Spread};
use ordered_watch as watch;
use tokio::sync::Notify;

use context::Context;
pub use facts::{
    Devices, Facts, HugePages, Machine, Network, NodeEvent, NodeFacts, NodeImage, Pressure,
    Reports, Reserved, Runtime, RuntimeHandler, Troubles, Versions,
};
pub use health::{NodeHealth, NodeTrouble};
pub use own::OwnNode;
pub use registration::{default_labels, initial_node};
pub use settings::{NodeSettings, NodeTaint, declared_features};

/// What the Node's keeper works with.
pub struct NodeParts {
    /// How the node is to present itself.
    pub settings: NodeSettings,
    /// The API server.
    pub api: Arc<dyn Api>,
    /// Knows what the node is like.
    pub facts: Arc<dyn Facts>,
    /// Is told what comes of it.
    pub reports: Arc<dyn Reports>,
    /// What time it is.
    pub clock: Clock,
    /// Makes lengths of time differ.
    pub spread: Spread,
}

/// Keeps the Node: does nothing until it is run.
pub struct NodeKeeper {
    context: Arc<Context>,
}

/// What others know of the Node, and ask for. Cheap to clone.
#[derive(Clone)]
pub struct NodeHandle {
    context: Arc<Context>,
}

/// A keeper to run, and a handle for everybody else.
pub fn start(parts: NodeParts) -> (NodeHandle, NodeKeeper) {
    let NodeParts { settings, api, facts, reports, clock, spread } = parts;
    let context = Arc::new(Context {
        settings,
        api,
        facts,
        reports,
        clock,
        spread,
        latest: own::Latest::new(),
        health: watch::Sender::new(NodeHealth::default()),
        poke: Arc::new(Notify::new()),
    });
    (NodeHandle { context: Arc::clone(&context) }, NodeKeeper { context })
}

impl NodeKeeper {
    /// Runs for ever: registers, writes the status, renews the lease, follows the Node.
    /// Dropped, it leaves the Node and its lease as they are.
    pub async fn run(self) {
        let follow = follow::run(Arc::clone(&self.context));
        let updates = update::Updates::new(Arc::clone(&self.context)).run();
        let lease = lease::Lease::new(self.context).run();
        tokio::join!(follow, updates, lease);
    }
}

impl NodeHandle {
    /// The Node as the server has it; `None` while that is not known, or it is not there.
    pub fn node(&self) -> watch::Receiver<Option<OwnNode>> {
        self.context.latest.subscribe()
    }

    /// The Node as the server has it this moment; readers of [`NodeHandle::node`] see it
    /// too.
    ///
    /// # Errors
    /// The server does not say.
    pub async fn fresh(&self) -> Result<OwnNode, ApiError> {
        self.context.get_node(false).await
    }

    /// Something that the status tells has changed: it is looked at soon, not at the
    /// next turn.
    pub fn poke(&self) {
        self.context.poke.notify_one();
    }

    /// How the node stands with its API server.
    pub fn health(&self) -> watch::Receiver<NodeHealth> {
        self.context.health.subscribe()
    }
}
