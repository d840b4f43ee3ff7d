//! A watch: one change after the other, as lines of JSON.
//!
//! Bounded: a change that is too large ends the watch, and so does a server that has not
//! ended it some time after it was to. Upstream: client-go rest/watch.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::error::ApiError;
use crate::renew::Renewed;
use crate::tls::Identity;

/// Bytes of one change: more than any server stores.
const CHANGE_BYTES_MAX: usize = 16 << 20;

/// How much longer than it was asked to a server may keep a watch open: more than it takes
/// to tell its end over a slow link.
const GRACE: Duration = Duration::from_secs(30);

/// How long a watch may last, if its path asks the server to end it.
pub(crate) fn until(path: &str) -> Option<Duration> {
    let (_, query) = path.split_once('?')?;
    let seconds = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="))?;
    let seconds = seconds.parse::<u32>().ok().filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds.into()) + GRACE)
}

/// What has happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new, or new to the selection.
    Added,
    /// It has changed.
    Modified,
    /// It is gone, or gone from the selection.
    Deleted,
    /// Nothing; only the revision is news.
    Bookmark,
}

/// One piece of news.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvent {
    /// What has happened.
    pub change: Change,
    /// The object, as it is or was.
    pub object: Value,
}

/// A watch that is under way.
#[async_trait]
pub trait Watching: Send {
    /// The next piece of news; `None` once the server has ended the watch.
    async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>>;
}

/// Work that goes on beside a watch, and never ends.
pub(crate) type Looks = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A watch over HTTP.
pub(crate) struct HttpWatch {
    body: Incoming,
    unread: BytesMut,
    server: String,
    /// The certificate that it began with, if there may be another.
    certificate: Option<(Renewed, Arc<Identity>)>,
    /// Finds out whether there is another.
    looks: Option<Looks>,
    /// When it is over though the server has not ended it.
    until: Option<Instant>,
    /// Bytes of `unread` that hold no end of a line.
    searched: usize,
}

impl HttpWatch {
    pub(crate) fn new(
        body: Incoming,
        server: &str,
        certificate: Option<(Renewed, Arc<Identity>)>,
        looks: Option<Looks>,
        until: Option<Instant>,
    ) -> Self {
        let (unread, server) = (BytesMut::new(), server.to_owned());
        Self { body, unread, server, certificate, looks, until, searched: 0 }
    }

    /// What comes next; nothing once another certificate has taken the place of the one
    /// it began with: whoever watches goes on over a new connection.
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        let Self { body, certificate, looks, until, server, .. } = self;
        let replaced = async {
            match certificate {
                Some((renewed, own)) => renewed.replaced(own).await,
                None => pending().await,
            }
        };
        let looks = async {
            match looks {
                Some(looks) => looks.await,
                None => pending().await,
            }
        };
        let over = async {
            match until {
                Some(until) => sleep_until(*until).await,
                None => pending().await,
            }
        };
        tokio::select! { biased;
            () = replaced => None,
            frame = body.frame() => frame,
            () = looks => None,
            () = over => {
                tracing::warn!(server, "a watch was not ended when it was to; beginning another");
                None
            }
        }
    }

    /// Cuts off a whole line, if there is one.
    fn line(&mut self) -> Option<BytesMut> {
        let found = self.unread[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found else {
            self.searched = self.unread.len();
            return None;
        };
        let line = self.unread.split_to(self.searched + end + 1);
        self.searched = 0;
        Some(line)
    }
}

#[async_trait]
impl Watching for HttpWatch {
    async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
        loop {
            while let Some(line) = self.line() {
                if !line.trim_ascii().is_empty() {
                    return Some(WatchEvent::read(&line));
                }
            }
            if self.unread.len() > CHANGE_BYTES_MAX {
                let why = format!("a change of more than {CHANGE_BYTES_MAX} bytes");
                return Some(Err(ApiError::Unusable(why)));
            }
            match self.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.unread.extend_from_slice(&data);
                    }
                }
                Err(error) => {
                    let (server, why) = (self.server.clone(), error.to_string());
                    return Some(Err(ApiError::Unreachable { server, why }));
                }
            }
        }
    }
}

impl WatchEvent {
    /// What a line of a watch says.
    ///
    /// # Errors
    /// The server ends the watch with that, or the line is no change.
    pub fn read(line: &[u8]) -> Result<Self, ApiError> {
        let mut event: Value =
            serde_json::from_slice(line).map_err(|error| ApiError::Unusable(error.to_string()))?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let change = match event["type"].as_str().unwrap_or_default() {
            "ADDED" => Change::Added,
            "MODIFIED" => Change::Modified,
            "DELETED" => Change::Deleted,
            "BOOKMARK" => Change::Bookmark,
            "ERROR" => return Err(ApiError::of_status(&object, 500, None)),
            other => return Err(ApiError::Unusable(format!("a change of kind {other:?}"))),
        };
        Ok(Self { change, object })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_lasts_a_little_longer_than_the_server_was_asked() {
        let secs = |path: &str| until(path).map(|limit| limit.as_secs());
        assert_eq!(secs("/api/v1/pods?watch=true&timeoutSeconds=300"), Some(330));
        assert_eq!(secs("/x?timeoutSeconds=1&watch=true"), Some(31));
        for none in ["/x", "/x?watch=true", "/x?timeoutSeconds=", "/x?timeoutSeconds=0"] {
            assert_eq!(until(none), None, "{none}");
        }
    }

    #[test]
    fn a_line_is_a_change_or_an_error() {
        let read = |text: &str| WatchEvent::read(text.as_bytes());
        let added = read(r#"{"type":"ADDED","object":{"kind":"Pod"}}"#).unwrap();
        assert_eq!((added.change, &added.object["kind"]), (Change::Added, &Value::from("Pod")));
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",
            "message":"too old resource version: 1 (5)"}}"#;
        let error = read(gone).unwrap_err();
        assert!(error.is_expired() && error.to_string().starts_with("too old"), "{error:?}");
        for bad in ["", "{", r#"{"type":"MOVED"}"#, "[]"] {
            assert!(matches!(read(bad), Err(ApiError::Unusable(_))), "{bad}");
        }
    }
}
