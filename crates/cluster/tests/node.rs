//! The Node object against an API server: real sockets, real TLS, real patches.
#![allow(clippy::disallowed_methods, reason = "tests are no part of the agent")]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use api_client::{Access, Api, ApiClient, Call, Patch};
use async_trait::async_trait;
use cluster::node::{
    Devices, Facts, Machine, Network, NodeEvent, NodeFacts, NodeHandle, NodeHealth, NodeImage,
    NodeParts, NodeSettings, NodeTaint, Pressure, Reports, Reserved, Runtime, Troubles, Versions,
    start,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::api_server::{ApiOptions, TestApi};
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);
const NODE: &str = "/api/v1/nodes/n1";
const LEASES: &str = "leases.coordination.k8s.io";

fn client(kubeconfig: &Path) -> Result<ApiClient> {
    let dir = kubeconfig.parent().context("a directory")?;
    let access = Access::parse(&std::fs::read(kubeconfig)?, dir)?;
    Ok(ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?)
}

fn settings() -> NodeSettings {
    NodeSettings {
        name: "n1".to_owned(),
        hostname: "host1".to_owned(),
        node_ips: vec!["10.0.0.1".parse().expect("an address")],
        external_cloud: false,
        labels: vec![("tier".to_owned(), "front".to_owned())],
        taints: vec![NodeTaint {
            key: "k".to_owned(),
            value: "v".to_owned(),
            effect: "NoSchedule".to_owned(),
        }],
        register: true,
        provider_id: "x://1".to_owned(),
        controller_attaches: true,
        max_pods: 110,
        pods_per_core: 0,
        max_images: 50,
        isolates_local_storage: true,
        port: 10250,
        version: "v1.36.4".to_owned(),
        declared_features: Some(vec!["ExtendWebSocketsToKubelet".to_owned()]),
        update_every: Duration::from_millis(200),
        report_every: Duration::from_secs(3600),
        lease_seconds: 1,
    }
}

fn facts() -> NodeFacts {
    NodeFacts {
        machine: Ok(Machine {
            boot_id: "b".to_owned(),
            cores: 4,
            memory_bytes: 8 << 30,
            ..Machine::default()
        }),
        versions: Ok(Versions { kernel: "6.1".to_owned(), os_image: "Debian".to_owned() }),
        network: Network {
            interfaces: vec!["10.0.0.1".parse().expect("an address")],
            ..Network::default()
        },
        ephemeral_storage_bytes: Some(100 << 30),
        reserved: Reserved { cpu_milli: 100, memory_bytes: 100 << 20, ..Reserved::default() },
        devices: Devices::default(),
        runtime: Runtime { name: "containerd".to_owned(), ..Runtime::default() },
        images: Ok(vec![NodeImage {
            id: "sha256:1".to_owned(),
            tags: vec!["app:1".to_owned()],
            bytes: 5,
            ..NodeImage::default()
        }]),
        pressure: Pressure::default(),
        volumes_in_use: Some(Vec::new()),
        troubles: Troubles::default(),
    }
}

/// A node whose facts a test changes.
struct FakeNode {
    facts: Mutex<NodeFacts>,
    events: Mutex<Vec<NodeEvent>>,
    networks: Mutex<Vec<String>>,
    volumes: Mutex<Vec<String>>,
    reconnects: AtomicU32,
}

#[async_trait]
impl Facts for FakeNode {
    async fn gather(&self, _: bool) -> NodeFacts {
        self.facts.lock().unwrap().clone()
    }
}

#[async_trait]
impl Reports for FakeNode {
    fn event(&self, event: NodeEvent) {
        self.events.lock().unwrap().push(event);
    }

    fn volumes_reported(&self, volumes: &[String]) {
        *self.volumes.lock().unwrap() = volumes.to_vec();
    }

    async fn pod_networks(&self, networks: &str) -> Result<(), String> {
        self.networks.lock().unwrap().push(networks.to_owned());
        Ok(())
    }

    async fn reconnect(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server, a keeper that runs, and an administrator.
struct World {
    server: TestApi,
    admin: ApiClient,
    node: Arc<FakeNode>,
    handle: NodeHandle,
    keeper: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl World {
    /// What is prepared is there before the keeper starts.
    async fn start(settings: NodeSettings, prepared: Option<Value>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let server = TestApi::start(dir.path(), ApiOptions::default())?;
        if let Some(node) = prepared {
            server.add("", node)?;
        }
        let user = server.admin_kubeconfig()?;
        Self::start_as(dir, server, settings, &user)
    }

    fn start_as(
        dir: tempfile::TempDir,
        server: TestApi,
        settings: NodeSettings,
        user: &Path,
    ) -> Result<Self> {
        let node = Arc::new(FakeNode {
            facts: Mutex::new(facts()),
            events: Mutex::default(),
            networks: Mutex::default(),
            volumes: Mutex::default(),
            reconnects: AtomicU32::new(0),
        });
        let parts = NodeParts {
            settings,
            api: Arc::new(client(user)?),
            facts: Arc::clone(&node) as Arc<dyn Facts>,
            reports: Arc::clone(&node) as Arc<dyn Reports>,
            clock: Arc::new(Timestamp::now),
            spread: Arc::new(|_| Duration::ZERO),
        };
        let admin = client(&server.admin_kubeconfig()?)?;
        let (handle, keeper) = start(parts);
        let keeper = tokio::spawn(keeper.run());
        Ok(Self { server, admin, node, handle, keeper, _dir: dir })
    }

    /// Ends everything that is connected before the server, which waits for them.
    async fn end(self) -> Result<()> {
        self.keeper.abort();
        // It was told to end.
        let _ = self.keeper.await;
        drop((self.admin, self.handle));
        sleep(Duration::from_millis(50)).await;
        drop(self.server);
        Ok(())
    }

    fn stored(&self) -> Option<Value> {
        self.server.object("nodes", "", "n1")
    }

    fn lease(&self) -> Option<Value> {
        self.server.object(LEASES, "kube-node-lease", "n1")
    }

    /// The node once it is like this.
    async fn node_when(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        self.when(what, || self.stored().filter(|node| is(node))).await
    }

    async fn health_when(&self, is: impl Fn(&NodeHealth) -> bool) -> Result<NodeHealth> {
        let mut health = self.handle.health();
        let found = timeout(PATIENCE, health.wait_for(|health| is(health))).await;
        Ok(found.with_context(|| format!("{:?}", self.handle.health().borrow()))??.clone())
    }

    async fn when<T>(&self, what: &str, find: impl Fn() -> Option<T>) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            match find() {
                Some(found) => return Ok(found),
                None if Instant::now() > until => {
                    bail!("never: {what}\n{:?}\n{:?}", self.stored(), self.handle.health().borrow())
                }
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array();
    let mut found = conditions.into_iter().flatten().filter(|one| one["type"] == kind);
    found.next().unwrap_or(&Value::Null)
}

fn is_ready(node: &Value) -> bool {
    condition(node, "Ready")["status"] == "True"
}

#[tokio::test]
async fn a_new_node_is_registered_with_its_status_and_lease() -> Result<()> {
    let world = World::start(settings(), None).await?;
    let node = world.node_when("the node is ready", is_ready).await?;
    let labels = &node["metadata"]["labels"];
    ensure!(labels["tier"] == "front" && labels["kubernetes.io/hostname"] == "host1", "{labels}");
    ensure!(labels["beta.kubernetes.io/os"] == "linux", "{labels}");
    let spec = &node["spec"];
    ensure!(spec["taints"][0] == json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
    ensure!(spec["providerID"] == "x://1", "{spec}");
    let status = &node["status"];
    ensure!(status["allocatable"]["cpu"] == "3900m", "{status}");
    ensure!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250, "{status}");
    ensure!(status["images"][0]["names"] == json!(["app:1"]), "{status}");
    ensure!(status["declaredFeatures"] == json!(["ExtendWebSocketsToKubelet"]), "{status}");
    ensure!(status["nodeInfo"]["containerRuntimeVersion"] == "containerd://Unknown", "{status}");
    let kinds: Vec<&str> = status["conditions"]
        .as_array()
        .context("conditions")?
        .iter()
        .filter_map(|condition| condition["type"].as_str())
        .collect();
    ensure!(kinds == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"], "{kinds:?}");

    let lease = world.when("the lease is there", || world.lease()).await?;
    ensure!(lease["spec"]["holderIdentity"] == "n1" && lease["spec"]["leaseDurationSeconds"] == 1);
    ensure!(lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"], "{lease}");
    let renewed =
        || world.lease().filter(|now| now["spec"]["renewTime"] != lease["spec"]["renewTime"]);
    let later = world.when("the lease is renewed", renewed).await?;
    ensure!(later["metadata"]["uid"] == lease["metadata"]["uid"]);

    let health = world.health_when(|health| health.settled).await?;
    ensure!(health.registered.is_some() && health.status_written.is_some(), "{health:?}");
    let mut own = world.handle.node();
    let own = timeout(PATIENCE, own.wait_for(|node| node.is_some())).await??.clone();
    let own = own.context("a node")?;
    ensure!(own.uid() == node["metadata"]["uid"] && own.labels().contains(&("tier", "front")));
    let events: Vec<&str> =
        world.node.events.lock().unwrap().iter().map(|event| event.reason).collect();
    ensure!(
        events[..3] == ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]
    );
    world.end().await
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changed() -> Result<()> {
    let world = World::start(settings(), None).await?;
    world.health_when(|health| health.status_written.is_some() && health.settled).await?;
    let revision =
        |world: &World| world.stored().map(|node| node["metadata"]["resourceVersion"].clone());
    let before = revision(&world);
    sleep(Duration::from_millis(900)).await;
    ensure!(revision(&world) == before, "some updates later it is as it was");
    // A change is written at once when poked, and nothing but that.
    let old = world.stored().context("a node")?;
    world.node.facts.lock().unwrap().pressure.memory = true;
    world.handle.poke();
    let node = world
        .node_when("memory is short", |node| condition(node, "MemoryPressure")["status"] == "True")
        .await?;
    ensure!(condition(&node, "MemoryPressure")["reason"] == "KubeletHasInsufficientMemory");
    let since = |node: &Value| condition(node, "Ready")["lastTransitionTime"].clone();
    ensure!(since(&node) == since(&old), "the rest has not changed");
    world.end().await
}

#[tokio::test]
async fn a_node_that_is_there_is_made_to_agree() -> Result<()> {
    let existing = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"mine": "x", "kubernetes.io/hostname": "old"},
            "annotations": {"a": "b", "alpha.kubernetes.io/provided-node-ip": "1.2.3.4"}},
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "unschedulable": true},
        "status": {
            "capacity": {"cpu": "1", "hugepages-1Gi": "1Gi", "a.com/gpu": "2"},
            "allocatable": {"cpu": "1", "hugepages-1Gi": "1Gi", "a.com/gpu": "2"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"},
                {"type": "ExternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {"bootID": "older", "kubeProxyVersion": "v1.20"},
            "conditions": [{"type": "NetworkUnavailable", "status": "False"}]}});
    let world = World::start(settings(), Some(existing)).await?;
    let node = world.node_when("the node is ready", is_ready).await?;
    let labels = &node["metadata"]["labels"];
    ensure!(labels["mine"] == "x" && labels["kubernetes.io/hostname"] == "host1", "{labels}");
    ensure!(labels.get("tier").is_none(), "only default labels are made to agree: {labels}");
    ensure!(node["spec"].get("taints").is_none(), "taints are not");
    let annotations = &node["metadata"]["annotations"];
    let key = "volumes.kubernetes.io/controller-managed-attach-detach";
    ensure!(*annotations == json!({"a": "b", key: "true"}), "{annotations}");
    let status = &node["status"];
    ensure!(status["capacity"].get("hugepages-1Gi").is_none(), "{status}");
    ensure!(status["capacity"]["a.com/gpu"] == "2" && status["capacity"]["cpu"] == "4");
    ensure!(
        status["addresses"]
            == json!([{"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Hostname", "address": "host1"}]),
        "{status}"
    );
    ensure!(status["conditions"][0]["type"] == "NetworkUnavailable", "{status}");
    ensure!(status["nodeInfo"]["kubeProxyVersion"] == "", "{status}");
    ensure!(*world.node.networks.lock().unwrap() == ["10.1.0.0/24"]);
    let events: Vec<&str> =
        world.node.events.lock().unwrap().iter().map(|event| event.reason).collect();
    ensure!(events.contains(&"Rebooted") && events.contains(&"NodeNotSchedulable"), "{events:?}");
    world.end().await
}

#[tokio::test]
async fn volumes_and_troubles_come_and_go() -> Result<()> {
    let world = World::start(settings(), None).await?;
    world.node_when("the node is ready", is_ready).await?;
    {
        let mut facts = world.node.facts.lock().unwrap();
        facts.volumes_in_use = Some(vec!["kubernetes.io/csi/d^v".to_owned()]);
        facts.troubles.runtime = vec!["container runtime is down".to_owned()];
        facts.troubles.network = vec!["network state unknown".to_owned()];
    }
    world.handle.poke();
    let node = world.node_when("the node is not ready", |node| !is_ready(node)).await?;
    let ready = condition(&node, "Ready");
    ensure!(ready["reason"] == "KubeletNotReady", "{ready}");
    ensure!(ready["message"] == "[container runtime is down, network state unknown]", "{ready}");
    let reported = || (world.node.volumes.lock().unwrap().len() == 1).then_some(());
    world.when("the volume is reported", reported).await?;
    *world.node.facts.lock().unwrap() = facts();
    let node = world.node_when("the node is ready again", is_ready).await?;
    ensure!(node["status"].get("volumesInUse").is_none(), "{node}");
    // Somebody takes a label away that no node is without.
    let change = json!({"metadata": {"labels": {"kubernetes.io/os": null}}});
    world.admin.call(Call::patch(NODE, Patch::Merge, change)).await?;
    let is_back = |node: &Value| node["metadata"]["labels"]["kubernetes.io/os"] == "linux";
    world.node_when("the label is back", is_back).await?;
    world.end().await
}

#[tokio::test]
async fn a_server_that_goes_away_comes_back() -> Result<()> {
    let mut world = World::start(settings(), None).await?;
    world.node_when("the node is ready", is_ready).await?;
    world.when("the lease is there", || world.lease()).await?;
    world.server.pause()?;
    world.node.facts.lock().unwrap().pressure.pids = true;
    world.handle.poke();
    let health = world.health_when(|health| health.last_trouble.is_some()).await?;
    let trouble = health.last_trouble.context("a trouble")?;
    ensure!(!trouble.why.is_empty(), "{trouble:?}");
    let reconnected = || (world.node.reconnects.load(Ordering::Relaxed) > 0).then_some(());
    world.when("the connection is suspected", reconnected).await?;
    ensure!(world.handle.node().borrow().is_some(), "what was known stays known");
    world.server.resume()?;
    let back = Timestamp::now();
    world
        .node_when("processes are short", |node| condition(node, "PIDPressure")["status"] == "True")
        .await?;
    world.health_when(|health| health.lease_renewed.is_some_and(|at| at > back)).await?;
    world.end().await
}

#[tokio::test]
async fn a_lease_that_others_write_is_renewed_all_the_same() -> Result<()> {
    let world = World::start(settings(), None).await?;
    world.when("the lease is there", || world.lease()).await?;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    for round in ["one", "two", "three"] {
        let change = json!({"metadata": {"annotations": {"round": round}}});
        let theirs = world.admin.call(Call::patch(path, Patch::Merge, change)).await?;
        let lease = world
            .when("it is renewed", || {
                world.lease().filter(|now| now["spec"]["renewTime"] != theirs["spec"]["renewTime"])
            })
            .await?;
        ensure!(lease["metadata"]["annotations"]["round"] == round, "{lease}");
    }
    let trouble = world.handle.health().borrow().last_trouble.clone().context("a conflict")?;
    ensure!(trouble.what == "renew the lease", "{trouble:?}");
    let gone = world.admin.call(Call::delete(path, json!({}))).await;
    gone?;
    world.when("it is made again", || world.lease()).await?;
    world.end().await
}

#[tokio::test]
async fn who_is_refused_says_so_and_tries_again() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let nobody = server.kubeconfig("system:node:n1", Some("system:nodes"))?;
    let world = World::start_as(dir, server, settings(), &nobody)?;
    let is_refused = |health: &NodeHealth| {
        health.last_trouble.as_ref().is_some_and(|trouble| trouble.what == "register the node")
    };
    let health = world.health_when(is_refused).await?;
    let why = health.last_trouble.context("a trouble")?.why;
    ensure!(why.contains("forbidden") && why.contains("nodes"), "{why}");
    ensure!(world.stored().is_none() && health.registered.is_none());
    // Somebody gives it the right.
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
            "name": "system:nodes"}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    world.admin.call(Call::post(path, binding)).await?;
    world.node_when("the node is ready", is_ready).await?;
    world.when("the lease is there", || world.lease()).await?;
    world.end().await
}

#[tokio::test]
async fn a_node_of_others_is_kept_but_not_made() -> Result<()> {
    let mut settings = settings();
    settings.register = false;
    let world = World::start(settings, None).await?;
    let health = world.health_when(|health| health.last_trouble.is_some()).await?;
    ensure!(health.registered.is_none());
    ensure!(world.stored().is_none() && world.lease().is_none());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    world.admin.call(Call::post("/api/v1/nodes", node)).await?;
    world.node_when("the node is ready", is_ready).await?;
    world.when("the lease is there", || world.lease()).await?;
    world.admin.call(Call::delete(NODE, json!({}))).await?;
    let mut own = world.handle.node();
    timeout(PATIENCE, own.wait_for(|node| node.is_none())).await??;
    let error = world.handle.fresh().await.err().context("it is gone")?;
    ensure!(error.is_not_found(), "{error:?}");
    world.end().await
}
