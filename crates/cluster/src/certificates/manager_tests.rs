//! Managers and bootstraps against a server that does as it is told, under paused time.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api, ApiError, Call, Clock, Watching};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use kubelet_model::base64;
use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::bootstrap::{BootstrapParts, bootstrap};
use super::manager::{CertificateUser, First, ManagerParts, manage};
use super::plan::Means;
use super::request::Kind;
use super::state::CertificateState;
use super::store::{Pair, Store};
use super::template::Template;
use super::test_parts::{issued, last, minute};

/// What the server does with a request.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// Signs, for so many minutes from now.
    Signs(i64),
    /// Signs, but for no names and addresses.
    Strips(i64),
    Denies,
    Refuses,
    Nothing,
}

/// A server, and everything that happened: one line each, with the second.
struct World {
    begun: Instant,
    dir: tempfile::TempDir,
    does: Mutex<VecDeque<Does>>,
    requests: Mutex<BTreeMap<String, Value>>,
    log: Mutex<Vec<String>>,
}

impl World {
    fn new(does: &[Does]) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            dir: tempfile::tempdir().unwrap(),
            does: Mutex::new(does.iter().copied().collect()),
            requests: Mutex::default(),
            log: Mutex::default(),
        })
    }

    fn now(&self) -> Timestamp {
        minute(0).checked_add(SignedDuration::try_from(self.begun.elapsed()).unwrap()).unwrap()
    }

    fn clock(self: &Arc<Self>) -> Clock {
        let world = Arc::clone(self);
        Arc::new(move || world.now())
    }

    fn note(&self, what: &str) {
        let line = format!("{} {what}", self.begun.elapsed().as_secs());
        self.log.lock().unwrap().push(line);
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    fn store(&self, prefix: &'static str) -> Store {
        Store::open(prefix, self.dir.path(), None).unwrap()
    }

    fn sign(&self, request: &str, minutes: i64, strips: bool) -> String {
        let bytes = base64::decode(request).unwrap();
        let pem = String::from_utf8(bytes).unwrap();
        let mut request = CertificateSigningRequestParams::from_pem(&pem).unwrap();
        let to = self.now().checked_add(SignedDuration::from_mins(minutes)).unwrap();
        last(&mut request.params, self.now(), to);
        if strips {
            request.params.subject_alt_names.clear();
        }
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        base64::encode(request.signed_by(&issuer).unwrap().pem().as_bytes())
    }

    fn create(&self, mut object: Value) -> Result<Value, ApiError> {
        let refused = |code: u16, message: &str| {
            Err(ApiError::Answered {
                code,
                reason: String::new(),
                message: message.to_owned(),
                retry_after: None,
            })
        };
        let mut requests = self.requests.lock().unwrap();
        let given = object["metadata"]["name"].as_str().map(str::to_owned);
        let name = given.unwrap_or_else(|| format!("csr-{}", requests.len() + 1));
        if requests.contains_key(&name) {
            return refused(409, "there already");
        }
        object["metadata"] = json!({"name": name, "uid": format!("uid-of-{name}")});
        let condition = |kind: &str| json!([{"type": kind, "reason": "R", "message": "m"}]);
        match self.does.lock().unwrap().pop_front().unwrap_or(Does::Nothing) {
            does @ (Does::Signs(minutes) | Does::Strips(minutes)) => {
                let request = object["spec"]["request"].as_str().unwrap();
                let certificate = self.sign(request, minutes, matches!(does, Does::Strips(_)));
                object["status"] =
                    json!({"conditions": condition("Approved"), "certificate": certificate});
            }
            Does::Denies => object["status"] = json!({"conditions": condition("Denied")}),
            Does::Refuses => return refused(500, "not now"),
            Does::Nothing => {}
        }
        requests.insert(name, object.clone());
        Ok(object)
    }
}

/// The server, asked by somebody.
struct Asker(Arc<World>, Means);

#[async_trait]
impl Api for Asker {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        let Self(world, means) = self;
        if call.path == "/healthz" {
            return Err(ApiError::Unusable("ok".to_owned()));
        }
        if let Some((_, body)) = call.body {
            let made = world.create(body);
            let end = made.as_ref().map_or("refused", |_| "made");
            world.note(&format!("{means:?} {end}"));
            return made;
        }
        let requests = world.requests.lock().unwrap();
        match call.path.split_once("metadata.name%3D") {
            Some((_, rest)) => {
                let name = rest.split('&').next().unwrap();
                let found: Vec<&Value> = requests.get(name).into_iter().collect();
                Ok(json!({"metadata": {"resourceVersion": "1"}, "items": found}))
            }
            None => Ok(requests[call.path.rsplit('/').next().unwrap()].clone()),
        }
    }

    async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
        Ok(Box::new(Quiet))
    }
}

struct Quiet;

#[async_trait]
impl Watching for Quiet {
    async fn next(&mut self) -> Option<Result<api_client::WatchEvent, ApiError>> {
        std::future::pending().await
    }
}

struct User(Arc<World>, Mutex<String>);

impl CertificateUser for User {
    fn take(&self, pair: &Pair) -> Result<(), String> {
        self.1.lock().unwrap().clear();
        let left = pair.leaf.not_after.duration_since(self.0.now());
        self.0.note(&format!("uses one of {} min", left.as_mins()));
        Ok(())
    }

    fn lacks(&self, why: &str) {
        let why = why.split(';').next().unwrap().to_owned();
        let mut told = self.1.lock().unwrap();
        if *told != why {
            self.0.note(&why);
            *told = why;
        }
    }

    fn rotated(&self, lived: SignedDuration) {
        self.0.note(&format!("rotated after {} min", lived.as_mins()));
    }
}

type Wanted = watch::Sender<Option<Template>>;

fn parts(world: &Arc<World>, kind: Kind, first: First) -> (ManagerParts, Wanted) {
    let (sender, wanted) = watch::channel(Some(Template::client("n1")));
    let of = Arc::clone(world);
    let parts = ManagerParts {
        kind,
        store: world.store(kind.prefix()),
        first,
        wanted,
        api: Arc::new(move |means| Ok(Arc::new(Asker(Arc::clone(&of), means)))),
        has_bootstrap: true,
        user: Box::new(User(Arc::clone(world), Mutex::default())),
        clock: world.clock(),
        spread: Arc::new(|_| Duration::ZERO),
    };
    (parts, sender)
}

/// Runs a manager for so long; returns what happened, and how the certificate stands.
async fn run(world: &Arc<World>, first: First, limit: Duration) -> CertificateState {
    let (parts, _wanted) = parts(world, Kind::Client, first);
    let (manager, state) = manage(parts);
    tokio::select! { biased;
        () = manager.run() => {}
        () = sleep(limit) => {}
    }
    state.borrow().clone()
}

const MIN: Duration = Duration::from_secs(60);

fn pair(from: i64, to: i64) -> Option<Pair> {
    let made = issued("system:node:n1", &[], from, to);
    Some(Pair::new(made.certificate, made.key).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_asked_for_and_renewed_with_itself() {
    let world = World::new(&[Does::Signs(100), Does::Signs(100)]);
    let state = run(&world, First::default(), 100 * MIN).await;
    assert_eq!(
        world.log(),
        [
            "0 the node has no client certificate yet",
            "0 Bootstrap made",
            "0 uses one of 100 min",
            "4200 Own made",
            "4200 rotated after 70 min",
            "4200 uses one of 100 min",
        ]
    );
    assert_eq!((state.fallback, state.trouble, state.renew_errors), (None, None, 0));
    let kept = world.store("kubelet-client").current().unwrap().unwrap();
    assert_eq!(kept.leaf, state.pair.unwrap().leaf);
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_it_fails() {
    let mut does = vec![Does::Refuses; 3];
    does.extend([Does::Denies, Does::Refuses, Does::Refuses, Does::Signs(1000)]);
    let world = World::new(&does);
    let state = run(&world, First::default(), 20 * MIN).await;
    let asked: Vec<String> =
        world.log().into_iter().filter(|line| line.contains("Bootstrap")).collect();
    assert_eq!(
        asked,
        [
            "0 Bootstrap refused",
            "2 Bootstrap refused",
            "6 Bootstrap refused",
            "14 Bootstrap made",
            "30 Bootstrap refused",
            "62 Bootstrap refused",
            "94 Bootstrap made",
        ]
    );
    assert_eq!((state.renew_errors, state.trouble), (6, None));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_answers_is_made_again() {
    let world = World::new(&[Does::Nothing, Does::Signs(1000)]);
    let (parts, _wanted) = parts(&world, Kind::Client, First::default());
    let (manager, state) = manage(parts);
    let run = async {
        sleep(MIN).await;
        let asked = state.borrow().asked.clone().unwrap();
        assert_eq!((asked.name.as_str(), asked.means), ("csr-1", Means::Bootstrap));
        sleep(16 * MIN).await;
    };
    tokio::select! { biased; () = manager.run() => {}, () = run => {} }
    let lines = ["0 Bootstrap made", "902 Bootstrap made", "902 uses one of 1000 min"];
    assert_eq!(world.log()[1..], lines);
}

#[tokio::test(start_paused = true)]
async fn one_that_expired_is_replaced_by_the_bootstrap_which_is_told_until_the_next() {
    let world = World::new(&[Does::Refuses, Does::Signs(100), Does::Signs(100)]);
    let first = First { pair: pair(-90, -10), lapsed: Some(minute(-10)), ..First::default() };
    let state = run(&world, first.clone(), 10 * MIN).await;
    assert_eq!(
        world.log(),
        [
            "0 the client certificate expired at 2025-12-31T23:50:00Z",
            "0 Bootstrap refused",
            "2 Bootstrap made",
            "2 rotated after 90 min",
            "2 uses one of 100 min",
        ]
    );
    let warning = state.warning().unwrap();
    assert!(warning.contains("expired at 2025-12-31T23:50:00Z before"), "{warning}");
    assert!(warning.contains("obtained at 2026-01-01T00:00:02Z"), "{warning}");
    // Once it was renewed in time, there is nothing to tell.
    let world = World::new(&[Does::Signs(100), Does::Signs(100)]);
    assert_eq!(run(&world, first, 90 * MIN).await.fallback, None);
}

#[tokio::test(start_paused = true)]
async fn one_that_expires_meanwhile_is_replaced_by_the_bootstrap() {
    // Nobody answers what is asked with the certificate itself.
    let world = World::new(&[Does::Nothing, Does::Signs(100)]);
    let first = First { pair: pair(0, 10), ..First::default() };
    let state = run(&world, first, 20 * MIN).await;
    assert_eq!(
        world.log(),
        [
            "0 uses one of 10 min",
            "420 Own made",
            "601 the client certificate expired at 2026-01-01T00:10:00Z",
            "602 Bootstrap made",
            "602 rotated after 10 min",
            "602 uses one of 100 min",
        ]
    );
    assert!(state.warning().is_some());
}

#[tokio::test(start_paused = true)]
async fn one_that_was_embedded_is_replaced_at_once_with_itself() {
    let world = World::new(&[Does::Signs(100)]);
    let first = First { pair: pair(0, 1000), forced: true, lapsed: None };
    run(&world, first, MIN).await;
    assert_eq!(world.log()[1..3], ["0 Own made", "0 rotated after 0 min"]);
}

#[tokio::test(start_paused = true)]
async fn other_addresses_are_asked_for_at_once() {
    let world = World::new(&[Does::Nothing, Does::Signs(1000), Does::Signs(1000)]);
    let (parts, wanted) = parts(&world, Kind::Serving, First::default());
    wanted.send_replace(None);
    let (manager, state) = manage(parts);
    let to = |address: &str| Template::serving("n1", &[("InternalIP", address)], false);
    let run = async {
        sleep(MIN).await;
        wanted.send_replace(to("10.0.0.1"));
        sleep(MIN).await;
        wanted.send_replace(to("10.0.0.2"));
        sleep(MIN).await;
        // Named already.
        wanted.send_replace(to("10.0.0.2"));
        sleep(MIN).await;
        wanted.send_replace(to("10.0.0.3"));
        sleep(MIN).await;
    };
    tokio::select! { biased; () = manager.run() => {}, () = run => {} }
    assert_eq!(
        world.log(),
        [
            "0 the node has no serving certificate yet",
            "60 Own made",
            "120 Own made",
            "120 uses one of 1000 min",
            "240 Own made",
            "240 rotated after 2 min",
            "240 uses one of 1000 min",
        ]
    );
    let addresses = state.borrow().pair.as_ref().unwrap().leaf.addresses.clone();
    assert!(addresses.iter().map(ToString::to_string).eq(["10.0.0.3"]));
}

#[tokio::test(start_paused = true)]
async fn a_signer_who_leaves_out_addresses_is_asked_less_and_less_often() {
    let world = World::new(&[Does::Strips(1000), Does::Strips(1000), Does::Signs(1000)]);
    let (parts, wanted) = parts(&world, Kind::Serving, First::default());
    wanted.send_replace(Template::serving("n1", &[("InternalIP", "10.0.0.1")], false));
    let (manager, state) = manage(parts);
    tokio::select! { biased; () = manager.run() => {}, () = sleep(10 * MIN) => {} }
    let asked: Vec<String> = world.log().into_iter().filter(|line| line.contains("Own")).collect();
    assert_eq!(asked, ["0 Own made", "2 Own made", "6 Own made"]);
    assert_eq!((state.borrow().renew_errors, state.borrow().trouble.clone()), (2, None));
}

/// In a directory that is not there yet.
fn key_path(world: &World) -> PathBuf {
    world.dir.path().join("pki").join(super::KEY_FILE)
}

fn bootstrap_parts(world: &Arc<World>, lapsed: Option<Timestamp>) -> BootstrapParts {
    let (of, written) = (Arc::clone(world), Arc::clone(world));
    BootstrapParts {
        node: "n1".into(),
        store: world.store("kubelet-client"),
        key_path: key_path(world),
        lapsed,
        api: Arc::new(move |means| Ok(Arc::new(Asker(Arc::clone(&of), means)))),
        write_kubeconfig: Box::new(move || {
            written.note("kubeconfig written");
            Ok(())
        }),
        user: Box::new(User(Arc::clone(world), Mutex::default())),
        clock: world.clock(),
        spread: Arc::new(|_| Duration::ZERO),
    }
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_was_ended_finds_its_request_again() {
    let world = World::new(&[Does::Nothing]);
    let key = key_path(&world);
    let (first, _) = bootstrap(bootstrap_parts(&world, None));
    tokio::select! { biased; () = first.run() => {}, () = sleep(MIN) => {} }
    let kept = std::fs::read(&key).unwrap();
    let (name, mut object) = world.requests.lock().unwrap().pop_first().unwrap();
    assert!(name.starts_with("node-csr-"), "{name}");
    let certificate = world.sign(object["spec"]["request"].as_str().unwrap(), 100, false);
    object["status"] = json!({"conditions": [{"type": "Approved"}], "certificate": certificate});
    world.requests.lock().unwrap().insert(name, object);
    let (again, state) = bootstrap(bootstrap_parts(&world, None));
    again.run().await;
    assert_eq!(
        world.log(),
        [
            "0 the node has no client certificate yet",
            "0 Bootstrap made",
            "60 the node has no client certificate yet",
            "60 Bootstrap refused",
            "60 kubeconfig written",
            "60 uses one of 100 min",
        ]
    );
    let pair = state.borrow().pair.clone().unwrap();
    assert_eq!(pair.identity.key, kept);
    assert!(!key.exists(), "the key is not needed any more");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_an_earlier_life_is_not_taken_again() {
    let world = World::new(&[Does::Signs(10), Does::Signs(100)]);
    let (first, _) = bootstrap(bootstrap_parts(&world, None));
    first.run().await;
    sleep(20 * MIN).await;
    world.log();
    let (second, state) = bootstrap(bootstrap_parts(&world, Some(minute(10))));
    second.run().await;
    assert_eq!(
        world.log(),
        [
            "1200 the client certificate expired at 2026-01-01T00:10:00Z",
            "1200 Bootstrap refused",
            "1200 Bootstrap made",
            "1200 kubeconfig written",
            "1200 uses one of 100 min",
        ]
    );
    assert!(state.borrow().warning().is_some());
}
