//! Ports: opened once, served until the agent ends.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use super::connections::serve_all;
use crate::ports::Tasks;

/// Longest life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {what}: {source}; is another kubelet running?")]
pub struct ListenError {
    address: SocketAddr,
    what: &'static str,
    source: std::io::Error,
}

/// Opens a port and serves the router on it until the agent ends.
pub async fn serve(
    tasks: &Tasks,
    what: &'static str,
    address: SocketAddr,
    router: Router,
) -> Result<SocketAddr, ListenError> {
    let fail = |source| ListenError { address, what, source };
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let local = listener.local_addr().map_err(fail)?;
    tasks.spawn(serve_all(tasks.clone(), listener, router, Some(CONNECTION_TIMEOUT)));
    tracing::info!(address = %local, what, "listening");
    Ok(local)
}
