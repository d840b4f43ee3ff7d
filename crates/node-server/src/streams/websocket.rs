//! The server's side of a WebSocket: accepting it, and its limits.

use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::splice::GRACE;
use crate::answer::{self, Reply};
use crate::auth::protocols;

/// Largest message taken.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A WebSocket with a client.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The answer that begins a WebSocket with one of the protocols it was offered for.
pub(super) fn accept<B>(request: &Request<B>, protocol: &str) -> Result<Reply, Box<Reply>> {
    let bad = |why: &str| Err(Box::new(answer::error(StatusCode::BAD_REQUEST, why)));
    if request.method() != Method::GET {
        return bad("bad method: a WebSocket begins with GET");
    }
    if request.headers().get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return bad("missing or bad WebSocket Version");
    }
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).filter(|key| key.len() == 24) else {
        return bad("missing or bad WebSocket key");
    };
    let offered = protocols(request.headers()).any(|offered| offered == protocol);
    let protocol = HeaderValue::from_str(protocol).ok().filter(|_| offered);
    let Some(protocol) = protocol else {
        return bad("requested protocol(s) are not supported");
    };
    let Ok(accepted) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) else {
        return bad("missing or bad WebSocket key");
    };
    let mut reply = Response::new(answer::full(""));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    Ok(reply)
}

/// The WebSocket, once the client has taken it up.
pub(super) async fn open(client: OnUpgrade) -> Option<Socket> {
    let client = timeout(GRACE, client).await.ok()?.ok()?;
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    Some(WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, Some(limits)).await)
}

/// Without what only concerns a WebSocket.
pub(super) fn remove_headers(headers: &mut HeaderMap) {
    let own = [
        SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION,
        SEC_WEBSOCKET_EXTENSIONS,
        UPGRADE,
    ];
    for name in own {
        headers.remove(name);
    }
}
