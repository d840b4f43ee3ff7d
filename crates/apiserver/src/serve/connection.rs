//! One connection: HTTP/1.1 or HTTP/2, requests in, answers out.
//!
//! Bounds bodies, headers and the time a request may take to arrive.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::ApiError;
use crate::http_api::{Api, Peer, Response};

/// Largest body of a request; upstream's limit.
const BODY_MAX: usize = 3 * 1024 * 1024;
/// Time for headers, and for a body, to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Requests at once on one HTTP/2 connection; upstream's default is 250.
const STREAMS: u32 = 250;
/// How often a silent HTTP/2 connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;
/// Answers requests whose bodies have been read.
pub type Handler = Arc<dyn Fn(Parts, Bytes, Peer) -> Answer + Send + Sync>;
/// Makes a handler of another, which it may call, delay, or not.
pub type Wrap = Box<dyn FnOnce(Handler) -> Handler + Send>;

/// The handler of an API, wrapped.
pub(super) fn handler(api: Arc<Api>, wrap: Option<Wrap>) -> Handler {
    let handler: Handler = Arc::new(move |head, body, peer| {
        let api = Arc::clone(&api);
        Box::pin(async move { api.handle(&head, body, &peer).await })
    });
    match wrap {
        Some(wrap) => wrap(handler),
        None => handler,
    }
}

/// Serves a connection until it ends, or until it is told to and has nothing open.
pub(super) async fn serve<S>(stream: S, peer: Peer, handler: Handler, told: oneshot::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service =
        service_fn(move |request| answer(request, peer.clone(), Handler::clone(&handler)));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(ARRIVAL)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES_MAX as u32)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(ARRIVAL);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        _ = told => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

async fn answer(
    request: hyper::Request<Incoming>,
    peer: Peer,
    handler: Handler,
) -> Result<Response, Infallible> {
    let (head, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(error) => return Ok(refusal(&error)),
    };
    Ok(handler(head, body, peer).await)
}

async fn read(body: Incoming) -> Result<Bytes, ApiError> {
    let limited = Limited::new(body, BODY_MAX);
    match timeout(ARRIVAL, limited.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::too_large(BODY_MAX)),
        Ok(Err(error)) => Err(ApiError::bad_request(format!("the body broke off: {error}"))),
        Err(_) => Err(ApiError::bad_request("the body took too long to arrive")),
    }
}

fn refusal(error: &ApiError) -> Response {
    let mut response = Response::new(Full::new(error.status().to_string().into()).boxed_unsync());
    *response.status_mut() = hyper::StatusCode::from_u16(error.code).unwrap_or_default();
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}
