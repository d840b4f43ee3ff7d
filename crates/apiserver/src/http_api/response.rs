//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use serde_json::Value;

use crate::error::ApiError;

/// Body of an answer: whole, or a watch that goes on.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
/// An answer.
pub type Response = hyper::Response<Body>;

/// Warnings in one answer; each becomes a header.
const WARNINGS: usize = 10;

pub(super) fn raw(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub(super) fn json(code: u16, body: &Value) -> Response {
    raw(code, "application/json", body.to_string())
}

pub(super) fn text(code: u16, body: &'static str) -> Response {
    raw(code, "text/plain; charset=utf-8", body)
}

pub(super) fn error(error: &ApiError) -> Response {
    let mut response = json(error.code, &error.status());
    if let Some(seconds) = error.details["retryAfterSeconds"].as_u64() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds warnings, which clients show to their users.
pub(super) fn warn(response: &mut Response, warnings: &[String]) {
    for warning in warnings.iter().take(WARNINGS) {
        let plain: String = warning.chars().filter(|c| !c.is_control()).collect();
        let quoted = plain.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// An answer that goes on as long as the stream does.
pub(super) fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    use futures_util::StreamExt;
    let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
