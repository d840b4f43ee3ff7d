//! The keeper against a server that is told what it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api, ApiError, Call, Change, WatchEvent, Watching};
use async_trait::async_trait;
use kubelet_model::ObjectKey;
use kubelet_model::trust::TrustAsk;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::{Asked, Keeper, Listener, Parts, TrustError};
use crate::pem;

type Events = mpsc::Receiver<WatchEvent>;

/// Serves bundles in one version, or in none.
#[derive(Default)]
struct Server {
    version: Mutex<&'static str>,
    items: Mutex<Vec<Value>>,
    watch: Mutex<Option<Events>>,
    asked: Mutex<Vec<String>>,
}

struct Told(Events);

#[async_trait]
impl Watching for Told {
    async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
        self.0.recv().await.map(Ok)
    }
}

fn not_found() -> ApiError {
    let (reason, message) = ("NotFound".to_owned(), "not found".to_owned());
    ApiError::Answered { code: 404, reason, message, retry_after: None }
}

#[async_trait]
impl Api for Server {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        let path = call.path.trim_start_matches("/apis/certificates.k8s.io/").to_owned();
        self.asked.lock().unwrap().push(path.clone());
        let (version, rest) = path.split_once('/').unwrap_or((&path, ""));
        let served = *self.version.lock().unwrap();
        match (version == served, rest.is_empty()) {
            (true, true) => Ok(json!({"resources": [{"name": "clustertrustbundles"}]})),
            (true, false) => {
                let items = self.items.lock().unwrap().clone();
                Ok(json!({"metadata": {"resourceVersion": "5"}, "items": items}))
            }
            // The group is there, but the resource is not.
            (false, true) if version == "v1beta1" && !served.is_empty() => {
                Ok(json!({"resources": [{"name": "podcertificaterequests"}]}))
            }
            (false, _) => Err(not_found()),
        }
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        let served = *self.version.lock().unwrap();
        match self.watch.lock().unwrap().take() {
            Some(events) if path.contains(served) => Ok(Box::new(Told(events))),
            _ => Err(not_found()),
        }
    }
}

/// What was said last of each ask, as letters, and how often anything was said.
#[derive(Default)]
struct Heard {
    last: Mutex<BTreeMap<String, String>>,
    count: AtomicUsize,
}

impl Listener for Heard {
    fn told(&self, key: &ObjectKey, anchors: Result<Option<Vec<u8>>, TrustError>) {
        let text = match anchors {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(text)) => {
                let blocks = pem::blocks(&String::from_utf8(text).unwrap());
                blocks.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
            }
            Err(error) => error.to_string(),
        };
        self.last.lock().unwrap().insert(key.name.clone(), text);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

struct World {
    server: Arc<Server>,
    heard: Arc<Heard>,
    asked: watch::Sender<Asked>,
    events: mpsc::Sender<WatchEvent>,
}

/// A world, and its keeper's work.
fn world(version: &'static str) -> (World, impl Future<Output = ()>) {
    let (events, receiver) = mpsc::channel(8);
    let server = Arc::new(Server {
        version: Mutex::new(version),
        watch: Mutex::new(Some(receiver)),
        ..Server::default()
    });
    let (asked, reader) = watch::channel(Asked::default());
    let heard = Arc::new(Heard::default());
    // The order turns with each shuffle.
    let turns = AtomicUsize::new(0);
    let keeper = Keeper::new(Parts {
        api: Arc::clone(&server) as Arc<dyn Api>,
        cache_max: 8,
        asked: reader,
        listener: Arc::clone(&heard) as Arc<dyn Listener>,
        draw: Arc::new(move |below| turns.fetch_add(1, Ordering::Relaxed) % below),
        spread: Arc::new(|_| Duration::ZERO),
    });
    (World { server, heard, asked, events }, keeper.run())
}

fn bundle(name: &str, signer: &str, parts: &[&str]) -> Value {
    let text: String =
        parts.iter().map(|part| pem::block("CERTIFICATE", part.as_bytes())).collect();
    json!({"metadata": {"name": name, "resourceVersion": "6"},
        "spec": {"signerName": signer, "trustBundle": text}})
}

fn by_name(name: &str) -> ObjectKey {
    TrustAsk::Name(name.to_owned()).key()
}

fn by_signer(name: &str) -> ObjectKey {
    TrustAsk::Signer { name: name.to_owned(), selector: Some(Default::default()) }.key()
}

impl World {
    fn ask(&self, keys: &[&ObjectKey]) {
        let keys: BTreeSet<ObjectKey> = keys.iter().map(|key| (*key).clone()).collect();
        self.asked.send_replace(Arc::new(keys));
    }

    async fn happens(&self, change: Change, object: Value) {
        self.events.send(WatchEvent { change, object }).await.unwrap();
    }

    /// What is known of an ask once everything has settled.
    async fn heard(&self, key: &ObjectKey) -> String {
        sleep(Duration::from_millis(10)).await;
        self.heard.last.lock().unwrap().get(&key.name).cloned().unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.heard.count.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn answers_follow_the_bundles() {
    let (world, work) = world("v1beta1");
    let test = async {
        sleep(Duration::from_secs(60)).await;
        assert!(world.server.asked.lock().unwrap().is_empty(), "nobody has asked yet");
        world.server.items.lock().unwrap().extend([bundle("a", "", &["x"])]);
        let (a, b, s) = (by_name("a"), by_name("b"), by_signer("s"));
        world.ask(&[&a, &b]);
        assert_eq!(world.heard(&a).await, "x");
        assert_eq!(world.heard(&b).await, "nothing");
        world.ask(&[&a, &b, &s]);
        assert_eq!(world.heard(&s).await, "nothing");
        assert_eq!(world.count(), 3);
        world.happens(Change::Added, bundle("s:1", "s", &["p", "q"])).await;
        world.happens(Change::Modified, bundle("a", "", &["y", "y"])).await;
        let s_order = world.heard(&s).await;
        assert_eq!(s_order.len(), 2, "{s_order}");
        assert_eq!(world.heard(&a).await, "y");
        assert_eq!(world.count(), 5, "only what has changed was told");
        // The same again is no news.
        world.happens(Change::Modified, bundle("a", "", &["y", "y"])).await;
        assert_eq!(world.heard(&a).await, "y");
        assert_eq!(world.count(), 5);
        // Whoever asks again soon gets the same order.
        world.ask(&[&a]);
        sleep(Duration::from_secs(200)).await;
        world.ask(&[&a, &s]);
        assert_eq!(world.heard(&s).await, s_order);
        // Another signer took it over.
        world.happens(Change::Modified, bundle("s:1", "t", &["p", "q"])).await;
        assert_eq!(world.heard(&s).await, "nothing");
        world.happens(Change::Deleted, bundle("a", "", &[])).await;
        assert_eq!(world.heard(&a).await, "nothing");
        let asked = world.server.asked.lock().unwrap();
        assert_eq!(asked[0], "v1beta1");
        assert_eq!(asked.len(), 2, "{asked:?}");
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}

#[tokio::test(start_paused = true)]
async fn an_older_server_is_asked_in_its_own_version() {
    let (world, work) = world("v1alpha1");
    let test = async {
        world.server.items.lock().unwrap().extend([bundle("a", "", &["x"])]);
        world.ask(&[&by_name("a")]);
        assert_eq!(world.heard(&by_name("a")).await, "x");
        let asked = world.server.asked.lock().unwrap();
        assert_eq!(asked[..2], ["v1beta1", "v1alpha1"]);
        assert!(asked[2].starts_with("v1alpha1/clustertrustbundles"), "{asked:?}");
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_learns_of_bundles_is_asked_again() {
    let (world, work) = world("");
    let test = async {
        let a = by_name("a");
        world.ask(&[&a]);
        let why = world.heard(&a).await;
        assert!(why.contains("neither in certificates.k8s.io/v1beta1 nor in v1alpha1"), "{why}");
        *world.server.version.lock().unwrap() = "v1beta1";
        world.server.items.lock().unwrap().extend([bundle("a", "", &["x"])]);
        sleep(Duration::from_secs(31)).await;
        assert_eq!(world.heard(&a).await, "x");
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}
