//! The API server of the simulated cluster: real rules, without sockets.
//!
//! Owns the server, its clock and what is wrong with it. The agent reaches it through
//! `port`; users and controllers, who act in `churn`, always reach it. `rules` judges
//! what the agent asks for and writes.

mod churn;
mod faults;
mod port;
mod rules;
mod script;
mod watch;

pub use faults::ApiFaults;
pub(crate) use port::SimApi;
pub(crate) use rules::Record;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api as _, ApiError, Call, Patch, Watching, path};
use apiserver::direct::Direct;
use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::manifest::NAMESPACE;
use crate::world::{EPOCH_SECS, State};

/// Changes that the server remembers: more than a run makes, less what it forgets.
const REMEMBERED: usize = 10_000;

/// The server, and how it is reached.
pub(crate) struct ApiServer {
    direct: Direct,
    /// Milliseconds by which its clock is ahead.
    skew: Arc<AtomicI64>,
    /// Until when it is away, and whether it refuses connections or keeps silent.
    pub(crate) away: Option<(Duration, Away)>,
    /// The revision before anything happened.
    first: u64,
    pub(crate) record: Record,
}

/// What it is like to ask a server that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// Connections are refused at once.
    Refusing,
    /// Nothing is answered.
    Silent,
    /// The node's certificate has expired: it is answered with 401.
    Unauthorized,
    /// The node has no credentials to ask with.
    NoCredentials,
}

impl ApiServer {
    /// A server with nothing in it but the pods' namespace.
    pub(crate) fn new(seed: u64) -> Self {
        let skew = Arc::new(AtomicI64::new(0));
        let (started, ahead) = (Instant::now(), Arc::clone(&skew));
        let clock = Arc::new(move || {
            let millis = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
            let passed = SignedDuration::from_millis(millis + ahead.load(Ordering::Relaxed));
            let epoch = Timestamp::from_second(EPOCH_SECS).unwrap_or(Timestamp::UNIX_EPOCH);
            epoch.checked_add(passed).unwrap_or(epoch)
        });
        let random = Mutex::new(StdRng::seed_from_u64(seed ^ 0x0a91_5eed));
        let random = Arc::new(move |bytes: &mut [u8]| {
            random.lock().expect("a panic ends the run anyway").fill_bytes(bytes);
        });
        let direct = Direct::with_randomness(clock, REMEMBERED, random)
            .expect("a server without sockets needs nothing that can fail");
        let mut server = Self { direct, skew, away: None, first: 0, record: Record::default() };
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        server.ask(Call::post("/api/v1/namespaces", namespace)).expect("a new namespace");
        server.first = server.direct.api().store().revision();
        server
    }

    /// Asks as an administrator, whatever the network does.
    pub(crate) fn ask(&self, call: Call) -> Result<Value, ApiError> {
        self.direct.call(call).now_or_never().expect("the server waits for nothing")
    }

    fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.direct.watch(path).now_or_never().expect("the server waits for nothing")
    }

    /// Ends all watches; with `forget`, what was before can no longer be watched from.
    pub(crate) fn restart(&self, forget: bool) {
        let store = self.direct.api().store();
        if forget {
            store.forget(store.revision());
        }
        store.cut_off();
    }

    /// Goes so many changes back, as far as they are remembered; revisions go on so many
    /// later.
    fn restore(&self, changes: u64, bump: u64) -> u64 {
        let store = self.direct.api().store();
        let now = store.revision();
        let to = now.saturating_sub(changes).max(self.first);
        // One that has forgotten so much stays as it is.
        if store.roll_back(to, bump).is_err() { now } else { to }
    }

    fn shift_clock(&self, by: SignedDuration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(0);
        self.skew.store(millis, Ordering::Relaxed);
    }

    /// The pods, as they are stored.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        let listing = self.direct.api().store().list("pods", NAMESPACE);
        let pods = listing.items.iter().map(|(_, stored)| {
            serde_json::from_slice(&stored.bytes).expect("the server stores pods")
        });
        pods.collect()
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.ask(Call::get(&pod_path(name, &[]))).ok()
    }

    pub(crate) fn put_config(&self, name: &str, data: &Value) {
        let all = path("api/v1", NAMESPACE, &["configmaps"]);
        let one = path("api/v1", NAMESPACE, &["configmaps", name]);
        let object = json!({"metadata": {"name": name}, "data": data});
        let change = json!({"data": data});
        if self.ask(Call::post(&all, object)).is_err() {
            self.ask(Call::patch(&one, Patch::Merge, change)).expect("it is there");
        }
    }

    /// What a ConfigMap says under a key.
    pub(crate) fn config(&self, name: &str, key: &str) -> Option<String> {
        let one = path("api/v1", NAMESPACE, &["configmaps", name]);
        let object = self.ask(Call::get(&one)).ok()?;
        object["data"][key].as_str().map(str::to_owned)
    }

    pub(crate) fn delete_config(&self, name: &str) {
        let one = path("api/v1", NAMESPACE, &["configmaps", name]);
        // One that is not there is as good as one that goes.
        let _ = self.ask(Call::delete(&one, json!({})));
    }
}

fn pod_path(name: &str, rest: &[&str]) -> String {
    let parts = [&["pods", name], rest].concat();
    path("api/v1", NAMESPACE, &parts)
}

impl State {
    /// What is wrong with the server now, if it is away.
    pub(crate) fn api_away(&self) -> Option<Away> {
        let (until, how) = self.api.as_ref()?.away?;
        (self.now() < until).then_some(how)
    }

    /// Takes the server away from the node.
    pub(crate) fn take_api(&mut self, time: Duration, how: Away) {
        let until = self.now() + time;
        self.note("", format!("API server away for {}s, {how:?}", time.as_secs()));
        let Some(server) = &mut self.api else { return };
        server.away = Some((until, how));
        // Whoever was let in before stays; a new request meets the server anew.
        if matches!(how, Away::Refusing | Away::Silent) {
            server.restart(false);
        }
    }

    /// The server is there again.
    pub(crate) fn bring_api(&mut self) {
        let Some(server) = &mut self.api else { return };
        server.away = None;
        self.note("", "API server there".to_owned());
    }

    /// The server starts anew and remembers no changes.
    pub(crate) fn restart_api(&mut self) {
        self.note("", "API server restarts".to_owned());
        if let Some(server) = &self.api {
            server.restart(true);
        }
    }

    /// The server's clock is off by so much from now on.
    pub(crate) fn skew_api(&mut self, by: SignedDuration) {
        self.note("", format!("API server's clock is ahead by {}s", by.as_secs()));
        if let Some(server) = &self.api {
            server.shift_clock(by);
        }
    }
}
