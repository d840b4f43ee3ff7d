//! The container runtime's end of a stream: dials it and asks for the upgrade.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, UPGRADE};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::{self, Reply};

/// The protocol that every runtime speaks.
pub(super) const SPDY: &str = "SPDY/3.1";
/// Time to connect and to be answered.
const LIMIT: Duration = Duration::from_secs(30);
/// As much of a refusal as is passed on.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// What became of a call to the runtime.
pub(super) enum Dialed {
    /// It speaks the other protocol now.
    Upgraded {
        head: Box<Parts>,
        stream: TcpStream,
        /// What it sent already.
        already: Bytes,
    },
    /// It does not, and says why.
    Refused(Box<Reply>),
}

/// Asks for an upgrade at an address such as `http://127.0.0.1:40000/exec/token`.
pub(super) async fn dial(url: &str, method: Method, headers: HeaderMap) -> Result<Dialed, String> {
    timeout(LIMIT, upgrade(url, method, headers)).await.unwrap_or_else(|_| {
        Err(format!("error dialing backend: no answer within {} seconds", LIMIT.as_secs()))
    })
}

/// Host and port, and the rest, of an address over plain HTTP.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    (!host.is_empty()).then_some((host, path))
}

async fn upgrade(url: &str, method: Method, headers: HeaderMap) -> Result<Dialed, String> {
    // The rest of the address opens the stream: it is nothing to tell a client or a log.
    let (host, path) = split(url)
        .ok_or("error dialing backend: the runtime's address of the stream is not plain HTTP")?;
    let failed = |error: &dyn std::fmt::Display| format!("error dialing backend: {error}");
    let stream = TcpStream::connect(host).await.map_err(|error| failed(&error))?;
    stream.set_nodelay(true).map_err(|error| failed(&error))?;
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in &headers {
        request = request.header(name, value);
    }
    let request = request.header(HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| failed(&error))?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(&error))?;
    let mut driver = pin!(connection.without_shutdown());
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Ok(head));
        }
        let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Ok::<_, String>(Err(refusal(&head, body)))
    };
    let (mut answer, mut done) = (pin!(answer), None);
    let head = poll_fn(|context| {
        if done.is_none()
            && let Poll::Ready(parts) = driver.as_mut().poll(context)
        {
            done = Some(parts);
        }
        answer.as_mut().poll(context)
    })
    .await?;
    let head = match head {
        Ok(head) => head,
        Err(refused) => return Ok(Dialed::Refused(Box::new(refused))),
    };
    let parts = match done {
        Some(parts) => parts,
        None => driver.await,
    };
    let parts = parts.map_err(|error| failed(&error))?;
    let (stream, already) = (parts.io.into_inner(), parts.read_buf);
    Ok(Dialed::Upgraded { head: Box::new(head), stream, already })
}

/// What the runtime says is passed on, if it is an error.
fn refusal(head: &Parts, body: Bytes) -> Reply {
    if head.status.as_u16() < 400 {
        let status = head.status.as_u16();
        let why = format!("invalid upgrade response: status code {status}");
        return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &why);
    }
    let mut reply = Response::new(answer::full(body));
    *reply.status_mut() = head.status;
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = head.headers.get(&name) {
            reply.headers_mut().insert(name, value.clone());
        }
    }
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
    reply
}

/// Does the runtime say that it speaks SPDY now?
pub(super) fn speaks_spdy(headers: &HeaderMap) -> bool {
    let says = |name, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(wanted))
    };
    says(CONNECTION, "upgrade") && says(UPGRADE, "spdy/3.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_http() {
        assert_eq!(split("http://127.0.0.1:1/exec/t"), Some(("127.0.0.1:1", "/exec/t")));
        assert_eq!(split("http://[::1]:1/x?y"), Some(("[::1]:1", "/x?y")));
        for url in ["https://127.0.0.1/x", "http:///x", "http://h", "", "/exec/t"] {
            assert_eq!(split(url), None, "{url}");
        }
    }
}
