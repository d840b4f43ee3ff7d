//! Following a selection of objects: all of them first, then every change.
//!
//! Lists once, watches from there, and goes on where a watch ended; only what lies too
//! far back is listed anew. After a failure it pauses, longer each time and each time by
//! another length, and never less than the server asks for. Upstream: client-go
//! tools/cache/reflector.go.

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
    /// As of which what was told is known; `None` before the first list.
    revision: Option<String>,
    /// Whether anything was told yet.
    begun: bool,
    watch: Option<(Instant, Box<dyn Watching>)>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Follower {
    /// Begins at the first call of [`Follower::next`].
    pub fn new(api: Arc<dyn Api>, selection: Selection, spread: Spread) -> Self {
        Self {
            api,
            selection,
            spread,
            revision: None,
            begun: false,
            watch: None,
            failures: 0,
            not_before: None,
        }
    }

    /// The next piece of news. May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> News {
        loop {
            if let Some(at) = self.not_before {
                sleep_until(at).await;
                self.not_before = None;
            }
            if let Some((_, watch)) = &mut self.watch {
                let event = watch.next().await;
                if let Some(news) = self.note(event) {
                    return news;
                }
                continue;
            }
            match &self.revision {
                Some(revision) => {
                    let path = self.watch_path(&revision.clone());
                    match self.api.watch(&path).await {
                        Ok(watch) => self.watch = Some((Instant::now(), watch)),
                        Err(error) => return self.fail(error),
                    }
                }
                None => match self.list().await {
                    Ok((revision, items)) => {
                        (self.revision, self.begun) = (Some(revision), true);
                        return News::All(items);
                    }
                    Err(error) => return self.fail(error),
                },
            }
        }
    }

    /// What comes of an event, if others need to know.
    fn note(&mut self, event: Option<Result<WatchEvent, ApiError>>) -> Option<News> {
        match event {
            Some(Ok(WatchEvent { change, object })) => {
                self.failures = 0;
                if let Some(revision) = object["metadata"]["resourceVersion"].as_str() {
                    self.revision = Some(revision.to_owned());
                }
                match change {
                    Change::Added | Change::Modified => Some(News::Put(object)),
                    Change::Deleted => Some(News::Gone(object)),
                    Change::Bookmark => None,
                }
            }
            Some(Err(error)) => Some(self.fail(error)),
            None => {
                let begun = self.watch.take().map(|(begun, _)| begun);
                if begun.is_some_and(|begun| begun.elapsed() < SHORT) {
                    self.pause(None);
                } else {
                    // It lasted: the server is well.
                    self.failures = 0;
                }
                None
            }
        }
    }

    fn fail(&mut self, error: ApiError) -> News {
        self.watch = None;
        // What the server has forgotten, and what a server that was restored from a
        // backup has never known, cannot be gone on from.
        if error.is_expired() || error.is_ahead() {
            self.revision = None;
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

    fn watch_path(&self, revision: &str) -> String {
        let limit = (WATCH_LIMIT + (self.spread)(WATCH_LIMIT)).as_secs().to_string();
        self.path(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", revision),
            ("timeoutSeconds", &limit),
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
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use serde_json::json;

    use super::*;

    /// A server that answers as it is told, and notes what it is asked and when.
    #[derive(Default)]
    struct Scripted {
        lists: Mutex<VecDeque<Result<Value, ApiError>>>,
        watches: Mutex<VecDeque<Result<Vec<Event>, ApiError>>>,
        asked: Mutex<Vec<(u64, String)>>,
        begun: Mutex<Option<Instant>>,
    }

    type Event = Result<WatchEvent, ApiError>;

    struct Events(VecDeque<Event>);

    #[async_trait]
    impl Watching for Events {
        async fn next(&mut self) -> Option<Event> {
            self.0.pop_front()
        }
    }

    impl Scripted {
        fn note(&self, path: &str) {
            let begun = *self.begun.lock().unwrap().get_or_insert_with(Instant::now);
            let at = u64::try_from(begun.elapsed().as_millis()).unwrap();
            self.asked.lock().unwrap().push((at, path.to_owned()));
        }
    }

    #[async_trait]
    impl Api for Scripted {
        async fn call(&self, call: Call) -> Result<Value, ApiError> {
            self.note(&call.path);
            self.lists.lock().unwrap().pop_front().expect("another list")
        }

        async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
            self.note(path);
            let next = self.watches.lock().unwrap().pop_front().expect("another watch");
            Ok(Box::new(Events(next?.into())))
        }
    }

    fn answered(code: u16, retry_after: Option<u64>) -> ApiError {
        let retry_after = retry_after.map(Duration::from_secs);
        ApiError::Answered { code, reason: String::new(), message: "no".into(), retry_after }
    }

    fn object(revision: &str) -> Value {
        json!({"metadata": {"name": "a", "resourceVersion": revision}})
    }

    fn event(change: Change, revision: &str) -> Event {
        Ok(WatchEvent { change, object: object(revision) })
    }

    fn list(revision: &str, next: &str) -> Result<Value, ApiError> {
        Ok(json!({"metadata": {"resourceVersion": revision, "continue": next},
            "items": [object(revision)]}))
    }

    fn follower(server: &Arc<Scripted>) -> Follower {
        let selection = Selection {
            path: "/api/v1/pods".to_owned(),
            query: vec![("fieldSelector", "spec.nodeName=n".to_owned())],
        };
        let none: Spread = Arc::new(|_| Duration::ZERO);
        Follower::new(Arc::clone(server) as Arc<dyn Api>, selection, none)
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_where_the_last_one_ended() {
        let server = Arc::new(Scripted::default());
        server.lists.lock().unwrap().extend([list("5", "more"), list("5", "")]);
        server.watches.lock().unwrap().extend([
            Ok(vec![event(Change::Added, "6"), event(Change::Bookmark, "9")]),
            Ok(vec![event(Change::Deleted, "12")]),
        ]);
        let mut follower = follower(&server);
        assert_eq!(follower.next().await, News::All(vec![object("5"), object("5")]));
        assert_eq!(follower.next().await, News::Put(object("6")));
        assert_eq!(follower.next().await, News::Gone(object("12")));
        let selected = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn";
        let watch = |revision: u32| {
            format!(
                "{selected}&watch=true&allowWatchBookmarks=true&resourceVersion={revision}\
                 &timeoutSeconds=300"
            )
        };
        let expected = [
            (0, format!("{selected}&limit=500&resourceVersion=0")),
            (0, format!("{selected}&limit=500&continue=more")),
            (0, watch(5)),
            // It ended at once: the server is given a rest.
            (800, watch(9)),
        ];
        assert_eq!(*server.asked.lock().unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_paced_and_what_is_too_old_is_listed_anew() {
        let server = Arc::new(Scripted::default());
        let down = || ApiError::Unreachable { server: String::new(), why: "refused".into() };
        server.lists.lock().unwrap().extend([
            Err(down()),
            Err(down()),
            list("5", ""),
            list("50", ""),
        ]);
        server
            .watches
            .lock()
            .unwrap()
            .extend([Err(answered(429, Some(7))), Ok(vec![Err(answered(410, None))])]);
        let mut follower = follower(&server);
        assert_eq!(follower.next().await, News::Failing(down()));
        assert_eq!(follower.next().await, News::Failing(down()));
        assert!(matches!(follower.next().await, News::All(_)));
        assert!(matches!(follower.next().await, News::Failing(_)), "too many requests");
        assert!(matches!(follower.next().await, News::Failing(_)), "too old");
        assert_eq!(follower.next().await, News::All(vec![object("50")]));
        let asked = server.asked.lock().unwrap();
        let times: Vec<u64> = asked.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 800, 2400, 2400, 9400, 15800]);
        assert!(asked[5].1.ends_with("&limit=500"), "not from the server's memory: {asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_restored_is_listed_anew() {
        let server = Arc::new(Scripted::default());
        server.lists.lock().unwrap().extend([list("50", ""), list("7", "")]);
        let message = "Too large resource version: 50, current: 7".to_owned();
        let reason = "Timeout".to_owned();
        let ahead = ApiError::Answered { code: 504, reason, message, retry_after: None };
        let busy = answered(504, None);
        server.watches.lock().unwrap().extend([Err(busy), Err(ahead)]);
        let mut follower = follower(&server);
        assert_eq!(follower.next().await, News::All(vec![object("50")]));
        assert!(matches!(follower.next().await, News::Failing(_)), "a slow server");
        assert!(matches!(follower.next().await, News::Failing(_)), "it has gone back");
        assert_eq!(follower.next().await, News::All(vec![object("7")]));
        assert_eq!(server.asked.lock().unwrap().len(), 4, "listed once for it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_without_end_is_no_list() {
        let large = || {
            let text = "x".repeat(LIST_BYTES_MAX / 4);
            Ok(json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": [text]}))
        };
        for (parts, limit) in [
            ((0..=PARTS_MAX).map(|_| list("1", "more")).collect::<VecDeque<_>>(), "200 parts"),
            ((0..=5).map(|_| large()).collect(), "268435456 bytes"),
        ] {
            let server = Arc::new(Scripted::default());
            let given = parts.len();
            *server.lists.lock().unwrap() = parts;
            let news = follower(&server).next().await;
            let News::Failing(ApiError::Unusable(why)) = news else { panic!("{limit}") };
            assert_eq!(why.split(" has more than ").next(), Some("the list /api/v1/pods"));
            assert!(why.contains(limit), "{why}");
            assert!(server.asked.lock().unwrap().len() < given, "it is not asked for ever");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_has_an_end() {
        let server = Arc::new(Scripted::default());
        let down = || ApiError::Unreachable { server: String::new(), why: "refused".into() };
        server.lists.lock().unwrap().extend((0..20).map(|_| Err(down())));
        let mut follower = follower(&server);
        for _ in 0..20 {
            follower.next().await;
        }
        let asked = server.asked.lock().unwrap();
        let pauses: Vec<u64> = asked.windows(2).map(|two| two[1].0 - two[0].0).collect();
        assert_eq!(pauses[..6], [800, 1600, 3200, 6400, 12800, 25600]);
        assert!(pauses[6..].iter().all(|pause| *pause == 30_000), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_refusals_is_no_storm() {
        for error in [answered(500, None), answered(429, Some(1)), answered(410, None)] {
            let server = Arc::new(Scripted::default());
            server.lists.lock().unwrap().extend((0..1000).map(|_| Err(error.clone())));
            let mut follower = follower(&server);
            let end = Instant::now() + Duration::from_secs(3600);
            while let Ok(news) = tokio::time::timeout_at(end, follower.next()).await {
                assert_eq!(news, News::Failing(error.clone()));
            }
            let asked = server.asked.lock().unwrap().len();
            // Six while the pauses grow, then one in half a minute.
            assert!((100..=126).contains(&asked), "{error}: {asked} requests");
        }
    }

    /// A server whose watches last two seconds, and which refuses one request in ten.
    #[derive(Default)]
    struct Cutting(Mutex<Vec<Instant>>);

    struct Short;

    #[async_trait]
    impl Watching for Short {
        async fn next(&mut self) -> Option<Event> {
            tokio::time::sleep(Duration::from_secs(2)).await;
            None
        }
    }

    #[async_trait]
    impl Api for Cutting {
        async fn call(&self, _: Call) -> Result<Value, ApiError> {
            list("5", "")
        }

        async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
            let mut asked = self.0.lock().unwrap();
            asked.push(Instant::now());
            match asked.len() % 10 {
                0 => Err(answered(500, None)),
                _ => Ok(Box::new(Short)),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_lasted_ends_the_growth_of_pauses() {
        let server = Arc::new(Cutting::default());
        let selection = Selection { path: "/api/v1/pods".to_owned(), query: Vec::new() };
        let none: Spread = Arc::new(|_| Duration::ZERO);
        let mut follower = Follower::new(Arc::clone(&server) as Arc<dyn Api>, selection, none);
        let end = Instant::now() + Duration::from_secs(300);
        while tokio::time::timeout_at(end, follower.next()).await.is_ok() {}
        let asked = server.0.lock().unwrap();
        let longest = asked.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert_eq!(longest, Duration::from_secs(2), "no pause is longer than a watch");
        assert!(asked.len() <= 170, "{}", asked.len());
    }
}
