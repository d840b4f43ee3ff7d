//! Accepting connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_client::Clock;
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::connection;
use crate::doors::{Doors, Entrance};
use crate::requests::Requests;
use crate::routes::Handlers;
use crate::slis::Slis;
use crate::slots::{ConnectionLimits, Slots};
use crate::view::NodeView;

/// How long to wait when accepting fails, as it does without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is told that there is no room, or no certificate.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Work for somebody to run.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Runs work beside its own; it ends when whoever runs it drops it.
pub type Spawn = Arc<dyn Fn(BoxFuture) + Send + Sync>;

/// How a server is to be.
pub struct ServerOptions {
    /// Who gets in.
    pub doors: Doors,
    /// Which handlers there are, as far as the doors allow them.
    pub handlers: Handlers,
    /// Where the node's logs are, such as `/var/log`.
    pub log_dir: PathBuf,
    /// `streamingConnectionIdleTimeout`; zero for none.
    pub stream_idle: Duration,
    /// How many may connect.
    pub connections: ConnectionLimits,
    /// Hears of requests.
    pub requests: Arc<dyn Requests>,
    /// When the process started, for metrics.
    pub started: Option<Timestamp>,
    /// What time it is, for certificates.
    pub clock: Clock,
    /// Runs connections.
    pub spawn: Spawn,
}

/// What all connections share.
pub(crate) struct Shared {
    pub entrance: Entrance,
    pub handlers: Handlers,
    pub log_dir: PathBuf,
    pub stream_idle: Duration,
    pub requests: Arc<dyn Requests>,
    pub slis: Slis,
    pub started: Option<Timestamp>,
    pub clock: Clock,
    pub spawn: Spawn,
    pub view: Arc<dyn NodeView>,
    /// When it was last told that there is no certificate.
    told_none: Mutex<Option<Instant>>,
}

impl Shared {
    /// Somebody connected in vain. Anybody may, any number of times.
    pub(crate) fn tell_no_certificate(&self, from: SocketAddr) {
        let mut told = self.told_none.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            let error = "no serving certificate available for the kubelet";
            tracing::warn!(%from, error, "a TLS handshake failed");
        }
    }
}

/// The server.
pub struct NodeServer {
    shared: Arc<Shared>,
    slots: Arc<Slots>,
    /// When it was last told that there is no room.
    told_full: Option<Instant>,
}

impl NodeServer {
    /// A server of what a view shows.
    pub fn new(options: ServerOptions, view: Arc<dyn NodeView>) -> Self {
        let entrance = Entrance::new(options.doors);
        let shared = Shared {
            handlers: entrance.handlers(options.handlers),
            entrance,
            log_dir: options.log_dir,
            stream_idle: options.stream_idle,
            requests: options.requests,
            slis: Slis::default(),
            started: options.started,
            clock: options.clock,
            spawn: options.spawn,
            view,
            told_none: Mutex::new(None),
        };
        let slots = Slots::new(options.connections);
        Self { shared: Arc::new(shared), slots, told_full: None }
    }

    /// Accepts connections until it is dropped; they go on with whoever runs them.
    pub async fn run(mut self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => self.accept(stream, from),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn accept(&mut self, stream: TcpStream, from: SocketAddr) {
        let Some((ticket, evicted)) = self.slots.take(from.ip()) else {
            if self.told_full.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                self.told_full = Some(Instant::now());
                tracing::warn!(%from, "no room for another connection");
            }
            return;
        };
        let shared = Arc::clone(&self.shared);
        (self.shared.spawn)(Box::pin(async move {
            tokio::select! {
                biased;
                _ = evicted => tracing::debug!(%from, "a connection made room for others"),
                () = connection::serve(shared, stream, from, ticket) => {}
            }
        }));
    }
}
