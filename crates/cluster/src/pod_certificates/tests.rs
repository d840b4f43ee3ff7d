//! The keeper against an API server, with a signer that is told what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api, Call, Clock, Patch, path};
use apiserver::direct::Direct;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use kubelet_model::ObjectKey;
use kubelet_model::certificate::CertificateAsk;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{
    Asked, Credential, Keeper, KeyError, KeyMaker, Listener, NewKey, Parts, ThreadedKeys, keys,
};
use crate::pem;

const API: &str = "apis/certificates.k8s.io/v1beta1";

/// Everything that was said of anything, and the last certificate.
#[derive(Default)]
struct Heard {
    said: Mutex<Vec<String>>,
    last: Mutex<Option<Credential>>,
}

impl Listener for Heard {
    fn issued(&self, _: &ObjectKey, credential: &Credential) {
        *self.last.lock().unwrap() = Some(credential.clone());
        self.said.lock().unwrap().push("issued".to_owned());
    }
    fn waits(&self, _: &ObjectKey, why: &str) {
        self.said.lock().unwrap().push(format!("waits: {why}"));
    }
    fn is_over(&self, _: &ObjectKey, why: &str) {
        self.said.lock().unwrap().push(format!("over: {why}"));
    }
    fn event(&self, ask: &CertificateAsk, reason: &'static str, message: String) {
        self.said.lock().unwrap().push(format!("event of {}: {reason} {message}", ask.pod));
    }
}

struct World {
    api: Direct,
    heard: Arc<Heard>,
    asked: watch::Sender<Asked>,
    clock: Clock,
    node_uid: Arc<Mutex<Option<String>>>,
}

fn begin() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn world() -> (World, impl Future<Output = ()>) {
    world_with(Arc::new(ThreadedKeys::default()))
}

fn world_with(keys: Arc<dyn KeyMaker>) -> (World, impl Future<Output = ()>) {
    let begun = Instant::now();
    let clock: Clock =
        Arc::new(move || begin() + SignedDuration::try_from(begun.elapsed()).unwrap());
    let api = Direct::alone(Arc::clone(&clock), 100).unwrap();
    let (asked, reader) = watch::channel(Asked::default());
    let heard = Arc::new(Heard::default());
    let node_uid = Arc::new(Mutex::new(Some("nu".to_owned())));
    let of_node = Arc::clone(&node_uid);
    let keeper = Keeper::new(Parts {
        api: Arc::new(api.clone()),
        node: "n".to_owned(),
        node_uid: Arc::new(move || of_node.lock().unwrap().clone()),
        asked: reader,
        listener: Arc::clone(&heard) as Arc<dyn Listener>,
        keys,
        clock: Arc::clone(&clock),
        spread: Arc::new(|_| Duration::ZERO),
    });
    (World { api, heard, asked, clock, node_uid }, keeper.run())
}

fn ask(pod: &str, key_type: &str) -> ObjectKey {
    let ask = CertificateAsk {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        uid: format!("uid-{pod}"),
        account: "app".to_owned(),
        volume: "v".to_owned(),
        source: 0,
        signer: "example.com/s".to_owned(),
        key_type: key_type.to_owned(),
        max_seconds: Some(3600),
        annotations: BTreeMap::new(),
    };
    ask.key()
}

impl World {
    fn ask(&self, keys: &[&ObjectKey]) {
        let keys: BTreeSet<ObjectKey> = keys.iter().map(|key| (*key).clone()).collect();
        self.asked.send_replace(Arc::new(keys));
    }

    async fn make_account(&self) -> String {
        let account = json!({"metadata": {"name": "app"}});
        let call = Call::post(&path("api/v1", "default", &["serviceaccounts"]), account);
        let made = self.api.call(call).await.unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn settle(&self) {
        sleep(Duration::from_millis(100)).await;
    }

    /// What was said since this was asked last.
    async fn said(&self) -> Vec<String> {
        self.settle().await;
        std::mem::take(&mut *self.heard.said.lock().unwrap())
    }

    /// All requests, oldest first.
    async fn requests(&self) -> Vec<Value> {
        self.settle().await;
        let list = Call::get(&path(API, "default", &["podcertificaterequests"]));
        let mut list = self.api.call(list).await.unwrap();
        let mut all: Vec<Value> = serde_json::from_value(list["items"].take()).unwrap();
        let created = |o: &Value| o["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
        all.sort_by_key(created);
        all
    }

    async fn decide(&self, request: &Value, status: Value) {
        let name = request["metadata"]["name"].as_str().unwrap();
        let path = path(API, "default", &["podcertificaterequests", name, "status"]);
        let call = Call::patch(&path, Patch::Merge, json!({"status": status}));
        self.api.call(call).await.unwrap();
    }

    async fn issue(&self, request: &Value, chain: &str) {
        let now = (self.clock)();
        let after = |minutes| (now + SignedDuration::from_mins(minutes)).to_string();
        let condition = json!({"type": "Issued", "status": "True", "reason": "Issued",
            "message": "", "lastTransitionTime": now.to_string()});
        let text = pem::block("CERTIFICATE", chain.as_bytes());
        let status = json!({"conditions": [condition], "certificateChain": text,
            "notBefore": now.to_string(), "beginRefreshAt": after(30), "notAfter": after(60)});
        self.decide(request, status).await;
    }

    fn held(&self) -> (String, String) {
        let last = self.heard.last.lock().unwrap().clone().unwrap();
        let chain = pem::blocks(&last.chain).remove(0);
        (last.key.text().to_owned(), String::from_utf8(chain).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_issued_and_renewed() {
    let (world, work) = world();
    let test = async {
        let account = world.make_account().await;
        assert!(world.requests().await.is_empty());
        world.ask(&[&ask("web", "ED25519")]);
        let requests = world.requests().await;
        let spec = &requests[0]["spec"];
        for (field, expected) in [
            ("signerName", "example.com/s"),
            ("podName", "web"),
            ("podUID", "uid-web"),
            ("serviceAccountName", "app"),
            ("serviceAccountUID", &account),
            ("nodeName", "n"),
            ("nodeUID", "nu"),
        ] {
            assert_eq!(spec[field], expected, "{field}");
        }
        assert_eq!(requests[0]["metadata"]["ownerReferences"][0]["uid"], "uid-web");
        assert!(requests[0]["metadata"]["name"].as_str().unwrap().starts_with("req-"));
        assert_eq!(world.said().await, [""; 0]);
        sleep(Duration::from_secs(3)).await;
        let said = world.said().await;
        assert!(said.len() == 1 && said[0].starts_with("waits: credential bundle"), "{said:?}");
        world.issue(&requests[0], "one").await;
        assert_eq!(world.said().await, ["issued"]);
        let (first, chain) = world.held();
        assert!(first.starts_with("-----BEGIN PRIVATE KEY-----\n") && chain == "one", "{chain}");
        sleep(Duration::from_secs(29 * 60)).await;
        assert_eq!(world.requests().await.len(), 1);
        sleep(Duration::from_secs(60)).await;
        let requests = world.requests().await;
        assert_eq!(requests.len(), 2, "it is time for the next");
        sleep(Duration::from_secs(11 * 60)).await;
        let overdue = "event of web: CertificateOverdueForRefresh PodCertificate refresh overdue";
        assert_eq!(world.said().await, [overdue]);
        world.issue(&requests[1], "two").await;
        assert_eq!(world.said().await, ["issued"]);
        let (second, chain) = world.held();
        assert_eq!(chain, "two");
        assert_ne!(first, second, "each has a key of its own");
        // Who asks no more gets no more.
        world.ask(&[]);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.requests().await.len(), 2);
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_final() {
    let (world, work) = world();
    let test = async {
        world.make_account().await;
        world.ask(&[&ask("web", "ECDSAP256")]);
        let requests = world.requests().await;
        let condition = json!({"type": "Denied", "status": "True", "reason": "UnsupportedKeyType",
            "message": "no", "lastTransitionTime": begin().to_string()});
        world.decide(&requests[0], json!({"conditions": [condition]})).await;
        let said = world.said().await;
        let name = requests[0]["metadata"]["name"].as_str().unwrap();
        assert_eq!(
            said,
            [
                "over: PodCertificateRequest was permanently denied: \
                 reason=\"UnsupportedKeyType\" message=\"no\""
                    .to_owned(),
                format!(
                    "event of web: Denied PodCertificateRequest default/{name} was denied, \
                     reason=\"UnsupportedKeyType\", message=\"no\""
                ),
            ]
        );
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.requests().await.len(), 1);
        assert!(world.said().await.is_empty());
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_is_told_and_tried_again() {
    let (world, work) = world();
    let test = async {
        *world.node_uid.lock().unwrap() = None;
        world.ask(&[&ask("web", "ED25519")]);
        let said = world.said().await;
        assert!(said[0].contains("serviceaccounts \"app\" not found"), "{said:?}");
        world.make_account().await;
        sleep(Duration::from_secs(2)).await;
        let said = world.said().await;
        assert!(said.iter().any(|line| line.contains("the Node object is not known")), "{said:?}");
        *world.node_uid.lock().unwrap() = Some("nu".to_owned());
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.requests().await.len(), 1);
        world.ask(&[&ask("old", "RSA1024")]);
        let said = world.said().await;
        let why = "unknown key type \"RSA1024\"";
        assert!(said.iter().any(|line| line.contains(why)), "{said:?}");
        assert_eq!(world.requests().await.len(), 1);
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}

/// Never comes to an end with keys that take long; counts those it is at.
#[derive(Default)]
struct Stuck(Arc<AtomicUsize>);

struct AtWork(Arc<AtomicUsize>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl KeyMaker for Stuck {
    async fn make(&self, key_type: &str) -> Result<NewKey, KeyError> {
        if keys::is_slow(key_type) {
            self.0.fetch_add(1, Ordering::Relaxed);
            let _at_work = AtWork(Arc::clone(&self.0));
            std::future::pending::<()>().await;
        }
        keys::make(key_type, &|| false)
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_take_long_are_in_nobodys_way_and_end_with_their_pods() {
    let count = Arc::new(AtomicUsize::new(0));
    let (world, work) = world_with(Arc::new(Stuck(Arc::clone(&count))));
    let test = async {
        world.make_account().await;
        let slow: Vec<ObjectKey> = (0..6).map(|at| ask(&format!("slow-{at}"), "RSA3072")).collect();
        world.ask(&slow.iter().collect::<Vec<_>>());
        assert!(world.requests().await.is_empty());
        assert_eq!(count.load(Ordering::Relaxed), 2, "some at a time");
        let quick: Vec<ObjectKey> = (0..6).map(|at| ask(&format!("z-{at}"), "ECDSAP521")).collect();
        world.ask(&slow.iter().chain(&quick).collect::<Vec<_>>());
        assert_eq!(world.requests().await.len(), 6, "others need not wait for them");
        // Two pods that are gone make room for two others.
        world.ask(&slow[2..].iter().chain(&quick).collect::<Vec<_>>());
        world.settle().await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        world.ask(&slow[5..].iter().collect::<Vec<_>>());
        world.settle().await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        world.ask(&[]);
        world.settle().await;
        assert_eq!(count.load(Ordering::Relaxed), 0, "nothing is left over");
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}

#[tokio::test(start_paused = true)]
async fn an_rsa_key_is_made_beside_the_rest() {
    let (world, work) = world();
    let test = async {
        world.make_account().await;
        world.ask(&[&ask("web", "RSA3072")]);
        let requests = world.requests().await;
        world.issue(&requests[0], "one").await;
        assert_eq!(world.said().await, ["issued"]);
        let (key, _) = world.held();
        assert_eq!(rcgen::KeyPair::from_pem(&key).unwrap().algorithm(), &rcgen::PKCS_RSA_SHA256);
    };
    tokio::select! { biased; () = work => {}, () = test => {} }
}
