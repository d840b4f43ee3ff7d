//! The node's CSINode object: made at the start, and kept saying which CSI drivers are
//! here.
//!
//! Owns that object, and of the Node the annotation with drivers' ids and the labels of
//! their topology. Reads which drivers there are through [`Registered`] at the moment it
//! writes, so that an order of calls cannot leave it wrong. Never ends the agent: what
//! fails is tried again, and until the object is there the node is not ready, as
//! [`CsiNodeHandle::problem`] tells. Upstream: pkg/volume/csi/nodeinfomanager,
//! initializeCSINode of pkg/volume/csi/csi_plugin.go.

mod plan;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api_client::{Api, Spread};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub use plan::Driver;
use write::{WriteError, Writer};

/// Registrations that wait for their turn; a node has a handful of drivers.
const ASKS_MAX: usize = 64;
/// Tries of one change, and the pauses between them, as upstream.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_FACTOR: u32 = 5;
/// Pauses between attempts to make the object. Upstream gives up after some minutes and
/// ends itself.
const INIT_FIRST: Duration = Duration::from_millis(30);
const INIT_FACTOR: u32 = 8;
const INIT_MAX: Duration = Duration::from_secs(60);
/// Pause before a driver that has gone is taken out again.
const RETRY: Duration = Duration::from_secs(10);
/// How long a driver waits for the cluster to know the node.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(60);
/// What keeps the node from being ready until the object was written first.
const NOT_YET: &str = "CSINode is not yet initialized";

/// Knows which drivers are here.
pub trait Registered: Send + Sync + 'static {
    /// What a driver says of the node; nothing if it is not registered.
    fn driver(&self, name: &str) -> Option<Driver>;
    /// Names of all that are.
    fn names(&self) -> Vec<String>;
}

/// A driver is not announced to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnnounced {
    /// In upstream's words.
    #[error("error updating {object} object with CSI driver node info: {why}")]
    Write {
        /// `Node` or `CSINode`.
        object: &'static str,
        /// Why.
        why: String,
    },
    /// The API server knows nothing of the node.
    #[error(
        "no CSINode object could be made in {} s: see whether the API server answers and the node \
         is registered",
        ANNOUNCE_LIMIT.as_secs()
    )]
    NoNode,
    /// Nobody announces anything any more.
    #[error("the node is shutting down")]
    Ended,
}

struct Ask {
    driver: String,
    reply: oneshot::Sender<Result<(), NotAnnounced>>,
}

#[derive(Default)]
struct Gone {
    names: Mutex<BTreeSet<String>>,
    news: Notify,
}

impl Gone {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.names.lock().expect("drivers lock: no code panics while holding it")
    }
}

/// Asks for drivers to be announced. Cheap to clone.
#[derive(Clone)]
pub struct CsiNodeHandle {
    asks: mpsc::Sender<Ask>,
    gone: Arc<Gone>,
    problem: watch::Receiver<Option<String>>,
}

impl CsiNodeHandle {
    /// Returns once the cluster knows of a driver that is registered.
    ///
    /// # Errors
    /// It cannot be told, or contradicts what it is told.
    pub async fn announce(&self, driver: &str) -> Result<(), NotAnnounced> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { driver: driver.to_owned(), reply };
        let answered = timeout(ANNOUNCE_LIMIT, async {
            self.asks.send(ask).await.map_err(|_| NotAnnounced::Ended)?;
            answer.await.unwrap_or(Err(NotAnnounced::Ended))
        });
        answered.await.unwrap_or(Err(NotAnnounced::NoNode))
    }

    /// A driver has gone; the cluster is told as soon as it can be.
    pub fn withdraw(&self, driver: &str) {
        self.gone.lock().insert(driver.to_owned());
        self.gone.news.notify_one();
    }

    /// What keeps the node from being ready.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.clone()
    }
}

/// Keeps the object: does nothing until it is run.
pub struct CsiNodeKeeper {
    writer: Writer,
    registered: Arc<dyn Registered>,
    /// The uid of the Node, while there is one.
    node: watch::Receiver<Option<String>>,
    asks: mpsc::Receiver<Ask>,
    gone: Arc<Gone>,
    problem: watch::Sender<Option<String>>,
    /// The Node whose object was made.
    made_for: Option<String>,
    init_pause: Duration,
}

/// What the keeper works with.
pub struct CsiNodeParts {
    /// The node's name.
    pub node_name: String,
    /// The API server.
    pub api: Arc<dyn Api>,
    /// Which drivers there are.
    pub registered: Arc<dyn Registered>,
    /// The uid of the Node object, while there is one.
    pub node: watch::Receiver<Option<String>>,
    /// Makes pauses differ.
    pub spread: Spread,
}

/// A keeper to run, and a handle for everybody else.
pub fn new(parts: CsiNodeParts) -> (CsiNodeHandle, CsiNodeKeeper) {
    let CsiNodeParts { node_name, api, registered, node, spread } = parts;
    let (sender, asks) = mpsc::channel(ASKS_MAX);
    let (problem, told) = watch::channel(Some(NOT_YET.to_owned()));
    let gone = Arc::new(Gone::default());
    let handle = CsiNodeHandle { asks: sender, gone: Arc::clone(&gone), problem: told };
    let keeper = CsiNodeKeeper {
        writer: Writer { node_name, api, spread },
        registered,
        node,
        asks,
        gone,
        problem,
        made_for: None,
        init_pause: INIT_FIRST,
    };
    (handle, keeper)
}

impl CsiNodeKeeper {
    /// Runs until nobody can ask for anything any more.
    pub async fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let uid = self.node.borrow_and_update().clone();
            let to_make = uid.is_some() && uid != self.made_for;
            let to_withdraw = self.made_for.is_some() && !self.gone.lock().is_empty();
            tokio::select! { biased;
                changed = self.node.changed() => match changed {
                    Ok(()) => next = Instant::now(),
                    Err(_) => return,
                },
                () = sleep_until(next), if to_make || to_withdraw => {
                    next = Instant::now() + match to_make {
                        true => self.initialise(uid.unwrap_or_default()).await,
                        false => self.withdraw_all().await,
                    };
                }
                // Those that come before wait.
                ask = self.asks.recv(), if self.made_for.is_some() => {
                    let Some(Ask { driver, reply }) = ask else { return };
                    // Whoever asked may have gone.
                    let _ = reply.send(self.announce(&driver).await);
                }
                () = self.gone.news.notified() => {
                    if self.made_for.is_some() {
                        next = Instant::now();
                    }
                }
            }
        }
    }

    /// Makes the object, or finds it made. Returns the pause before the next step.
    async fn initialise(&mut self, uid: String) -> Duration {
        let writer = &self.writer;
        match tries(&writer.spread, || writer.initialise(&uid)).await {
            Ok(()) => {
                tracing::info!(node = writer.node_name, "the CSINode object is in place");
                self.made_for = Some(uid);
                self.init_pause = INIT_FIRST;
                self.problem.send_replace(None);
                // An object that was made anew knows none of them.
                for name in self.registered.names() {
                    if let Err(error) = self.announce(&name).await {
                        tracing::warn!(driver = name, %error, "CSI driver not announced");
                    }
                }
                Duration::ZERO
            }
            Err(error) => {
                let error = format!(
                    "failed to initialize CSINode: error updating CSINode annotation: timed out \
                     waiting for the condition; caused by: {error}"
                );
                let pause = self.init_pause;
                tracing::warn!(error, retry = ?pause, "the node is not ready for CSI volumes");
                self.problem.send_replace(Some(error));
                self.init_pause = pause.saturating_mul(INIT_FACTOR).min(INIT_MAX);
                pause
            }
        }
    }

    /// Has the objects say what is true of a driver now.
    async fn announce(&self, name: &str) -> Result<(), NotAnnounced> {
        let Some(uid) = self.made_for.as_ref() else { return Err(NotAnnounced::NoNode) };
        let Some(driver) = self.registered.driver(name) else { return Ok(()) };
        let (writer, wrong) = (&self.writer, |object| {
            move |error: WriteError| NotAnnounced::Write { object, why: error.to_string() }
        });
        tries(&writer.spread, || writer.node_with(&driver)).await.map_err(wrong("Node"))?;
        tries(&writer.spread, || writer.with(uid, &driver)).await.map_err(wrong("CSINode"))
    }

    /// Takes out those that have gone. Returns the pause before the next step.
    async fn withdraw_all(&mut self) -> Duration {
        let names = self.gone.lock().clone();
        let mut pause = Duration::ZERO;
        for name in names {
            // One that is back was announced, or will be.
            let withdrawn = match self.registered.driver(&name) {
                Some(_) => Ok(()),
                None => self.withdraw(&name).await,
            };
            match withdrawn {
                Ok(()) => drop(self.gone.lock().remove(&name)),
                Err(error) => {
                    tracing::warn!(driver = name, %error, "the cluster still lists a CSI driver that has gone; trying again");
                    pause = RETRY;
                }
            }
        }
        pause
    }

    async fn withdraw(&self, name: &str) -> Result<(), WriteError> {
        let writer = &self.writer;
        tries(&writer.spread, || writer.without(name)).await?;
        tries(&writer.spread, || writer.node_without(name)).await
    }
}

/// Tries a change some times in a row.
async fn tries<F: Future<Output = Result<(), WriteError>>>(
    spread: &Spread,
    change: impl Fn() -> F,
) -> Result<(), WriteError> {
    let (mut pause, mut tried) = (PAUSE, 1);
    loop {
        match change().await {
            Ok(()) => return Ok(()),
            Err(error) if tried == TRIES => return Err(error),
            Err(_) => {}
        }
        tried += 1;
        sleep(pause + spread(pause / 10)).await;
        pause = pause.saturating_mul(PAUSE_FACTOR);
    }
}
