//! Following a selection of objects: all of them first, then every change.
//!
//! Lists once, watches from there, and goes on where a watch ended. Listed anew is what
//! lies too far back, and what a server may have lost: a server whose store was restored
//! from a backup keeps watches from revisions that it does not know open, and silent, so
//! no word in a whole watch is one too few. After a failure it pauses, longer each time
//! and each time by another length, and never less than the server asks for. Upstream:
//! client-go tools/cache/reflector.go, which waits for ever after a restore.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::error::ApiError;
use crate::request::{Call, with_query};
use crate::watch::{Change, Watching};
use crate::{Api, WatchEvent};

/// Pause after the first failure; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(800);
/// The longest pause, before it is spread.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A watch that ends sooner counts as a failure.
const SHORT: Duration = Duration::from_secs(1);
/// Time after which the server ends a watch, before it is spread.
const WATCH_LIMIT: Duration = Duration::from_secs(5 * 60);
/// The same for a server that may have become another: long enough for a bookmark.
const TRIAL: Duration = Duration::from_secs(60);
/// A watch that ends so much sooner than it was asked to was not ended for its time: more
/// than it takes to begin one over a slow link.
const EARLY: Duration = Duration::from_secs(5);
/// Objects in one part of a list.
const PART: &str = "500";

/// Parts of one list: a hundred thousand objects, ten times the services that the largest
/// clusters have. A server that never comes to an end is not followed there.
const PARTS_MAX: usize = 200;
/// Bytes of one list, about: a node that needs more has no memory left for pods.
const LIST_BYTES_MAX: usize = 256 << 20;

/// A random length up to this one.
pub type Spread = Arc<dyn Fn(Duration) -> Duration + Send + Sync>;

/// Which objects are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The path of their list.
    pub path: String,
    /// Which of them, such as `("fieldSelector", "spec.nodeName=n")`.
    pub query: Vec<(&'static str, String)>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// These are all there are now.
    All(Vec<Value>),
    /// One is new, or has changed.
    Put(Value),
    /// One is gone.
    Gone(Value),
    /// Nothing can be learnt for now; it is tried again.
    Failing(ApiError),
}

/// Follows a selection.
pub struct Follower {
    api: Arc<dyn Api>,
    selection: Selection,
    spread: Spread,
    /// Time after which the server ends a watch, before it is spread.
    watch_limit: Duration,
    /// As of which what was told is known; `None` before the first list.
    revision: Option<String>,
    /// Whether a watch may go on from there.
    listed: bool,
    /// Whether anything was told yet: then nothing older may be told.
    begun: bool,
    watch: Option<Watch>,
    /// When the server last told anything of the selection.
    heard: Instant,
    /// Whether the server may have become another since: a request failed, or a watch
    /// ended before its time.
    doubtful: bool,
    failures: u32,
    not_before: Option<Instant>,
}

struct Watch {
    begun: Instant,
    /// How long the server was asked to keep it.
    limit: Duration,
    /// It told something: the server knows more than was known.
    told: bool,
    events: Box<dyn Watching>,
}

impl Follower {
    /// Begins at the first call of [`Follower::next`].
    pub fn new(api: Arc<dyn Api>, selection: Selection, spread: Spread) -> Self {
        Self {
            api,
            selection,
            spread,
            watch_limit: WATCH_LIMIT,
            revision: None,
            listed: false,
            begun: false,
            watch: None,
            heard: Instant::now(),
            doubtful: false,
            failures: 0,
            not_before: None,
        }
    }

    /// The same with watches that last about so long.
    #[must_use]
    pub fn with_watches_of(self, watch_limit: Duration) -> Self {
        Self { watch_limit, ..self }
    }

    /// The same for whoever knows something of the selection from before, or does not.
    #[must_use]
    pub fn begun(self, begun: bool) -> Self {
        Self { begun, ..self }
    }

    /// The next piece of news. May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> News {
        loop {
            if let Some(at) = self.not_before {
                sleep_until(at).await;
                self.not_before = None;
            }
            if let Some(watch) = &mut self.watch {
                let event = watch.events.next().await;
                if let Some(news) = self.note(event) {
                    return news;
                }
                continue;
            }
            match self.revision.clone().filter(|_| self.listed) {
                Some(revision) => {
                    let limit = self.patience();
                    let limit = limit + (self.spread)(limit);
                    match self.api.watch(&self.watch_path(&revision, limit)).await {
                        Ok(events) => {
                            let begun = Instant::now();
                            self.watch = Some(Watch { begun, limit, told: false, events });
                        }
                        Err(error) => return self.fail(error),
                    }
                }
                None => match self.list().await {
                    Ok((revision, items)) => {
                        self.note_list(revision);
                        return News::All(items);
                    }
                    Err(error) => return self.fail(error),
                },
            }
        }
    }

    fn note_list(&mut self, revision: String) {
        if self.is_behind(&revision) {
            let path = &self.selection.path;
            tracing::warn!(path, revision, "the API server went back in time: restored?");
        }
        self.revision = Some(revision);
        (self.listed, self.begun) = (true, true);
        (self.heard, self.doubtful) = (Instant::now(), false);
    }

    /// What comes of an event, if others need to know.
    fn note(&mut self, event: Option<Result<WatchEvent, ApiError>>) -> Option<News> {
        match event {
            Some(Ok(WatchEvent { change, object })) => {
                if let Some(revision) = object["metadata"]["resourceVersion"].as_str() {
                    if self.is_behind(revision) {
                        // Another history: what was told before is no part of it.
                        self.end_watch();
                        self.listed = false;
                        self.pause(None);
                        return None;
                    }
                    self.revision = Some(revision.to_owned());
                }
                (self.heard, self.doubtful, self.failures) = (Instant::now(), false, 0);
                if let Some(watch) = &mut self.watch {
                    watch.told = true;
                }
                match change {
                    Change::Added | Change::Modified => Some(News::Put(object)),
                    Change::Deleted => Some(News::Gone(object)),
                    Change::Bookmark => None,
                }
            }
            Some(Err(error)) => Some(self.fail(error)),
            None => {
                let told = self.watch.as_ref().is_some_and(|watch| watch.told);
                let silent = !told && self.heard.elapsed() >= self.patience();
                if !self.end_watch() {
                    self.pause(None);
                }
                if silent {
                    let path = &self.selection.path;
                    tracing::debug!(path, "no word in a whole watch; listing anew");
                    self.listed = false;
                }
                None
            }
        }
    }

    /// How long a server may tell nothing. One that is well tells its revision within a
    /// minute and at the end of a watch, unless nothing at all has changed; one that was
    /// restored from a backup keeps a watch from what it does not know open and silent.
    fn patience(&self) -> Duration {
        if self.doubtful { TRIAL } else { self.watch_limit }
    }

    /// Is this revision older than what was told? Only if both are numbers, as those of
    /// Kubernetes are.
    fn is_behind(&self, revision: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let held = self.revision.as_deref().and_then(number);
        held.zip(number(revision)).is_some_and(|(held, told)| told < held)
    }

    /// Ends a watch; returns whether there was one that lasted: then the server is well.
    fn end_watch(&mut self) -> bool {
        let Some(watch) = self.watch.take() else { return false };
        let lasted = watch.begun.elapsed();
        if lasted + EARLY < watch.limit {
            self.doubtful = true;
        }
        if lasted >= SHORT {
            self.failures = 0;
        }
        lasted >= SHORT
    }

    fn fail(&mut self, error: ApiError) -> News {
        self.end_watch();
        self.doubtful = true;
        // What the server has forgotten, or says it has never known, cannot be gone on
        // from.
        if error.is_expired() || error.is_ahead() {
            self.listed = false;
        }
        self.pause(error.retry_after());
        News::Failing(error)
    }

    fn pause(&mut self, at_least: Option<Duration>) {
        let pause = PAUSE_FIRST.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let pause = pause + (self.spread)(pause);
        self.not_before = Some(Instant::now() + pause.max(at_least.unwrap_or_default()));
    }

    fn path(&self, more: &[(&str, &str)]) -> String {
        let query = self.selection.query.iter().map(|(key, value)| (*key, value.as_str()));
        let query: Vec<(&str, &str)> = query.chain(more.iter().copied()).collect();
        with_query(&self.selection.path, &query)
    }

    fn watch_path(&self, revision: &str, limit: Duration) -> String {
        self.path(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", revision),
            ("timeoutSeconds", &limit.as_secs().to_string()),
        ])
    }

    /// All objects, part by part, and as of which revision.
    async fn list(&mut self) -> Result<(String, Vec<Value>), ApiError> {
        let (mut items, mut bytes) = (Vec::new(), 0_usize);
        // The first may be from the server's memory; later ones must not be older than
        // what was told before.
        let mut path = match self.begun {
            false => self.path(&[("limit", PART), ("resourceVersion", "0")]),
            true => self.path(&[("limit", PART)]),
        };
        for _ in 0..PARTS_MAX {
            let mut list = self.api.call(Call::get(&path)).await?;
            if let Some(Value::Array(part)) = list.get_mut("items").map(Value::take) {
                bytes = part.iter().map(weight).fold(bytes, usize::saturating_add);
                items.extend(part);
            }
            if bytes > LIST_BYTES_MAX {
                return Err(self.too_long(&format!("{LIST_BYTES_MAX} bytes")));
            }
            let text = |key: &str| list["metadata"][key].as_str().unwrap_or_default().to_owned();
            let (revision, next) = (text("resourceVersion"), text("continue"));
            if next.is_empty() {
                return match revision.is_empty() {
                    true => Err(ApiError::Unusable("a list without resourceVersion".to_owned())),
                    false => Ok((revision, items)),
                };
            }
            path = self.path(&[("limit", PART), ("continue", &next)]);
        }
        Err(self.too_long(&format!("{PARTS_MAX} parts of {PART} objects")))
    }

    fn too_long(&self, limit: &str) -> ApiError {
        ApiError::Unusable(format!("the list {} has more than {limit}", self.selection.path))
    }
}

/// About how many bytes an object takes. Its depth is bounded by whoever has parsed it.
fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(weight).fold(0, usize::saturating_add),
        Value::Object(all) => all
            .iter()
            .map(|(key, value)| weight(value).saturating_add(key.len()))
            .fold(0, usize::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner.saturating_add(size_of::<Value>())
}

#[cfg(test)]
mod tests;
