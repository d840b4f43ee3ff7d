//! Binding and serving with limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::ports::Tasks;

/// Connections served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// A client that has not sent its headers by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest set of headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Pause after accepting failed, e.g. for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    let spawner = tasks.clone();
    tasks.spawn(async move { accept(spawner, listener, router).await });
    tracing::info!(address = %local, what, "listening");
    Ok(local)
}

async fn accept(tasks: Tasks, listener: TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = router.clone();
        tasks.spawn(async move {
            let _slot = slot;
            let service = TowerToHyperService::new(router);
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(HEADER_BYTES_MAX);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // A client that misbehaves or leaves early is its own concern.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
    }
}
