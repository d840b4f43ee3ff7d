//! Objects that pods name: read when they are wanted, and kept up to date as the
//! configuration says.
//!
//! Owns one watch, or one timer, for each object that is wanted; who wants what comes in
//! as a set. Tells a listener what objects are, and readers whether what they were told
//! is good enough. Keeps no object, so it cannot print one. Never decides what a change
//! means. Upstream: pkg/kubelet/util/manager.

mod address;
mod decode;
mod entry;
mod lanes;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, Spread};
use kubelet_model::quote;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use address::{
    ATTACHMENTS, Address, CLAIMS, CONFIG_MAPS, CSI_DRIVERS, Means, RUNTIME_CLASSES, Resource,
    SECRETS, SERVICES, TRUST_BUNDLES, VOLUMES,
};
pub use decode::config_object;
pub use lanes::Connect;
pub use run::Objects;

use entry::Way;

/// Reads that wait to be looked at. Whoever reads beyond that waits for a place.
const READS_MAX: usize = 256;
/// How long a reader waits for an object that is watched, as upstream.
const WATCHED_LIMIT: Duration = Duration::from_secs(1);
/// How long a reader waits for an object that is asked for: longer than a request takes,
/// as it may have to wait for others.
const ASKED_LIMIT: Duration = Duration::from_secs(60);
/// How long an object is fresh unless the node's annotation says otherwise.
const TTL: Duration = Duration::from_secs(60);

/// How ConfigMaps and Secrets are kept up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Every change is heard of.
    Watch,
    /// They are asked for when they are read and older than they may be.
    Cache,
    /// They are asked for whenever they are read.
    Get,
}

/// What an object is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Changes matter for as long as it is wanted: volumes.
    Held,
    /// It is read now and then: variables, and secrets of image registries.
    Read,
}

/// Which objects are wanted, and what for.
pub type Wanted = Arc<BTreeMap<Address, Use>>;

/// How objects are kept up to date.
#[derive(Clone)]
pub struct Settings {
    /// `configMapAndSecretChangeDetectionStrategy`.
    pub strategy: Strategy,
    /// `syncFrequency`: how often objects are read that are held and not watched; and a
    /// watch ends after five times as long without a reader.
    pub sync_frequency: Duration,
    /// How long an object is fresh, for [`Strategy::Cache`]; see [`ttl`].
    pub ttl: Arc<dyn Fn() -> Duration + Send + Sync>,
}

/// How long objects are fresh, by the node's annotation `node.alpha.kubernetes.io/ttl`.
pub fn ttl(annotation: Option<&str>) -> Duration {
    match annotation.and_then(|text| text.parse::<i64>().ok()) {
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        None => TTL,
    }
}

/// Is told what objects are. Called from one place only, so it must not block.
pub trait Listener: Send + Sync + 'static {
    /// It is there, or has changed.
    ///
    /// # Errors
    /// Why it cannot be used; readers are told.
    fn present(&self, at: &Address, object: Value) -> Result<(), String>;
    /// It is not there, or no longer.
    fn absent(&self, at: &Address);
    /// Nobody wants it any more: nothing will be heard of it.
    fn forget(&self, at: &Address);
}

/// Why an object cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Nobody said it is wanted.
    #[error("object {}/{} not registered", quote::go(&.0.namespace), quote::go(&.0.name))]
    NotWanted(Box<Address>),
    /// There is none; in upstream's words, or the server's.
    #[error("{0}")]
    NotFound(String),
    /// The server refuses to tell, or is away.
    #[error("failed to sync {} cache: {error}", .at.resource.shown)]
    Failing {
        /// Which object.
        at: Box<Address>,
        /// What the server says.
        error: ApiError,
    },
    /// The same of an object that is not watched, in the server's words alone.
    #[error("{0}")]
    Refused(ApiError),
    /// The server has not answered yet.
    #[error("failed to sync {} cache: timed out waiting for the condition", .0.resource.shown)]
    Late(Box<Address>),
    /// It is there but cannot be used.
    #[error("{at}: {why}")]
    Unusable {
        /// Which object.
        at: Box<Address>,
        /// What is wrong with it; no values.
        why: String,
    },
    /// Objects are no longer read.
    #[error("{0}: the node is shutting down")]
    Ended(Box<Address>),
}

type Reply = oneshot::Sender<Result<(), Trouble>>;

/// Somebody wants to read an object.
struct Read {
    at: Address,
    anew: bool,
    reply: Reply,
}

/// Asks for objects before they are read. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    reads: mpsc::Sender<Read>,
    strategy: Strategy,
}

impl Reader {
    /// Returns once the listener knows the object as fresh as the configuration demands.
    ///
    /// # Errors
    /// There is none, or nothing can be learnt of it.
    pub async fn read(&self, at: &Address) -> Result<(), Trouble> {
        self.ask(at, false).await
    }

    /// The same for somebody who is new to the object: what was asked for in the past
    /// is not fresh enough.
    ///
    /// # Errors
    /// There is none, or nothing can be learnt of it.
    pub async fn read_anew(&self, at: &Address) -> Result<(), Trouble> {
        self.ask(at, true).await
    }

    async fn ask(&self, at: &Address, anew: bool) -> Result<(), Trouble> {
        let limit = match Way::of(at.resource, self.strategy) {
            Way::Watched => WATCHED_LIMIT,
            Way::Cached | Way::Live => ASKED_LIMIT,
        };
        let answered = timeout(limit, async {
            let (reply, answer) = oneshot::channel();
            self.reads.send(Read { at: at.clone(), anew, reply }).await.ok()?;
            answer.await.ok()
        });
        match answered.await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(Trouble::Ended(Box::new(at.clone()))),
            Err(_) => Err(Trouble::Late(Box::new(at.clone()))),
        }
    }
}

/// What keeps objects up to date, and who reads them.
pub fn new(
    connect: Connect,
    settings: Settings,
    wanted: watch::Receiver<Wanted>,
    listener: Arc<dyn Listener>,
    spread: Spread,
) -> (Objects, Reader) {
    let (reads, asked) = mpsc::channel(READS_MAX);
    let reader = Reader { reads, strategy: settings.strategy };
    (Objects::new(connect, settings, wanted, asked, listener, spread), reader)
}
