//! Turns an HTTP request into a stream of another protocol, as a client.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::StreamError;

/// As much of a refusal as is shown.
const REFUSAL_BYTES_MAX: usize = 4 << 10;

/// A stream after the upgrade.
pub(crate) struct Upgraded {
    pub stream: TcpStream,
    /// What the other end sent already.
    pub already: Bytes,
    pub headers: HeaderMap,
}

/// Host and port, and the path, of an address over plain HTTP.
pub(crate) fn split(url: &str) -> Result<(&str, &str), StreamError> {
    let rest = url.strip_prefix("http://").ok_or_else(|| StreamError::Address(url.to_owned()))?;
    let slash = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(slash);
    if host.is_empty() || path.is_empty() {
        return Err(StreamError::Address(url.to_owned()));
    }
    Ok((host, path))
}

/// Connects to the host and port of an address.
pub(crate) async fn connect(url: &str) -> Result<TcpStream, StreamError> {
    let (host, _) = split(url)?;
    let failed = |source| StreamError::Connect { url: url.to_owned(), source };
    let stream = TcpStream::connect(host).await.map_err(failed)?;
    // Keys typed are not to wait for each other.
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Asks for `protocol` at an address.
pub(crate) async fn upgrade(
    url: &str,
    protocol: &str,
    more: &[(&str, &str)],
) -> Result<Upgraded, StreamError> {
    let (host, path) = split(url)?;
    let mut request = Request::post(path)
        .header(HOST, host)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, protocol);
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let request =
        request.body(Empty::<Bytes>::new()).map_err(|_| StreamError::Address(url.to_owned()))?;
    let failed = |source| StreamError::Http { url: url.to_owned(), source };
    let io = TokioIo::new(connect(url).await?);
    let (mut sender, connection) = http1::handshake(io).await.map_err(failed)?;
    let mut driver = pin!(connection.without_shutdown());
    let answer = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(head.headers);
        }
        let text = match Limited::new(body, REFUSAL_BYTES_MAX).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
            Err(_) => String::new(),
        };
        let status = head.status.as_u16();
        Err(StreamError::Refused { url: url.to_owned(), status, text })
    };
    let (mut answer, mut done) = (pin!(answer), None);
    let headers = poll_fn(|context| {
        if done.is_none()
            && let Poll::Ready(parts) = driver.as_mut().poll(context)
        {
            done = Some(parts);
        }
        answer.as_mut().poll(context)
    })
    .await?;
    let parts = match done {
        Some(parts) => parts,
        None => driver.await,
    };
    let parts = parts.map_err(failed)?;
    Ok(Upgraded { stream: parts.io.into_inner(), already: parts.read_buf, headers })
}
