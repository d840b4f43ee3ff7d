//! `watch`: changes as they happen, one line of JSON each.
//!
//! Owns what one watch has told. Reads the store. An object that comes to match
//! the selector is told as added, one that ceases to as deleted.
//! Upstream: apiserver pkg/endpoints/handlers/watch.go, pkg/storage/cacher.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::api::{Api, Call, Clock};
use super::media::Form;
use super::request::Target;
use super::response::{self, Response};
use crate::error::ApiError;
use crate::json;
use crate::objects::from_storage;
use crate::resources::Resource;
use crate::select::Selector;
use crate::store::{Change, ChangeKind, Signal, Start, Stored, Watcher};

/// How often a quiet watch tells its revision.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long a watch lasts that does not say; upstream: between 30 and 60 minutes.
const LIFETIME: Duration = Duration::from_secs(45 * 60);
/// How long one may ask for.
const LIFETIME_MAX: u64 = 24 * 60 * 60;

impl Api {
    pub(super) fn watch(
        self: &Arc<Self>,
        call: &Call<'_>,
        target: &Target,
    ) -> Result<Response, ApiError> {
        let form = call.form()?;
        let mut selector = self.selector(call, target)?;
        if !target.name.is_empty() {
            selector = selector.and_name(&target.name);
        }
        let query = &call.wanted.query;
        let bookmarks = query.flag("allowWatchBookmarks")?.unwrap_or(false);
        let initial = query.flag("sendInitialEvents")?;
        check_initial(initial, query.text("resourceVersionMatch"))?;
        let revision = query.number::<u64>("resourceVersion")?.unwrap_or_default();
        let start = match (initial, revision) {
            (Some(true), _) => Start::WithObjects,
            (Some(false), 0) => Start::Now,
            (None, 0) => Start::WithObjects,
            (_, revision) => Start::After(revision),
        };
        let lifetime = query.number::<u64>("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let lifetime = lifetime.map_or(LIFETIME, |s| Duration::from_secs(s.min(LIFETIME_MAX)));
        let watcher = match self.store.watch(&target.stored.storage(), &target.namespace, start) {
            Ok(watcher) => watcher,
            Err(error) => return Ok(refused(&target.error("", error))),
        };
        if initial == Some(true) && revision > watcher.revision {
            return Ok(refused(&ApiError::too_large_revision(revision, watcher.revision)));
        }
        let now = Instant::now();
        let lines = Lines {
            watcher,
            selector,
            form,
            clock: self.clock.clone(),
            resource: target.shown,
            bookmarks,
            marks_end_of_initial: initial == Some(true) && bookmarks,
            initial: true,
            ending: false,
            ended: false,
            bookmark_at: now + BOOKMARK,
            end_at: now + lifetime,
        };
        let lines = stream::unfold(lines, |mut lines| async move {
            lines.next().await.map(|line| (line, lines))
        });
        Ok(response::stream(lines))
    }
}

fn check_initial(initial: Option<bool>, matching: &str) -> Result<(), ApiError> {
    match (initial, matching) {
        (Some(_), "NotOlderThan") | (None, "") => Ok(()),
        (Some(_), _) => {
            Err(ApiError::bad_request("sendInitialEvents needs resourceVersionMatch=NotOlderThan"))
        }
        (None, _) => Err(ApiError::bad_request(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
    }
}

/// A watch that cannot start where it was told to says so as its only event, as
/// upstream's does.
fn refused(error: &ApiError) -> Response {
    let line = line("ERROR", &error.status());
    response::stream(stream::iter([line]))
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

/// The lines of one watch.
struct Lines {
    watcher: Watcher,
    selector: Selector,
    form: Form,
    clock: Clock,
    resource: &'static Resource,
    bookmarks: bool,
    marks_end_of_initial: bool,
    initial: bool,
    /// Its time is over; what is queued is still told.
    ending: bool,
    ended: bool,
    bookmark_at: Instant,
    end_at: Instant,
}

impl Lines {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            if self.initial {
                match self.watcher.next_of_first() {
                    Some(change) => match self.tell(&change) {
                        Some(line) => return Some(line),
                        None => continue,
                    },
                    None => self.initial = false,
                }
                if self.marks_end_of_initial {
                    return Some(self.bookmark(self.watcher.revision, true));
                }
            }
            let signal = tokio::select! {
                biased;
                signal = self.watcher.next() => signal,
                () = sleep_until(self.end_at), if !self.ending => {
                    self.ending = true;
                    self.watcher.ask_for_progress();
                    continue;
                }
                () = sleep_until(self.bookmark_at), if self.bookmarks && !self.ending => {
                    self.bookmark_at += BOOKMARK;
                    self.watcher.ask_for_progress();
                    continue;
                }
            };
            match signal {
                Some(Signal::Change(change)) => {
                    if let Some(line) = self.tell(&change) {
                        return Some(line);
                    }
                }
                Some(Signal::Progress(revision)) => {
                    self.ended = self.ending;
                    // What a watch began with is no news.
                    if self.bookmarks && revision > self.watcher.after {
                        return Some(self.bookmark(revision, false));
                    }
                }
                // Too slow, or the server stops: the client starts over.
                None => self.ended = true,
            }
        }
        None
    }

    /// The event that a change is to this watch.
    fn tell(&self, change: &Change) -> Option<Bytes> {
        if self.selector.takes_all() {
            return Some(self.event(word(change.kind), &change.object, None));
        }
        let after = change.object.value();
        let takes_before =
            change.before.as_ref().is_some_and(|before| self.selector.takes(&before.value()));
        let takes_after = change.kind != ChangeKind::Deleted && self.selector.takes(&after);
        match (takes_before, takes_after) {
            (false, true) => Some(self.event("ADDED", &change.object, Some(after))),
            (true, true) => Some(self.event("MODIFIED", &change.object, Some(after))),
            (true, false) => {
                // What is told is the object as the client knew it, at the new revision.
                let before = change.before.as_ref().unwrap_or(&change.object);
                let mut last = before.value();
                let revision = change.object.revision.to_string();
                json::set(&mut last, "metadata.resourceVersion", revision);
                Some(self.event("DELETED", before, Some(last)))
            }
            (false, false) => None,
        }
    }

    fn event(&self, word: &str, stored: &Stored, value: Option<Value>) -> Bytes {
        let as_stored = self.form == Form::Objects && self.resource.stored_as.is_none();
        if as_stored && (value.is_none() || word != "DELETED") {
            let object = String::from_utf8_lossy(&stored.bytes);
            return format!("{{\"type\":\"{word}\",\"object\":{object}}}\n").into();
        }
        let value = value.unwrap_or_else(|| stored.value());
        let object = from_storage(self.resource, value);
        line(word, &self.form.object(self.resource, object, (self.clock)()))
    }

    fn bookmark(&self, revision: u64, end_of_initial: bool) -> Bytes {
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
        });
        if end_of_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Objects => object,
            Form::Metadata => self.form.object(self.resource, object, (self.clock)()),
            _ => self.form.list(self.resource, &[], &object["metadata"], (self.clock)()),
        };
        line("BOOKMARK", &object)
    }
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "ADDED",
        ChangeKind::Updated => "MODIFIED",
        ChangeKind::Deleted => "DELETED",
    }
}
