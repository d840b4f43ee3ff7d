//! SPDY inside a WebSocket: every message is a piece of the byte stream.
//!
//! Upstream: apiserver util/proxy (streamtunnel.go), client-go tools/portforward
//! (tunneling_connection.go).

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::splice::{Activity, GRACE};
use super::websocket;
use crate::auth::protocols;

/// What stands before the name of the protocol inside.
pub(super) const PREFIX: &str = "SPDY/3.1+";
const SUFFIX: &str = ".k8s.io";
/// The one tunnel that is known.
const PORT_FORWARD: &str = "SPDY/3.1+portforward.k8s.io";
/// Bytes of a message.
const MESSAGE_BYTES: usize = 32 << 10;

/// Is a tunnel asked for?
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    protocols(headers).any(|protocol| protocol == PORT_FORWARD)
}

/// The protocols inside, as the runtime is to choose from.
pub(super) fn versions(headers: &HeaderMap) -> Vec<HeaderValue> {
    let mut versions = Vec::new();
    for protocol in protocols(headers).filter(|protocol| protocol.ends_with(SUFFIX)) {
        let inside = protocol.strip_prefix(PREFIX);
        versions.extend(inside.and_then(|inside| HeaderValue::from_str(inside).ok()));
    }
    versions
}

/// Carries bytes until one end has had enough.
pub(super) async fn run(client: OnUpgrade, runtime: TcpStream, already: Bytes, idle: Duration) {
    let Some(socket) = websocket::open(client).await else {
        return tracing::debug!("a client left before its tunnel began");
    };
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_runtime, mut to_runtime) = runtime.into_split();
    let activity = Activity::new(idle);
    let there = async {
        while let Some(Ok(message)) = from_client.next().await {
            activity.note();
            match message {
                Message::Binary(bytes) if to_runtime.write_all(&bytes).await.is_err() => break,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
                // There is no other kind in a tunnel.
                _ => break,
            }
        }
    };
    let back = async {
        let mut piece = already;
        let mut buffer = vec![0; MESSAGE_BYTES];
        loop {
            if !piece.is_empty() && to_client.send(Message::Binary(piece)).await.is_err() {
                return;
            }
            activity.note();
            piece = match from_runtime.read(&mut buffer).await {
                Ok(count @ 1..) => Bytes::copy_from_slice(&buffer[..count]),
                Ok(0) | Err(_) => break,
            };
        }
        // A client that is gone already needs no farewell.
        let _ = timeout(GRACE, to_client.close()).await;
    };
    tokio::select! {
        () = there => {}
        () = back => {}
        () = activity.over() => tracing::debug!("nothing passed through a tunnel for too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_inside_is_the_runtimes() {
        let mut headers = HeaderMap::new();
        let offered = "SPDY/3.1+portforward.k8s.io, v4.channel.k8s.io, SPDY/3.1+x";
        headers.insert("sec-websocket-protocol", HeaderValue::from_static(offered));
        assert!(is_wanted(&headers));
        assert_eq!(versions(&headers), ["portforward.k8s.io"]);
        headers.insert("sec-websocket-protocol", HeaderValue::from_static("v4.channel.k8s.io"));
        assert!(!is_wanted(&headers));
    }
}
