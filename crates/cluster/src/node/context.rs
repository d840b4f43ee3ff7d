//! What the parts of this module share, and the calls they make.
//!
//! Owns nothing but handles. Every call has a limit in time, and what it answers about
//! the Node is published.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Clock, Patch, Spread, path};
use jiff::Timestamp;
use ordered_watch as watch;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::facts::{Facts, NodeFacts, Reports};
use super::health::NodeHealth;
use super::own::{Latest, OwnNode};
use super::settings::NodeSettings;

/// How long facts may take to gather: what hangs must not keep the node silent.
const FACTS_LIMIT: Duration = Duration::from_secs(30);
/// The longest that a server can have us wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Something between the node and its API server that did not work.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    /// The Node cannot be made.
    #[error("cannot create the Node object: {0}")]
    Create(#[source] ApiError),
    /// The Node cannot be read.
    #[error("cannot get the Node object: {0}")]
    Get(#[source] ApiError),
    /// The Node cannot be changed.
    #[error("cannot patch the Node object: {0}")]
    Patch(#[source] ApiError),
    /// Nobody knows what to write.
    #[error("what the node is like was not known in {} s", FACTS_LIMIT.as_secs())]
    Facts,
}

impl NodeError {
    /// How long the server wants to be left alone.
    pub fn wait(&self) -> Duration {
        match self {
            Self::Create(error) | Self::Get(error) | Self::Patch(error) => wait(error),
            Self::Facts => Duration::ZERO,
        }
    }
}

/// How long the server wants to be left alone.
pub(super) fn wait(error: &ApiError) -> Duration {
    error.retry_after().unwrap_or_default().min(WAIT_MAX)
}

/// What the parts share.
pub(super) struct Context {
    pub settings: NodeSettings,
    pub api: Arc<dyn Api>,
    pub facts: Arc<dyn Facts>,
    pub reports: Arc<dyn Reports>,
    pub clock: Clock,
    pub spread: Spread,
    pub latest: Latest,
    pub health: watch::Sender<NodeHealth>,
    pub poke: Arc<Notify>,
}

impl Context {
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A period, a little longer each time by another length.
    pub fn jittered(&self, period: Duration) -> Duration {
        period + (self.spread)(period / 25)
    }

    /// What the node is like.
    pub async fn gather(&self, anew: bool) -> Result<NodeFacts, NodeError> {
        timeout(FACTS_LIMIT, self.facts.gather(anew)).await.map_err(|_| NodeError::Facts)
    }

    /// Remembers what failed.
    pub fn fails(&self, what: &'static str, why: &str) {
        let now = self.now();
        self.health.send_modify(|health| health.fails(now, what, why));
    }

    /// Something worked; notes when.
    pub fn works(&self, what: &'static str, note: impl FnOnce(&mut NodeHealth, Timestamp)) {
        let now = self.now();
        self.health.send_modify(|health| {
            health.works(what);
            note(health, now);
        });
    }

    /// Reads the Node; `cached` if the server may answer from memory.
    pub async fn get_node(&self, cached: bool) -> Result<OwnNode, ApiError> {
        let mut path = self.node_path(&[]);
        if cached {
            path.push_str("?resourceVersion=0");
        }
        let call = Call::get(&path).within(self.settings.heartbeat_limit());
        let node = self.api.call(call).await?;
        Ok(self.latest.offer(node))
    }

    /// Changes the Node's status, labels and annotations.
    pub async fn patch_node(&self, patch: Value) -> Result<OwnNode, NodeError> {
        let path = self.node_path(&["status"]);
        let call = Call::patch(&path, Patch::Strategic, patch);
        let call = call.within(self.settings.heartbeat_limit());
        let node = self.api.call(call).await.map_err(NodeError::Patch)?;
        Ok(self.latest.offer(node))
    }

    /// Makes the Node.
    pub async fn create_node(&self, node: Value) -> Result<OwnNode, NodeError> {
        let node = self.api.call(Call::post("/api/v1/nodes", node)).await;
        Ok(self.latest.offer(node.map_err(NodeError::Create)?))
    }

    fn node_path(&self, part: &[&str]) -> String {
        let mut rest = vec!["nodes", self.settings.name.as_str()];
        rest.extend(part);
        path("api/v1", "", &rest)
    }
}
