//! A GET over a connection of its own. Upstream: pkg/probe/http/http.go.

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, LOCATION};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{Error as TlsError, InvalidMessage};

use super::dial::{dial, drive, plain};
use super::{RealProbeNet, target};
use crate::ports::http::redirect;
use crate::ports::probe::{BODY_MAX, HttpAnswer, HttpRequest};

/// Redirects followed on one host.
const REDIRECTS_MAX: usize = 10;
const NO_HEADERS: &str =
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
const NO_BODY: &str =
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

pub(super) async fn get(net: &RealProbeNet, request: &HttpRequest) -> Result<HttpAnswer, String> {
    let deadline = Instant::now() + request.timeout;
    let first = target::url(request)?;
    let (headers, mut host) = target::headers(request)?;
    let mut url = first.clone();
    for _ in 0..REDIRECTS_MAX {
        let about = |why: String| format!("Get \"{url}\": {why}");
        let ask = ask(net, &url, &headers, host.as_ref(), deadline);
        let answer = ask.await.map_err(about)?;
        let Some(location) = answer.location.as_deref() else { return Ok(answer) };
        let next = redirect::resolve(&url, location).map_err(about)?;
        if next.host() != first.host() {
            return Ok(answer);
        }
        if !location.starts_with(['/', '?']) || location.starts_with("//") {
            // Whoever names a host means that one.
            host = host.filter(|_| !location.contains("//"));
        }
        url = next;
    }
    Err(format!("Get \"{url}\": stopped after {REDIRECTS_MAX} redirects"))
}

/// One request; its errors say only what happened, not where.
async fn ask(
    net: &RealProbeNet,
    url: &Uri,
    headers: &HeaderMap,
    host: Option<&HeaderValue>,
    deadline: Instant,
) -> Result<HttpAnswer, String> {
    let name = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let secure = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let late = |_| NO_HEADERS.to_owned();
    let stream = timeout_at(deadline, dial(name, port)).await.map_err(late)??;
    if !secure {
        return over_http1(stream, request1(url, headers, host)?, deadline).await;
    }
    let server = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let handshake = net.tls()?.connect(server, stream);
    let stream = timeout_at(deadline, handshake).await.map_err(late)?.map_err(tls_problem)?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        return over_http2(stream, request2(url, headers, host), deadline).await;
    }
    over_http1(stream, request1(url, headers, host)?, deadline).await
}

fn tls_problem(error: std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match inner {
        Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        Some(error) => format!("tls: {error}"),
        None => plain(&error),
    }
}

fn request1(
    url: &Uri,
    headers: &HeaderMap,
    host: Option<&HeaderValue>,
) -> Result<Request<Empty<Bytes>>, String> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = path.parse().map_err(|error| format!("{path:?}: {error}"))?;
    *request.headers_mut() = headers.clone();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = match host {
        Some(host) => host.clone(),
        None => HeaderValue::try_from(authority).map_err(|error| error.to_string())?,
    };
    request.headers_mut().insert(HOST, host);
    request.headers_mut().entry(CONNECTION).or_insert(HeaderValue::from_static("close"));
    Ok(request)
}

fn request2(url: &Uri, headers: &HeaderMap, host: Option<&HeaderValue>) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.headers_mut() = headers.clone();
    request.headers_mut().remove(CONNECTION);
    *request.uri_mut() = url.clone();
    // In HTTP/2 the host asked for is part of the URL; one that cannot be is left out.
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let mut parts = url.clone().into_parts();
        parts.authority = host.parse().ok().or(parts.authority);
        if let Ok(named) = Uri::from_parts(parts) {
            *request.uri_mut() = named;
        }
    }
    request
}

async fn over_http1<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    deadline: Instant,
) -> Result<HttpAnswer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(problem)?;
    let work = async {
        let answer = timeout_at(deadline, sender.send_request(request)).await;
        read(answer.map_err(|_| NO_HEADERS.to_owned())?.map_err(problem)?, deadline).await
    };
    drive(connection, work).await
}

async fn over_http2<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    deadline: Instant,
) -> Result<HttpAnswer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let builder = http2::Builder::new(TokioExecutor::new());
    let handshake = timeout_at(deadline, builder.handshake(TokioIo::new(stream))).await;
    let late = |_| NO_HEADERS.to_owned();
    let (mut sender, connection) = handshake.map_err(late)?.map_err(problem)?;
    let work = async {
        let answer = timeout_at(deadline, sender.send_request(request)).await;
        read(answer.map_err(late)?.map_err(problem)?, deadline).await
    };
    drive(connection, work).await
}

async fn read(response: Response<Incoming>, deadline: Instant) -> Result<HttpAnswer, String> {
    let status = response.status().as_u16();
    let location = response.headers().get(LOCATION).filter(|location| !location.is_empty());
    let location = match location {
        Some(text) if matches!(status, 301 | 302 | 303 | 307 | 308) => {
            let text = text.to_str().map_err(|_| "failed to parse Location header".to_owned())?;
            Some(text.to_owned())
        }
        _ => None,
    };
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    let body_error = loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => break Some(NO_BODY.to_owned()),
            Ok(None) => break None,
            Ok(Some(Err(error))) => break Some(problem(error)),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                let room = BODY_MAX - bytes.len();
                bytes.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() >= room {
                    break None;
                }
            }
        }
    };
    Ok(HttpAnswer { status, body: bytes, body_error, location })
}

/// hyper names the cause only in its source.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn problem(error: hyper::Error) -> String {
    use std::error::Error as _;
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    match error.source().and_then(|source| source.downcast_ref::<std::io::Error>()) {
        Some(cause) => plain(cause),
        None => {
            error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        }
    }
}
