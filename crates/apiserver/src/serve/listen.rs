//! Accepting connections, up to a number of them, until told to stop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{self, Handler};
use super::tls;
use crate::auth::certificate_user;
use crate::http_api::Peer;

/// Connections at once; beyond that new ones wait in the kernel's queue.
const CONNECTIONS: usize = 1024;
/// How long a client may take over the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to wait when accepting fails, as it does without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves a listener until `stopped`, then lets open requests finish.
pub(super) async fn run(
    listener: TcpListener,
    tls: Option<tls::Acceptor>,
    handler: Handler,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections: JoinSet<u64> = JoinSet::new();
    let mut stops: BTreeMap<u64, oneshot::Sender<()>> = BTreeMap::new();
    let mut next = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stopped => break,
            Some(ended) = connections.join_next() => {
                if let Ok(id) = ended {
                    stops.remove(&id);
                }
                continue;
            }
            accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (stop, told) = oneshot::channel();
        stops.insert(next, stop);
        let (tls, handler, id) = (tls.clone(), Handler::clone(&handler), next);
        connections.spawn(async move {
            serve(stream, from, tls, handler, told).await;
            id
        });
        next += 1;
    }
    drop(listener);
    for (_, stop) in stops {
        // One that has ended meanwhile need not be told.
        let _ = stop.send(());
    }
    while connections.join_next().await.is_some() {}
}

async fn serve(
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<tls::Acceptor>,
    handler: Handler,
    told: oneshot::Receiver<()>,
) {
    // Events are small and urgent.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%from, %error, "cannot send small packets at once");
    }
    let Some(tls) = tls else {
        return connection::serve(stream, Peer::default(), handler, told).await;
    };
    let stream = match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%from, %error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!(%from, "a TLS handshake took too long"),
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let user = match shown.map(|certificate| certificate_user(certificate)).transpose() {
        Ok(user) => user,
        Err(error) => return tracing::warn!(%from, %error, "refused a client certificate"),
    };
    connection::serve(stream, Peer { user }, handler, told).await;
}
