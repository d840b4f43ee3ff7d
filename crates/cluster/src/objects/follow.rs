//! Following one object: what it is first, then every change.
//!
//! Lists it alone, watches from there, and goes on where a watch ended; only what lies
//! too far back is listed anew. Paced after failures as `api_client::Follower`, but its
//! watches last longer: there are as many of them as pods name objects. Upstream:
//! client-go tools/cache/reflector.go as watch_based_manager.go sets it up.

use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, ApiError, Call, Change, Spread, WatchEvent, Watching};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::Address;

/// Pause after the first failure; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(800);
/// The longest pause, before it is spread.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause that a server may ask for.
const ASKED_MAX: Duration = Duration::from_secs(300);
/// A watch that ends sooner counts as a failure.
const SHORT: Duration = Duration::from_secs(1);
/// Time after which the server ends a watch, before it is spread.
const WATCH_LIMIT: Duration = Duration::from_secs(30 * 60);

/// What was learnt.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    /// It is there, or has changed.
    Present(Value),
    /// It is not there, or no longer.
    Absent,
    /// Nothing can be learnt for now; it is tried again.
    Failing(ApiError),
}

/// Follows one object.
pub(super) struct Follow {
    api: Arc<dyn Api>,
    at: Address,
    spread: Spread,
    /// As of which what was told is known; `None` before the first list.
    revision: Option<String>,
    /// Whether anything was told yet: then nothing older may be told.
    begun: bool,
    watch: Option<(Instant, Box<dyn Watching>)>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Follow {
    /// Begins at the first call of [`Follow::next`]. `begun` if something is known of the
    /// object from before.
    pub(super) fn new(api: Arc<dyn Api>, at: Address, begun: bool, spread: Spread) -> Self {
        let (revision, watch, not_before) = (None, None, None);
        Self { api, at, spread, revision, begun, watch, failures: 0, not_before }
    }

    /// What is learnt next. May be dropped and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            if let Some(at) = self.not_before {
                sleep_until(at).await;
                self.not_before = None;
            }
            let seen = match (&mut self.watch, self.revision.clone()) {
                (Some((_, watch)), _) => {
                    let event = watch.next().await;
                    self.note(event)
                }
                (None, Some(revision)) => match self.api.watch(&self.watch_path(&revision)).await {
                    Ok(watch) => {
                        self.watch = Some((Instant::now(), watch));
                        None
                    }
                    Err(error) => Some(self.fail(error)),
                },
                (None, None) => {
                    let list = self.api.call(Call::get(&self.list_path())).await;
                    Some(self.note_list(list))
                }
            };
            if let Some(seen) = seen {
                return seen;
            }
        }
    }

    fn note_list(&mut self, list: Result<Value, ApiError>) -> Seen {
        let mut list = match list {
            Ok(list) => list,
            Err(error) => return self.fail(error),
        };
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if revision.is_empty() {
            return self.fail(ApiError::Unusable("a list without resourceVersion".to_owned()));
        }
        (self.revision, self.begun) = (Some(revision.to_owned()), true);
        let items = list.get_mut("items").and_then(Value::as_array_mut);
        let found = items.into_iter().flatten().find(|item| self.at.names(item));
        found.map_or(Seen::Absent, |object| Seen::Present(object.take()))
    }

    /// What comes of an event, if others need to know.
    fn note(&mut self, event: Option<Result<WatchEvent, ApiError>>) -> Option<Seen> {
        match event {
            Some(Ok(WatchEvent { change, object })) => {
                self.failures = 0;
                if let Some(revision) = object["metadata"]["resourceVersion"].as_str() {
                    self.revision = Some(revision.to_owned());
                }
                match change {
                    Change::Added | Change::Modified if self.at.names(&object) => {
                        Some(Seen::Present(object))
                    }
                    Change::Deleted if self.at.names(&object) => Some(Seen::Absent),
                    _ => None,
                }
            }
            Some(Err(error)) => Some(self.fail(error)),
            None => {
                let begun = self.watch.take().map(|(begun, _)| begun);
                if begun.is_some_and(|begun| begun.elapsed() < SHORT) {
                    self.pause(None);
                }
                None
            }
        }
    }

    fn fail(&mut self, error: ApiError) -> Seen {
        self.watch = None;
        if error.is_expired() {
            self.revision = None;
        }
        self.pause(error.retry_after());
        Seen::Failing(error)
    }

    fn pause(&mut self, at_least: Option<Duration>) {
        let pause = PAUSE_FIRST.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let pause = pause + (self.spread)(pause);
        let at_least = at_least.unwrap_or_default().min(ASKED_MAX);
        self.not_before = Some(Instant::now() + pause.max(at_least));
    }

    fn list_path(&self) -> String {
        let path = self.at.list_path();
        match self.begun {
            // The first may be from the server's memory.
            false => format!("{path}&resourceVersion=0"),
            true => path,
        }
    }

    fn watch_path(&self, revision: &str) -> String {
        let limit = (WATCH_LIMIT + (self.spread)(WATCH_LIMIT)).as_secs();
        let path = self.at.list_path();
        let revision = super::address::encoded(revision);
        format!(
            "{path}&watch=true&allowWatchBookmarks=true&resourceVersion={revision}\
             &timeoutSeconds={limit}"
        )
    }
}
