//! Tests of following: where it goes on, what it asks and how often.

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
    let watch = |revision: u32, limit: u32| {
        format!(
            "{selected}&watch=true&allowWatchBookmarks=true&resourceVersion={revision}\
             &timeoutSeconds={limit}"
        )
    };
    let expected = [
        (0, format!("{selected}&limit=500&resourceVersion=0")),
        (0, format!("{selected}&limit=500&continue=more")),
        (0, watch(5, 300)),
        // It ended at once: the server is given a rest, and may be another.
        (800, watch(9, 60)),
    ];
    assert_eq!(*server.asked.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn failures_are_paced_and_what_is_too_old_is_listed_anew() {
    let server = Arc::new(Scripted::default());
    let down = || ApiError::Unreachable { server: String::new(), why: "refused".into() };
    server.lists.lock().unwrap().extend([Err(down()), Err(down()), list("5", ""), list("50", "")]);
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

/// A server whose watches last so long, tell so many bookmarks with ever newer revisions,
/// and which refuses one of so many.
struct Lasting {
    watch: Duration,
    bookmarks: u64,
    refused: usize,
    /// Of the list; a watch from a later one tells nothing.
    revision: Mutex<u64>,
    asked: Mutex<Vec<(Instant, String)>>,
}

struct Quiet {
    bookmarks: VecDeque<Event>,
    end: Instant,
}

#[async_trait]
impl Watching for Quiet {
    async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.bookmarks.pop_front() {
            return Some(event);
        }
        tokio::time::sleep_until(self.end).await;
        None
    }
}

impl Lasting {
    fn new(watch: Duration, bookmarks: u64, refused: usize) -> Arc<Self> {
        let (revision, asked) = (Mutex::new(50), Mutex::default());
        Arc::new(Self { watch, bookmarks, refused, revision, asked })
    }

    fn note(&self, path: &str) -> usize {
        let mut asked = self.asked.lock().unwrap();
        asked.push((Instant::now(), path.to_owned()));
        asked.len()
    }

    fn lists(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(_, path)| !path.contains("watch=true")).count()
    }

    async fn follow_for(self: &Arc<Self>, seconds: u64) -> Vec<News> {
        let selection = Selection { path: "/api/v1/pods".to_owned(), query: Vec::new() };
        let none: Spread = Arc::new(|_| Duration::ZERO);
        let mut follower = Follower::new(Arc::clone(self) as Arc<dyn Api>, selection, none);
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut news = Vec::new();
        while let Ok(next) = tokio::time::timeout_at(end, follower.next()).await {
            news.push(next);
        }
        news
    }
}

#[async_trait]
impl Api for Lasting {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        self.note(&call.path);
        list(&self.revision.lock().unwrap().to_string(), "")
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        if self.note(path).is_multiple_of(self.refused) {
            return Err(answered(500, None));
        }
        let number = |key: &str| {
            let value = path.split('&').find_map(|pair| pair.strip_prefix(key)).unwrap();
            value.parse::<u64>().unwrap()
        };
        let asked = Duration::from_secs(number("timeoutSeconds="));
        let (from, current) = (number("resourceVersion="), *self.revision.lock().unwrap());
        let told = if from <= current { self.bookmarks } else { 0 };
        let bookmarks = (1..=told).map(|more| event(Change::Bookmark, &(from + more).to_string()));
        let end = Instant::now() + self.watch.min(asked);
        *self.revision.lock().unwrap() += told;
        Ok(Box::new(Quiet { bookmarks: bookmarks.collect(), end }))
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_watch_that_lasted_ends_the_growth_of_pauses() {
    let server = Lasting::new(Duration::from_secs(2), 1, 10);
    server.follow_for(300).await;
    let asked = server.asked.lock().unwrap();
    let longest = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
    assert_eq!(longest, Duration::from_secs(2), "no pause is longer than a watch");
    assert!(asked.len() <= 170, "{}", asked.len());
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_server_holds_is_listed_anew_now_and_then() {
    for (watch, bookmarks, lists, requests) in [
        // A server that is well tells its revision: one list is enough.
        (LONG, 1, 1, 13),
        // Nothing has changed, or all that is held was lost: who knows.
        (LONG, 0, 12, 24),
        // The same where idle connections are cut.
        (Duration::from_secs(50), 0, 36, 108),
        (Duration::from_secs(50), 1, 1, 73),
    ] {
        let server = Lasting::new(watch, bookmarks, usize::MAX);
        server.follow_for(3590).await;
        let asked = server.asked.lock().unwrap().len();
        assert_eq!(server.lists(), lists, "{watch:?}, {bookmarks} bookmarks");
        assert!(asked <= requests, "{watch:?}, {bookmarks} bookmarks: {asked} requests");
    }
}

/// A server whose store was restored keeps watches from what it does not know silent.
#[tokio::test(start_paused = true)]
async fn a_restored_server_that_keeps_silent_is_noticed_soon() {
    let server = Lasting::new(LONG, 1, 5);
    let restored = Arc::clone(&server);
    // The third watch ends at 900 s, the fourth is refused and tried again.
    let restore = async move {
        tokio::time::sleep(Duration::from_secs(890)).await;
        *restored.revision.lock().unwrap() = 7;
    };
    let (news, ()) = tokio::join!(server.follow_for(1000), restore);
    let expected = [News::All(vec![object("50")]), News::Failing(answered(500, None))];
    assert_eq!(news[..2], expected);
    assert_eq!(news[2..], [News::All(vec![object("7")])], "within a minute and a pause");
    let asked = server.asked.lock().unwrap();
    assert!(asked[5].1.ends_with("resourceVersion=53&timeoutSeconds=60"), "{asked:?}");
    assert!(asked[7].1.ends_with("resourceVersion=7&timeoutSeconds=300"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn revisions_that_go_back_are_another_history() {
    let server = Arc::new(Scripted::default());
    server.lists.lock().unwrap().extend([list("50", ""), list("8", "")]);
    server.watches.lock().unwrap().extend([
        Ok(vec![event(Change::Bookmark, "7"), event(Change::Added, "8")]),
        Ok(vec![event(Change::Added, "9")]),
    ]);
    let mut follower = follower(&server);
    assert_eq!(follower.next().await, News::All(vec![object("50")]));
    assert_eq!(follower.next().await, News::All(vec![object("8")]), "and nothing between");
    assert_eq!(follower.next().await, News::Put(object("9")));
    assert_eq!(server.asked.lock().unwrap()[2].0, 800, "the server is given a rest");
}
