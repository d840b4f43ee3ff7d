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
                if !self.end_watch() {
                    self.pause(None);
                }
                None
            }
        }
    }

    /// Ends a watch; returns whether there was one that lasted: then the server is well.
    fn end_watch(&mut self) -> bool {
        let begun = self.watch.take().map(|(begun, _)| begun);
        let lasted = begun.is_some_and(|begun| begun.elapsed() >= SHORT);
        if lasted {
            self.failures = 0;
        }
        lasted
    }

    fn fail(&mut self, error: ApiError) -> Seen {
        self.end_watch();
        // A server that was restored from a backup is behind what it once told.
        if error.is_expired() || error.is_ahead() {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use serde_json::json;
    use tokio::time::sleep;

    use super::super::CONFIG_MAPS;
    use super::*;

    /// What a watch tells after how many milliseconds; it ends after the last.
    type Script = VecDeque<Line>;
    type Line = (u64, Result<WatchEvent, ApiError>);

    /// Always the same list; watches as they are told.
    struct Server {
        list: Value,
        watches: Mutex<VecDeque<Result<Script, ApiError>>>,
        /// Milliseconds since the start, and the end of the path.
        asked: Mutex<Vec<(u128, String)>>,
        begun: Instant,
    }

    struct Told(Script);

    #[async_trait]
    impl Watching for Told {
        async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
            let (after, event) = self.0.pop_front()?;
            sleep(Duration::from_millis(after)).await;
            Some(event)
        }
    }

    impl Server {
        fn note(&self, path: &str) {
            let query = path.rsplit_once("name%3Da").unwrap().1.to_owned();
            self.asked.lock().unwrap().push((self.begun.elapsed().as_millis(), query));
        }
    }

    #[async_trait]
    impl Api for Server {
        async fn call(&self, call: Call) -> Result<Value, ApiError> {
            self.note(&call.path);
            Ok(self.list.clone())
        }
        async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
            self.note(path);
            let next = self.watches.lock().unwrap().pop_front().expect("another watch");
            next.map(|script| Box::new(Told(script)) as Box<dyn Watching>)
        }
    }

    fn refused(code: u16, after: Option<u64>) -> ApiError {
        let retry_after = after.map(Duration::from_secs);
        ApiError::Answered { code, reason: String::new(), message: "no".into(), retry_after }
    }

    fn object(name: &str, revision: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": revision}})
    }

    fn event(change: Change, name: &str, revision: &str) -> Result<WatchEvent, ApiError> {
        Ok(WatchEvent { change, object: object(name, revision) })
    }

    fn follow(list: Value, watches: Vec<Result<Vec<Line>, ApiError>>) -> (Arc<Server>, Follow) {
        let watches = watches.into_iter().map(|watch| watch.map(Into::into)).collect();
        let (watches, asked) = (Mutex::new(watches), Mutex::default());
        let server = Arc::new(Server { list, watches, asked, begun: Instant::now() });
        let at = Address::new(CONFIG_MAPS, "ns", "a");
        let api = Arc::clone(&server) as Arc<dyn Api>;
        (server, Follow::new(api, at, false, Arc::new(|_| Duration::ZERO)))
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_object_is_told_of_and_nothing_twice() {
        let list = json!({"metadata": {"resourceVersion": "5"},
            "items": [object("other", "4"), object("a", "3")]});
        let (server, mut follow) = follow(
            list,
            vec![
                Ok(vec![
                    (0, event(Change::Modified, "other", "6")),
                    (0, event(Change::Modified, "a", "7")),
                    (2000, event(Change::Bookmark, "", "9")),
                ]),
                Ok(vec![
                    (0, event(Change::Deleted, "other", "10")),
                    (0, event(Change::Deleted, "a", "11")),
                ]),
            ],
        );
        assert_eq!(follow.next().await, Seen::Present(object("a", "3")));
        assert_eq!(follow.next().await, Seen::Present(object("a", "7")));
        assert_eq!(follow.next().await, Seen::Absent);
        let watch = |revision: u32| {
            let rest = "&watch=true&allowWatchBookmarks=true&resourceVersion=";
            format!("{rest}{revision}&timeoutSeconds=1800")
        };
        let expected = [(0, "&resourceVersion=0".to_owned()), (0, watch(5)), (2000, watch(9))];
        assert_eq!(*server.asked.lock().unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_paced_and_what_is_too_old_is_listed_anew() {
        let list = json!({"metadata": {"resourceVersion": "5"}, "items": []});
        let (server, mut follow) = follow(
            list,
            vec![
                Err(refused(500, None)),
                Err(refused(429, Some(7))),
                Err(refused(429, Some(9_999_999))),
                Ok(vec![]),
                // It lasted: what failed before is over.
                Ok(vec![(5000, Err(refused(410, None)))]),
                Ok(vec![(0, event(Change::Added, "a", "6"))]),
            ],
        );
        for expected in ["absent", "500", "429", "429", "410", "absent", "present"] {
            let seen = match follow.next().await {
                Seen::Present(_) => "present".to_owned(),
                Seen::Absent => "absent".to_owned(),
                Seen::Failing(error) => error.code().unwrap().to_string(),
            };
            assert_eq!(seen, expected);
        }
        let asked = server.asked.lock().unwrap();
        let times: Vec<u128> = asked.iter().map(|(at, _)| *at).collect();
        // List, three refusals, a watch that ends at once, one that lasts, list, watch.
        assert_eq!(times, [0, 0, 800, 7_800, 307_800, 314_200, 320_000, 320_000]);
        assert_eq!(asked[6].1, "", "not from the server's memory");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_went_back_in_time_is_listed_anew() {
        let list = json!({"metadata": {"resourceVersion": "5"}, "items": [object("a", "3")]});
        let ahead = ApiError::Answered {
            code: 504,
            reason: "Timeout".to_owned(),
            message: "Too large resource version: 900, current: 5".to_owned(),
            retry_after: None,
        };
        let (server, mut follow) = follow(
            list,
            vec![Err(ahead.clone()), Ok(vec![(0, event(Change::Modified, "a", "6"))])],
        );
        assert_eq!(follow.next().await, Seen::Present(object("a", "3")));
        assert_eq!(follow.next().await, Seen::Failing(ahead));
        assert_eq!(follow.next().await, Seen::Present(object("a", "3")));
        assert_eq!(follow.next().await, Seen::Present(object("a", "6")));
        assert_eq!(server.asked.lock().unwrap()[2].1, "", "a list, not from the server's memory");
    }
}
