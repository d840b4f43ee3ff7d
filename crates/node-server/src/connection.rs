//! One connection: the handshake, then requests, one after the other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::answer::Held;
use crate::handle;
use crate::listen::Shared;
use crate::patience::{Busy, Patience};
use crate::requests::{Counted, request_kind};
use crate::slots::Ticket;

/// How long a client may take over the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may rest between requests, as upstream's.
const IDLE: Duration = Duration::from_secs(90);
/// Bytes of a header. Upstream takes 1 MiB; a path, which holds a command to run, has
/// at most 64 KiB here.
const HEADER_BYTES_MAX: usize = 128 << 10;
const HEADERS_MAX: usize = 128;

/// Who is at the other end.
pub(crate) struct Peer {
    pub address: SocketAddr,
    pub chain: Vec<CertificateDer<'static>>,
    pub ticket: Ticket,
}

/// Serves a connection to its end.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    ticket: Ticket,
) {
    // Keys typed are not to wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        return tracing::debug!(%address, %error, "a connection is over already");
    }
    let Some(guard) = shared.entrance.guard() else {
        let peer = Peer { address, chain: Vec::new(), ticket };
        return converse(shared, stream, peer).await;
    };
    let tls = &guard.tls;
    let stream = match timeout(HANDSHAKE, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) if !tls.serving().is_set() => return shared.tell_no_certificate(address),
        Ok(Err(error)) => return tracing::debug!(%address, %error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "a TLS handshake took too long"),
    };
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let mut chain = Vec::new();
    for certificate in shown {
        chain.push(certificate.clone().into_owned());
    }
    converse(shared, stream, Peer { address, chain, ticket }).await;
}

/// Answers requests, one after the other.
async fn converse<S>(shared: Arc<Shared>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (address, peer) = (peer.address, Arc::new(peer));
    let busy = Busy::default();
    let io = TokioIo::new(Patience::new(stream, busy.clone()));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let answering = busy.begin();
        let kind = request_kind(request.method(), request.uri().path(), &shared.handlers);
        let counted = Counted::begin(&shared.requests, kind);
        // Streams outlive the answer that begins them.
        request.extensions_mut().insert(Arc::clone(&counted));
        let (shared, peer) = (Arc::clone(&shared), Arc::clone(&peer));
        async move {
            let reply = handle::answer(&shared, &peer, request).await;
            let reply: Response<Held> = Held::new(reply, answering, counted);
            Ok::<_, Infallible>(reply)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%address, %error, "a connection broke");
    }
}
