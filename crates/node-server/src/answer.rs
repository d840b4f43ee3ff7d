//! Responses, as upstream writes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, SizeHint};
use hyper::header::{
    ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

use crate::patience::Answering;
use crate::view::{Answer, Chunks, Content, ViewError};

/// What a body is made of on its way out.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;
/// A response on its way out.
pub(crate) type Reply = Response<Body>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn with_type(status: StatusCode, kind: HeaderValue, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

/// A plain text, as go-restful writes errors and net/http guesses its type.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    with_type(status, TEXT, full(text))
}

/// A plain text with an end of line, as Go's `http.Error` writes it.
pub(crate) fn error(status: StatusCode, message: &str) -> Reply {
    let mut reply = text(status, format!("{message}\n"));
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}

/// There is nothing at a path that no handler has.
pub(crate) fn unknown_path() -> Reply {
    error(StatusCode::NOT_FOUND, "404 page not found")
}

/// There is nothing at a path below one that has handlers.
pub(crate) fn no_route() -> Reply {
    text(StatusCode::NOT_FOUND, "404: Page Not Found")
}

/// A handler does not take this method.
pub(crate) fn no_method(allowed: &'static str) -> Reply {
    let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// What a handler has to say that is not what was asked for.
pub(crate) fn refused(why: &ViewError) -> Reply {
    let status = StatusCode::from_u16(why.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = text(status, why.message.clone());
    if let Some(seconds) = why.retry_after {
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

/// What was asked for.
pub(crate) fn content(answer: Answer) -> Reply {
    let body = match answer.content {
        Content::Bytes(bytes) => full(bytes),
        Content::Chunks(chunks) => {
            let flushed = Flushed { chunks, rests: false };
            StreamBody::new(flushed.map_ok(Frame::data)).boxed_unsync()
        }
    };
    let kind = HeaderValue::from_static(answer.content_type);
    with_type(StatusCode::OK, kind, body)
}

/// JSON.
pub(crate) fn json(body: impl Into<Bytes>) -> Reply {
    content(Answer::json(body))
}

/// Elsewhere.
pub(crate) fn moved(location: &str) -> Reply {
    let mut reply = text(StatusCode::MOVED_PERMANENTLY, "Moved Permanently\n");
    match HeaderValue::from_str(location) {
        Ok(location) => {
            reply.headers_mut().insert(HeaderName::from_static("location"), location);
            reply
        }
        Err(_) => bad_request(),
    }
}

/// A request that cannot be read, as net/http refuses it.
pub(crate) fn bad_request() -> Reply {
    text(StatusCode::BAD_REQUEST, "400 Bad Request")
}

/// Rests for a moment after each chunk, so that it is sent before what follows it, as a
/// Go server that flushes each write does: an API server that hands a log on to a
/// WebSocket loses a chunk that comes together with the end.
struct Flushed {
    chunks: Chunks,
    rests: bool,
}

impl Stream for Flushed {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.rests) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.chunks.poll_next_unpin(cx);
        self.rests = matches!(next, Poll::Ready(Some(Ok(_))));
        next
    }
}

/// Holds on to the sign that a request is being answered until its body is gone.
pub(crate) struct Held {
    body: Body,
    _answering: Option<Answering>,
}

impl Held {
    pub(crate) fn new(reply: Reply, answering: Answering) -> Response<Self> {
        let mut answering = Some(answering);
        if reply.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(answering) = answering.take()
        {
            answering.for_good();
        }
        reply.map(|body| Self { body, _answering: answering })
    }
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
