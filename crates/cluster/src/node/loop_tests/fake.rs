//! A server, facts and reports that are told what to do, and remember what was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api, ApiError, Call, Change, WatchEvent, Watching};
use apiserver::patch::{Format, apply};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::node::test_parts;
use crate::node::{Facts, NodeEvent, NodeFacts, NodeHandle, NodeParts, NodeSettings, Reports};

/// Whether a call fails, by its words such as `PUT lease`.
pub(super) type Faults = Box<dyn Fn(&str) -> Option<ApiError> + Send>;

/// A server with one node and one lease.
pub(super) struct FakeApi {
    state: Mutex<State>,
    begun: Instant,
}

struct State {
    node: Option<Value>,
    lease: Option<Value>,
    revision: u64,
    /// Milliseconds since the start, and what.
    calls: Vec<(u128, String)>,
    faults: Faults,
    watches: Vec<UnboundedSender<WatchEvent>>,
    /// A field of the status that this server does not know.
    unknown: Option<&'static str>,
}

impl FakeApi {
    pub fn new() -> Arc<Self> {
        let state = State {
            node: None,
            lease: None,
            revision: 0,
            calls: Vec::new(),
            faults: Box::new(|_| None),
            watches: Vec::new(),
            unknown: None,
        };
        Arc::new(Self { state: Mutex::new(state), begun: Instant::now() })
    }

    pub fn fail(&self, faults: impl Fn(&str) -> Option<ApiError> + Send + 'static) {
        self.state.lock().unwrap().faults = Box::new(faults);
    }

    /// The server is too old to know this field of a node's status.
    pub fn drop_field(&self, name: &'static str) {
        self.state.lock().unwrap().unknown = Some(name);
    }

    pub fn node(&self) -> Value {
        self.state.lock().unwrap().node.clone().expect("a node")
    }

    pub fn lease(&self) -> Option<Value> {
        self.state.lock().unwrap().lease.clone()
    }

    /// Somebody else writes the node.
    pub fn put_node(&self, node: Value) {
        self.state.lock().unwrap().put_node(node);
    }

    /// Somebody else writes the lease, or deletes it.
    pub fn put_lease(&self, change: impl FnOnce(&mut Option<Value>)) {
        let mut state = self.state.lock().unwrap();
        state.revision += 1;
        let revision = state.revision.to_string();
        change(&mut state.lease);
        if let Some(lease) = &mut state.lease {
            lease["metadata"]["resourceVersion"] = revision.into();
        }
    }

    /// Calls whose words hold this, each as `milliseconds words`; those of the follower
    /// are `LIST` and `WATCH`.
    pub fn calls(&self, part: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.iter().filter(|(_, words)| words.contains(part));
        calls.map(|(at, words)| format!("{at} {words}")).collect()
    }

    fn note(&self, words: &str) -> Result<(), ApiError> {
        let mut state = self.state.lock().unwrap();
        state.calls.push((self.begun.elapsed().as_millis(), words.to_owned()));
        (state.faults)(words).map_or(Ok(()), Err)
    }
}

impl State {
    fn put_node(&mut self, mut node: Value) -> Value {
        self.revision += 1;
        if let (Some(unknown), Some(Value::Object(status))) = (self.unknown, node.get_mut("status"))
        {
            status.remove(unknown);
        }
        node["metadata"]["resourceVersion"] = self.revision.to_string().into();
        if node["metadata"]["uid"].is_null() {
            node["metadata"]["uid"] = format!("uid-{}", self.revision).into();
        }
        let change = if self.node.is_some() { Change::Modified } else { Change::Added };
        self.node = Some(node.clone());
        self.watches
            .retain(|watch| watch.send(WatchEvent { change, object: node.clone() }).is_ok());
        node
    }

    fn answer(&mut self, words: &str, call: &Call) -> Result<Value, ApiError> {
        let body = || call.body.as_ref().map(|(_, body)| body.clone()).unwrap_or_default();
        match words {
            "LIST nodes" => {
                let items: Vec<&Value> = self.node.iter().collect();
                let revision = self.revision.to_string();
                Ok(json!({"metadata": {"resourceVersion": revision}, "items": items}))
            }
            "POST node" => match self.node {
                Some(_) => Err(answered(409)),
                None => Ok(self.put_node(body())),
            },
            "GET node" | "GET node cached" => self.node.clone().ok_or(answered(404)),
            "PATCH node" => {
                let node = self.node.as_ref().ok_or(answered(404))?;
                let node = apply(Format::Strategic, "Node", node, &body()).expect("a good patch");
                Ok(self.put_node(node))
            }
            "GET lease" => self.lease.clone().ok_or(answered(404)),
            "POST lease" => {
                self.revision += 1;
                let mut lease = body();
                lease["metadata"]["resourceVersion"] = self.revision.to_string().into();
                Ok(self.lease.insert(lease).clone())
            }
            "PUT lease" => {
                let mut lease = body();
                let old = self.lease.as_ref().ok_or(answered(404))?;
                let revision = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
                if revision(old) != revision(&lease) {
                    return Err(answered(409));
                }
                self.revision += 1;
                lease["metadata"]["resourceVersion"] = self.revision.to_string().into();
                Ok(self.lease.insert(lease).clone())
            }
            other => panic!("nobody asks for {other}"),
        }
    }
}

pub(super) fn answered(code: u16) -> ApiError {
    let message = format!("code {code}");
    ApiError::Answered { code, reason: String::new(), message, retry_after: None }
}

pub(super) fn away() -> ApiError {
    ApiError::Unreachable { server: "x".into(), why: "refused".into() }
}

fn words(call: &Call) -> String {
    let method = call.method.as_str();
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let cached = if query.contains("resourceVersion=0") { " cached" } else { "" };
    match path {
        "/api/v1/nodes" if method == "GET" => "LIST nodes".to_owned(),
        "/api/v1/nodes" => format!("{method} node"),
        "/api/v1/nodes/n1" => format!("{method} node{cached}"),
        "/api/v1/nodes/n1/status" => format!("{method} node"),
        path if path.starts_with("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/") => {
            format!("{method} lease")
        }
        other => panic!("nobody has {other}"),
    }
}

#[async_trait]
impl Api for FakeApi {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        let words = words(&call);
        self.note(&words)?;
        self.state.lock().unwrap().answer(&words, &call)
    }

    async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.note("WATCH nodes")?;
        let (send, receive) = unbounded_channel();
        self.state.lock().unwrap().watches.push(send);
        Ok(Box::new(FakeWatch(receive)))
    }
}

struct FakeWatch(UnboundedReceiver<WatchEvent>);

#[async_trait]
impl Watching for FakeWatch {
    async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
        self.0.recv().await.map(Ok)
    }
}

/// Facts that can be changed, and what was reported.
pub(super) struct FakeNode {
    pub facts: Mutex<NodeFacts>,
    pub asked: Mutex<Vec<bool>>,
    pub events: Mutex<Vec<&'static str>>,
    pub networks: Mutex<Vec<String>>,
    pub networks_fail: Mutex<bool>,
    pub volumes: Mutex<Vec<Vec<String>>>,
    pub reconnects: Mutex<u32>,
}

impl FakeNode {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            facts: Mutex::new(test_parts::facts()),
            asked: Mutex::default(),
            events: Mutex::default(),
            networks: Mutex::default(),
            networks_fail: Mutex::default(),
            volumes: Mutex::default(),
            reconnects: Mutex::default(),
        })
    }

    pub fn network_is_down(&self) {
        let mut facts = self.facts.lock().unwrap();
        facts.troubles.network = vec!["network state unknown".to_owned()];
    }

    pub fn network_is_up(&self) {
        self.facts.lock().unwrap().troubles.network.clear();
    }
}

#[async_trait]
impl Facts for FakeNode {
    async fn gather(&self, anew: bool) -> NodeFacts {
        self.asked.lock().unwrap().push(anew);
        self.facts.lock().unwrap().clone()
    }
}

#[async_trait]
impl Reports for FakeNode {
    fn event(&self, event: NodeEvent) {
        self.events.lock().unwrap().push(event.reason);
    }

    fn volumes_reported(&self, volumes: &[String]) {
        self.volumes.lock().unwrap().push(volumes.to_vec());
    }

    async fn pod_networks(&self, networks: &str) -> Result<(), String> {
        self.networks.lock().unwrap().push(networks.to_owned());
        match *self.networks_fail.lock().unwrap() {
            true => Err("the runtime is busy".to_owned()),
            false => Ok(()),
        }
    }

    async fn reconnect(&self) {
        *self.reconnects.lock().unwrap() += 1;
    }
}

/// Everything for a test; its keeper runs while time passes.
pub(super) struct World {
    pub api: Arc<FakeApi>,
    pub node: Arc<FakeNode>,
    pub handle: NodeHandle,
    keeper: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl World {
    pub fn new(settings: NodeSettings) -> Self {
        let (api, node) = (FakeApi::new(), FakeNode::new());
        let begun = Instant::now();
        let parts = NodeParts {
            settings,
            api: Arc::clone(&api) as Arc<dyn Api>,
            facts: Arc::clone(&node) as Arc<dyn Facts>,
            reports: Arc::clone(&node) as Arc<dyn Reports>,
            clock: Arc::new(move || Timestamp::UNIX_EPOCH + begun.elapsed()),
            spread: Arc::new(|_| Duration::ZERO),
        };
        let (handle, keeper) = crate::node::start(parts);
        Self { api, node, handle, keeper: Box::pin(keeper.run()) }
    }

    /// Lets so many milliseconds pass.
    pub async fn pass(&mut self, milliseconds: u64) {
        tokio::select! { biased;
            () = &mut self.keeper => panic!("it runs for ever"),
            () = tokio::time::sleep(Duration::from_millis(milliseconds)) => {}
        }
    }
}
