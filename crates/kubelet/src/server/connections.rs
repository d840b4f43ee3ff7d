//! Accepts connections of the local socket and serves them, bounded in number and size.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;

use crate::ports::Tasks;

/// Connections of one listener served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// A client that has not sent its headers by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest set of headers; a path holds names only.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Serves the router to whoever connects, without a limit in time: `klet logs -f` stays for
/// as long as it likes.
pub(super) async fn serve_all(tasks: Tasks, mut listener: impl Listener, router: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        // It waits a while by itself when accepting fails, e.g. for want of file descriptors.
        let (stream, _) = listener.accept().await;
        let router = router.clone();
        tasks.spawn(async move {
            let _slot = slot;
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(HEADER_BYTES_MAX);
            let service = TowerToHyperService::new(router);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // A client that misbehaves or leaves early is its own concern.
            drop(connection.await);
        });
    }
}
