//! Ports without TLS: opened once, served until the agent ends.
//!
//! Anybody may ask there, so nothing on them changes anything, and whoever connects and
//! says nothing makes room for others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node_server::{ConnectionLimits, Doors, RequestKind, Requests, ServerOptions};
use tokio::net::TcpListener;

use super::secure::Pages;
use crate::ports::Tasks;

/// Connections of one port; those of one peer are fewer, and on the loopback all are of
/// one.
const CONNECTIONS: ConnectionLimits = ConnectionLimits { total: 200, per_peer: 100 };

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {what}: {source}; is another kubelet running?")]
pub struct ListenError {
    address: SocketAddr,
    what: &'static str,
    source: std::io::Error,
}

/// A port for anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// `readOnlyPort`: what is not for debugging.
    ReadOnly,
    /// `healthzPort`: the agent's one thread turns. Should a part that nothing works
    /// without panic, the agent ends. Whether the runtime answers is told per pod and in
    /// the log, not here: restarting the agent would not mend it.
    Health,
}

impl Open {
    fn what(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only API",
            Self::Health => "health",
        }
    }
}

/// Upstream's metrics tell of two servers, and this is not one of them.
struct Uncounted;

impl Requests for Uncounted {
    fn began(&self, _: RequestKind) {}
    fn ended(&self, _: RequestKind, _: Duration) {}
    fn websocket(&self, _: &'static str) {}
}

/// Opens a port and serves it until the agent ends.
pub async fn serve(
    tasks: &Tasks,
    open: Open,
    address: SocketAddr,
    pages: &Pages,
) -> Result<SocketAddr, ListenError> {
    let what = open.what();
    let fail = |source| ListenError { address, what, source };
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let local = listener.local_addr().map_err(fail)?;
    let doors = match open {
        Open::ReadOnly => Doors::Open,
        Open::Health => Doors::Health,
    };
    let requests: Arc<dyn Requests> = match open {
        Open::ReadOnly => pages.metrics().requests.of_read_only(),
        Open::Health => Arc::new(Uncounted),
    };
    let options =
        ServerOptions { connections: CONNECTIONS, ..pages.options(tasks, doors, requests) };
    tasks.spawn(pages.server(options).run(listener));
    tracing::info!(address = %local, what, "listening");
    Ok(local)
}
