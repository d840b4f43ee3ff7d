//! Watches, requests and pauses under paused time, against a server in memory.

use std::collections::BTreeMap;
use std::sync::Mutex;

use api_client::{Api, Call, Change, WatchEvent, Watching};
use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, advance, sleep};

use super::entry::{Way, idle_max};
use super::*;

/// A server that holds objects by their paths and notes what it is asked.
#[derive(Default)]
struct Fake(Mutex<State>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    revision: u64,
    watches: Vec<(String, mpsc::UnboundedSender<WatchEvent>)>,
    asked: Vec<String>,
    refusal: Option<ApiError>,
    delay: Duration,
}

struct FakeWatch(mpsc::UnboundedReceiver<WatchEvent>);

#[async_trait]
impl Watching for FakeWatch {
    async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
        self.0.recv().await.map(Ok)
    }
}

/// `/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da&…` names `…/a`.
fn named(path: &str) -> String {
    let (list, query) = path.split_once("?fieldSelector=metadata.name%3D").unwrap();
    format!("{list}/{}", query.split('&').next().unwrap())
}

impl Fake {
    fn put(&self, path: &str, more: Value) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        let (rest, name) = path.rsplit_once('/').unwrap();
        let mut object = more;
        let namespace = rest.strip_prefix("/api/v1/namespaces/").map(|rest| rest.split('/').next());
        object["metadata"] = json!({"name": name, "resourceVersion": state.revision.to_string()});
        if let Some(namespace) = namespace.flatten() {
            object["metadata"]["namespace"] = namespace.into();
        }
        let change = match state.objects.insert(path.to_owned(), object.clone()) {
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        state.tell(path, WatchEvent { change, object });
    }

    fn delete(&self, path: &str) {
        let mut state = self.0.lock().unwrap();
        let mut object = state.objects.remove(path).unwrap();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        state.tell(path, WatchEvent { change: Change::Deleted, object });
    }

    fn refuse(&self, error: Option<ApiError>) {
        self.0.lock().unwrap().refusal = error;
    }

    /// What was asked since the last time, as `list a`, `watch a` and `get a`.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn open_watches(&self) -> usize {
        let mut state = self.0.lock().unwrap();
        state.watches.retain(|(_, watch)| !watch.is_closed());
        state.watches.len()
    }

    async fn note(&self, verb: &str, path: &str) -> Result<(), ApiError> {
        let memory = match path.ends_with("resourceVersion=0") {
            true => " rv0",
            false => "",
        };
        let path = if path.contains("?field") { named(path) } else { path.to_owned() };
        let name = path.rsplit_once('/').unwrap().1.split('?').next().unwrap();
        let delay = {
            let mut state = self.0.lock().unwrap();
            state.asked.push(format!("{verb} {name}{memory}"));
            state.delay
        };
        sleep(delay).await;
        self.0.lock().unwrap().refusal.clone().map_or(Ok(()), Err)
    }
}

impl State {
    fn tell(&self, path: &str, event: WatchEvent) {
        for (_, watch) in self.watches.iter().filter(|(of, _)| of == path) {
            let _ = watch.send(event.clone());
        }
    }
}

#[async_trait]
impl Api for Fake {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        if !call.path.contains("fieldSelector") {
            self.note("get", &call.path).await?;
            let path = call.path.split('?').next().unwrap();
            let found = self.0.lock().unwrap().objects.get(path).cloned();
            let message = "configmaps \"a\" not found".to_owned();
            return found.ok_or(answered(404, &message));
        }
        self.note("list", &call.path).await?;
        let state = self.0.lock().unwrap();
        let items: Vec<&Value> = state.objects.get(&named(&call.path)).into_iter().collect();
        Ok(json!({"metadata": {"resourceVersion": state.revision.to_string()}, "items": items}))
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.note("watch", path).await?;
        let (send, receive) = mpsc::unbounded_channel();
        self.0.lock().unwrap().watches.push((named(path), send));
        Ok(Box::new(FakeWatch(receive)))
    }
}

fn answered(code: u16, message: &str) -> ApiError {
    let (reason, message) = (String::new(), message.to_owned());
    ApiError::Answered { code, reason, message, retry_after: None }
}

/// Writes down what it is told, without values.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, what: &str, at: &Address) {
        self.0.lock().unwrap().push(format!("{what} {}", at.name));
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Listener for Diary {
    fn present(&self, at: &Address, object: Value) -> Result<(), String> {
        if let Some(key) = at.key() {
            config_object(&key, object)?;
        }
        self.note("present", at);
        Ok(())
    }
    fn absent(&self, at: &Address) {
        self.note("absent", at);
    }
    fn forget(&self, at: &Address) {
        self.note("forget", at);
    }
}

struct Case {
    server: Arc<Fake>,
    diary: Arc<Diary>,
    wanted: watch::Sender<Wanted>,
    reader: Reader,
}

impl Case {
    fn want(&self, wanted: &[(&Address, Use)]) {
        let mut all = BTreeMap::new();
        for (at, usage) in wanted {
            all.insert((*at).clone(), *usage);
        }
        self.wanted.send_replace(Arc::new(all));
    }

    async fn read(&self, at: &Address) -> String {
        match self.reader.read(at).await {
            Ok(()) => "ok".to_owned(),
            Err(trouble) => trouble.to_string(),
        }
    }
}

/// The agent runs it as a task.
fn spawnable<F: Future<Output = ()> + Send + 'static>(work: F) -> F {
    work
}

/// Runs a test beside what it tests.
async fn run(strategy: Strategy, test: impl AsyncFnOnce(Case)) {
    let (server, diary) = (Arc::new(Fake::default()), Arc::new(Diary::default()));
    let (wanted, receiver) = watch::channel(Wanted::default());
    let settings = Settings {
        strategy,
        sync_frequency: Duration::from_secs(60),
        ttl: Arc::new(|| Duration::from_secs(30)),
    };
    let connect: Connect = {
        let server = Arc::clone(&server);
        Arc::new(move || Arc::clone(&server) as Arc<dyn Api>)
    };
    let listener = Arc::clone(&diary) as Arc<dyn Listener>;
    let (objects, reader) =
        new(connect, settings, receiver, listener, Arc::new(|_| Duration::ZERO));
    let case = Case { server, diary, wanted, reader };
    tokio::join!(spawnable(objects.run()), test(case));
}

fn map(name: &str) -> Address {
    Address::new(CONFIG_MAPS, "ns", name)
}

const A: &str = "/api/v1/namespaces/ns/configmaps/a";

async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[test]
fn the_configuration_decides_about_configuration() {
    use Strategy::{Cache, Get, Watch};
    for (resource, strategy, way) in [
        (CONFIG_MAPS, Watch, Way::Watched),
        (SECRETS, Cache, Way::Cached),
        (SECRETS, Get, Way::Live),
        (RUNTIME_CLASSES, Get, Way::Watched),
        (SERVICES, Cache, Way::Watched),
        (CLAIMS, Watch, Way::Live),
        (VOLUMES, Cache, Way::Live),
    ] {
        assert_eq!(Way::of(resource, strategy), way, "{resource:?} {strategy:?}");
    }
    for (text, seconds) in
        [(None, 60), (Some("0"), 0), (Some("300"), 300), (Some("-5"), 0), (Some("x"), 60)]
    {
        assert_eq!(ttl(text), Duration::from_secs(seconds), "{text:?}");
    }
    assert_eq!(idle_max(Duration::from_secs(60)), Duration::from_secs(300));
    assert_eq!(idle_max(Duration::from_secs(1)), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn an_object_is_watched_while_it_is_wanted() {
    run(Strategy::Watch, async |case| {
        let a = map("a");
        assert_eq!(case.read(&a).await, r#"object "ns"/"a" not registered"#);
        case.want(&[(&a, Use::Held)]);
        assert_eq!(case.read(&a).await, r#"configmap "a" not found"#);
        settle().await;
        assert_eq!(case.server.asked(), ["list a rv0", "watch a"]);
        case.server.put(A, json!({"data": {"k": "1"}}));
        settle().await;
        assert_eq!(case.read(&a).await, "ok");
        // What a server tells of others is no news.
        let other = json!({"metadata": {"name": "b", "namespace": "ns", "resourceVersion": "1"}});
        for change in [Change::Modified, Change::Deleted] {
            let event = WatchEvent { change, object: other.clone() };
            case.server.0.lock().unwrap().tell(A, event);
        }
        case.server.put(A, json!({"data": {"k": "2"}}));
        case.server.delete(A);
        settle().await;
        assert_eq!(case.diary.read(), ["absent a", "present a", "present a", "absent a"]);
        assert_eq!((case.server.asked().len(), case.server.open_watches()), (0, 1));
        // A volume that nobody reads is still held.
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(case.server.open_watches(), 1);
        case.want(&[]);
        settle().await;
        assert_eq!((case.diary.read(), case.server.open_watches()), (vec!["forget a".into()], 0));
        assert_eq!(case.read(&a).await, r#"object "ns"/"a" not registered"#);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_immutable_is_watched_no_more() {
    run(Strategy::Watch, async |case| {
        let a = map("a");
        case.server.put(A, json!({"data": {"k": "1"}}));
        case.want(&[(&a, Use::Held)]);
        assert_eq!(case.read(&a).await, "ok");
        case.server.put(A, json!({"data": {"k": "1"}, "immutable": true}));
        settle().await;
        assert_eq!(case.server.open_watches(), 0);
        case.server.delete(A);
        settle().await;
        assert_eq!(case.read(&a).await, "ok");
        assert_eq!(case.diary.read(), ["present a", "present a"]);
        // Wanted by somebody else later, it is looked for anew.
        case.want(&[]);
        settle().await;
        case.want(&[(&a, Use::Held)]);
        assert_eq!(case.read(&a).await, r#"configmap "a" not found"#);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_readers_ends_and_begins_again() {
    run(Strategy::Watch, async |case| {
        let a = map("a");
        case.server.put(A, json!({}));
        case.want(&[(&a, Use::Read)]);
        assert_eq!(case.read(&a).await, "ok");
        sleep(Duration::from_secs(200)).await;
        assert_eq!(case.read(&a).await, "ok");
        sleep(Duration::from_secs(290)).await;
        assert_eq!(case.server.open_watches(), 1, "it was read 290 s ago");
        sleep(Duration::from_secs(100)).await;
        assert_eq!(case.server.open_watches(), 0);
        case.server.asked();
        case.server.put(A, json!({"data": {"k": "new"}}));
        sleep(Duration::from_secs(3600)).await;
        assert!(case.server.asked().is_empty(), "idle costs nothing");
        case.diary.read();
        assert_eq!(case.read(&a).await, "ok");
        settle().await;
        assert_eq!(case.diary.read(), ["present a"]);
        assert_eq!(case.server.asked(), ["list a", "watch a"], "and not from memory");
        // Once a volume has it too, it stays.
        case.want(&[(&a, Use::Held)]);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(case.server.open_watches(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn readers_are_told_what_is_wrong() {
    run(Strategy::Watch, async |case| {
        let a = map("a");
        let forbidden = "configmaps \"a\" is forbidden: no relationship found";
        case.server.refuse(Some(answered(403, forbidden)));
        case.want(&[(&a, Use::Held)]);
        let expected = format!("failed to sync configmap cache: {forbidden}");
        assert_eq!(case.read(&a).await, expected);
        let (server, why) = ("https://s".to_owned(), "refused".to_owned());
        case.server.refuse(Some(ApiError::Unreachable { server, why }));
        sleep(Duration::from_secs(1)).await;
        let away =
            "failed to sync configmap cache: cannot reach the API server at https://s: refused";
        assert_eq!(case.read(&a).await, away);
        case.server.refuse(None);
        case.server.0.lock().unwrap().delay = Duration::from_secs(2);
        case.want(&[]);
        settle().await;
        case.want(&[(&a, Use::Held)]);
        let late = "failed to sync configmap cache: timed out waiting for the condition";
        assert_eq!(case.read(&a).await, late);
        case.server.put(A, json!({"data": {"../../etc": "x"}}));
        sleep(Duration::from_secs(5)).await;
        let unusable = r#"configmap ns/a: data: "../../etc" cannot be a key"#;
        assert_eq!(case.read(&a).await, unusable);
        // A failure later does not take away what is known.
        case.server.put(A, json!({}));
        settle().await;
        case.server.refuse(Some(answered(403, "no")));
        case.server.0.lock().unwrap().watches.clear();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(case.read(&a).await, "ok");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn many_objects_are_listed_a_few_at_a_time() {
    run(Strategy::Watch, async |case| {
        case.server.0.lock().unwrap().delay = Duration::from_millis(100);
        let all: Vec<Address> = (0..320).map(|n| map(&format!("m{n}"))).collect();
        let wanted: Vec<(&Address, Use)> = all.iter().map(|at| (at, Use::Held)).collect();
        case.want(&wanted);
        settle().await;
        assert_eq!(case.server.asked().len(), lanes::REQUESTS_MAX);
        let begun = Instant::now();
        while case.server.open_watches() < all.len() {
            sleep(Duration::from_millis(50)).await;
        }
        // 640 requests of 100 ms, 16 at a time.
        let took = begun.elapsed().as_millis();
        assert!((3_900..4_200).contains(&took), "{took} ms");
        let told = join_all(all.iter().map(|at| case.read(at))).await;
        assert!(told.iter().all(|text| text.ends_with("not found")), "{told:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn cached_objects_are_asked_for_once_they_are_old() {
    run(Strategy::Cache, async |case| {
        let a = map("a");
        case.want(&[(&a, Use::Read)]);
        settle().await;
        assert!(case.server.asked().is_empty(), "nobody has read it");
        assert_eq!(case.read(&a).await, r#"configmaps "a" not found"#);
        case.server.put(A, json!({}));
        assert_eq!(case.read(&a).await, "ok", "absence is never believed for long");
        assert_eq!(case.read(&a).await, "ok");
        assert_eq!(case.server.asked(), ["get a", "get a"]);
        advance(Duration::from_secs(31)).await;
        case.server.put(A, json!({"data": {"k": "2"}}));
        assert_eq!(join_all([case.read(&a), case.read(&a)]).await, ["ok", "ok"]);
        assert_eq!(case.server.asked(), ["get a rv0"]);
        case.reader.read_anew(&a).await.unwrap();
        assert_eq!(case.server.asked(), ["get a rv0"]);
        assert_eq!(case.diary.read(), ["absent a", "present a", "present a"]);
        // What is known serves while nothing better can be had.
        case.server.refuse(Some(answered(500, "broken")));
        advance(Duration::from_secs(31)).await;
        assert_eq!(case.read(&a).await, "ok");
        // A server whose memory lags behind changes nothing.
        case.server.refuse(None);
        let old = json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "1"}});
        case.server.0.lock().unwrap().objects.insert(A.to_owned(), old);
        assert_eq!(case.read(&a).await, "ok");
        assert!(case.diary.read().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn held_objects_that_are_not_watched_are_looked_at_now_and_then() {
    run(Strategy::Get, async |case| {
        let a = map("a");
        case.server.put(A, json!({}));
        case.want(&[(&a, Use::Held)]);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(case.server.asked(), ["get a"]);
        case.server.put(A, json!({"data": {"k": "2"}}));
        sleep(Duration::from_secs(31)).await;
        assert_eq!(case.diary.read(), ["present a", "present a"]);
        case.server.refuse(Some(answered(500, "broken")));
        sleep(Duration::from_secs(62)).await;
        assert_eq!(case.server.asked().len(), 4, "at 60, 120, then after 0.8 s");
        assert_eq!(case.read(&a).await, "broken");
        case.server.refuse(None);
        case.want(&[(&a, Use::Read)]);
        settle().await;
        case.server.asked();
        sleep(Duration::from_secs(600)).await;
        assert!(case.server.asked().is_empty());
        assert_eq!(join_all([case.read(&a), case.read(&a)]).await, ["ok", "ok"]);
        assert_eq!(case.server.asked(), ["get a", "get a"], "nobody is told of the past");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_never_listed() {
    run(Strategy::Watch, async |case| {
        let claim = Address::new(CLAIMS, "ns", "c");
        let path = "/api/v1/namespaces/ns/persistentvolumeclaims/c";
        case.server.put(path, json!({"spec": {"volumeName": "pv"}, "immutable": true}));
        case.want(&[(&claim, Use::Held)]);
        assert_eq!(case.read(&claim).await, "ok");
        sleep(Duration::from_secs(61)).await;
        let asked = case.server.asked();
        assert!(asked.len() >= 2 && asked.iter().all(|ask| ask == "get c"), "{asked:?}");
        let class = Address::new(RUNTIME_CLASSES, "", "r");
        case.want(&[(&class, Use::Held)]);
        let missing = r#"runtimeclass.node.k8s.io "r" not found"#;
        assert_eq!(case.read(&class).await, missing);
        settle().await;
        assert_eq!(case.server.asked(), ["list r rv0", "watch r"]);
    })
    .await;
}
