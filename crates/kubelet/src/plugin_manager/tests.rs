//! Registrations against plugins that exist only here, on real sockets' names.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Api, Call, Patch};
use apiserver::direct::Direct;
use async_trait::async_trait;
use kubelet_model::{ObjectKey, ObjectKind};
use plugin_apis::csi::{
    NodeCapability, NodeExpandVolumeRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
};
use plugin_apis::pluginregistration::PluginInfo;
use plugin_apis::{CallError, CallErrorKind, EndpointError};
use serde_json::json;

use super::drivers::{CsiDriver, NotEntered};
use super::{Drivers, Refresh, Version, register, start, version};
use crate::object_cache;
use crate::ports::{CsiNode, Plugins, Ports, Registrar};

/// A plugin, whichever socket it is asked through.
#[derive(Clone)]
struct Fake {
    kind: &'static str,
    /// Answers that fail before one works.
    failures: Arc<Mutex<u32>>,
    told: Arc<Mutex<Vec<Result<(), String>>>>,
    /// How often it was asked about the node: so many volumes it can attach.
    asked: Arc<Mutex<i64>>,
}

impl Fake {
    fn new(kind: &'static str, failures: u32) -> Self {
        let failures = Arc::new(Mutex::new(failures));
        Self { kind, failures, told: Arc::default(), asked: Arc::default() }
    }

    fn told(&self) -> Vec<Result<(), String>> {
        self.told.lock().unwrap().clone()
    }
}

impl Plugins for Fake {
    fn registrar(&self, _: &Path) -> Result<Arc<dyn Registrar>, EndpointError> {
        Ok(Arc::new(self.clone()))
    }

    fn csi(&self, _: &str, _: &str) -> Result<Arc<dyn CsiNode>, EndpointError> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Registrar for Fake {
    async fn info(&self) -> Result<PluginInfo, CallError> {
        let supported_versions = vec!["1.5.0".to_owned()];
        let (r#type, name) = (self.kind.to_owned(), "d.example".to_owned());
        Ok(PluginInfo { r#type, name, endpoint: String::new(), supported_versions })
    }

    async fn notify(&self, verdict: Result<(), String>) -> Result<(), CallError> {
        self.told.lock().unwrap().push(verdict);
        Ok(())
    }
}

fn refused(call: &'static str) -> CallError {
    let kind = CallErrorKind::Unreachable("as the test wants".to_owned());
    CallError { driver: "d.example".to_owned(), call, volume: String::new(), kind }
}

#[async_trait]
impl CsiNode for Fake {
    async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(refused("NodeGetInfo"));
        }
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        let (node_id, max_volumes_per_node) = ("n-7".to_owned(), *asked);
        Ok(NodeGetInfoResponse { node_id, max_volumes_per_node, ..Default::default() })
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        Ok(BTreeSet::new())
    }

    async fn stage(&self, _: NodeStageVolumeRequest) -> Result<(), CallError> {
        Err(refused("NodeStageVolume"))
    }

    async fn unstage(&self, _: &str, _: &str) -> Result<(), CallError> {
        Err(refused("NodeUnstageVolume"))
    }

    async fn publish(&self, _: NodePublishVolumeRequest) -> Result<(), CallError> {
        Err(refused("NodePublishVolume"))
    }

    async fn unpublish(&self, _: &str, _: &str) -> Result<(), CallError> {
        Err(refused("NodeUnpublishVolume"))
    }

    async fn expand(&self, _: NodeExpandVolumeRequest) -> Result<(), CallError> {
        Err(refused("NodeExpandVolume"))
    }

    async fn stats(
        &self,
        _: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        Err(refused("NodeGetVolumeStats"))
    }
}

fn ports(plugins: Fake) -> Ports {
    let config = cri::ClientConfig {
        runtime_endpoint: "unix:///nowhere.sock".to_owned(),
        image_endpoint: None,
        request_timeout: Duration::from_secs(1),
    };
    let runtime = Arc::new(cri::CriClient::new(config).expect("a client"));
    Ports { plugins: Arc::new(plugins), ..Ports::around(runtime) }
}

/// Waits until a driver is there, or not.
async fn until(drivers: &Drivers, there: bool) {
    let mut watch = drivers.follow();
    while drivers.get("d.example").is_ok() != there {
        let changed = tokio::time::timeout(Duration::from_secs(20), watch.changed());
        changed.await.expect("the driver comes, or goes");
    }
}

#[tokio::test]
async fn drivers_come_and_go_with_their_sockets() {
    let root = tempfile::tempdir().expect("a directory");
    let plugin = Fake::new("CSIPlugin", 1);
    let ports = ports(plugin.clone());
    let drivers = Drivers::default();
    start(root.path(), &ports, &drivers, None, &object_cache::Objects::default());
    let error = drivers.get("d.example").unwrap_err().to_string();
    assert_eq!(error, "driver name d.example not found in the list of registered CSI drivers");
    let registry = root.path().join("plugins_registry");
    std::fs::create_dir_all(&registry).expect("a directory");
    std::fs::write(registry.join("no-socket"), "").expect("a file");
    let socket = registry.join("d.sock");
    let bound = UnixListener::bind(&socket).expect("a socket");
    until(&drivers, true).await;
    let driver = drivers.get("d.example").expect("the driver");
    assert_eq!((driver.node_id.as_str(), driver.version.to_string()), ("n-7", "1.5.0".to_owned()));
    assert_eq!(Path::new(&driver.endpoint), socket, "that of a driver that names none");
    drop(bound);
    std::fs::remove_file(&socket).expect("it goes");
    until(&drivers, false).await;
    let _bound = UnixListener::bind(&socket).expect("another socket");
    until(&drivers, true).await;
    let told = plugin.told();
    assert!(told[0].as_ref().is_err_and(|why| why.contains("as the test wants")), "{told:?}");
    assert_eq!(told.iter().filter(|verdict| verdict.is_ok()).count(), 2, "{told:?}");
    ports.tasks.abort_all();
}

#[tokio::test]
async fn other_plugins_are_told_that_they_are_not_taken() {
    let root = tempfile::tempdir().expect("a directory");
    let registry = root.path().join("plugins_registry");
    std::fs::create_dir_all(&registry).expect("a directory");
    let _bound = UnixListener::bind(registry.join("gpu.sock")).expect("a socket");
    let plugin = Fake::new("DRAPlugin", 0);
    let ports = ports(plugin.clone());
    let drivers = Drivers::default();
    start(root.path(), &ports, &drivers, None, &object_cache::Objects::default());
    while plugin.told().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let told = plugin.told();
    let why = told[0].as_ref().unwrap_err();
    assert!(why.contains("no handler registered for plugin type: \"DRAPlugin\""), "{why}");
    assert!(drivers.get("d.example").is_err());
    ports.tasks.abort_all();
}

#[test]
fn a_name_has_one_driver_and_a_socket_one_seat() {
    let drivers = Drivers::default();
    let of = |text: &str| version::highest_supported(&[text.to_owned()]).expect("a version");
    let driver = |version: Version| CsiDriver {
        name: "d.example".to_owned(),
        version,
        endpoint: String::new(),
        node_id: "n".to_owned(),
        volumes_max: 0,
        topology: BTreeMap::new(),
        node: Arc::new(Fake::new("CSIPlugin", 0)),
    };
    let (a, b) = (Path::new("/r/a"), Path::new("/r/b"));
    let (first, second) = (drivers.seat(a), drivers.seat(b));
    drivers.enter(&first, driver(of("1.5"))).expect("room");
    for taken in ["1.5", "1.4"] {
        let error = drivers.enter(&second, driver(of(taken))).unwrap_err();
        assert!(matches!(error, NotEntered::Taken { .. }), "{error}");
    }
    drivers.enter(&second, driver(of("1.6"))).expect("a higher version");
    assert_eq!(drivers.unseat(a), None, "the driver is the other socket's now");
    assert!(drivers.get("d.example").is_ok());
    // A registration that outlives its socket enters nothing.
    assert_eq!(drivers.enter(&first, driver(of("1.9"))), Err(NotEntered::SeatLost));
    assert_eq!(drivers.unseat(b).as_deref(), Some("d.example"));
    assert!(drivers.get("d.example").is_err());
}

/// A cluster hears of drivers; one that contradicts it is not registered, and told why.
#[tokio::test]
async fn a_cluster_hears_of_drivers_and_may_contradict() {
    let root = tempfile::tempdir().expect("a directory");
    let plugin = Fake::new("CSIPlugin", 0);
    let ports = ports(plugin.clone());
    let drivers = Drivers::default();
    let api = Direct::alone(Arc::new(jiff::Timestamp::now), 100).expect("an API");
    let annotations = json!({"csi.volume.kubernetes.io/nodeid": "["});
    let node = json!({"metadata": {"name": "n1", "annotations": annotations}});
    let node = api.call(Call::post("/api/v1/nodes", node)).await.expect("a node");
    let uid = node["metadata"]["uid"].as_str().map(str::to_owned);
    let (_identity, uid) = tokio::sync::watch::channel(uid);
    let (handle, keeper) = cluster::csi_node::new(cluster::csi_node::CsiNodeParts {
        node_name: "n1".to_owned(),
        api: Arc::new(api.clone()),
        registered: Arc::new(drivers.clone()),
        node: uid,
        spread: Arc::new(|_| Duration::ZERO),
    });
    ports.tasks.spawn(keeper.run());
    let (_, objects) = object_cache::new();
    let of_cluster = objects.join_cluster();
    let of_refresh = objects.clone();
    let refresh =
        Refresh { drivers: drivers.clone(), objects: of_refresh, announcer: handle.clone() };
    ports.tasks.spawn(refresh.run());
    start(root.path(), &ports, &drivers, Some(handle), &objects);
    let registry = root.path().join("plugins_registry");
    std::fs::create_dir_all(&registry).expect("a directory");
    let socket = registry.join("d.sock");
    let _bound = UnixListener::bind(&socket).expect("a socket");
    let told = || plugin.told().into_iter().map(Result::unwrap_err).next();
    let eventually = async |is: &dyn Fn() -> bool| {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    eventually(&|| !plugin.told().is_empty()).await;
    let why = told().expect("a refusal");
    assert!(why.contains("failed to parse node's"), "{why}");
    let mend = json!({"metadata": {"annotations": null}});
    let mend = Call::patch("/api/v1/nodes/n1", Patch::Merge, mend);
    api.call(mend).await.expect("mended");
    eventually(&|| plugin.told().iter().any(Result::is_ok)).await;
    assert!(drivers.get("d.example").is_ok());
    let listed = async || {
        let path = "/apis/storage.k8s.io/v1/csinodes/n1";
        let object = api.call(Call::get(path)).await.expect("a CSINode");
        object["spec"]["drivers"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(listed().await, 1);
    // Asked again as often as the cluster wants.
    let key = ObjectKey::new(ObjectKind::CsiDriver, "", "d.example");
    let object = json!({"spec": {"nodeAllocatableUpdatePeriodSeconds": 1}});
    let object = cluster::objects::config_object(&key, object).expect("an object");
    let count = async || {
        let path = "/apis/storage.k8s.io/v1/csinodes/n1";
        let object = api.call(Call::get(path)).await.expect("a CSINode");
        object["spec"]["drivers"][0]["allocatable"]["count"].as_i64().unwrap_or_default()
    };
    let before = count().await;
    // And at once if it turns out that it can attach fewer.
    drivers.ask_again("d.example");
    while count().await <= before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = count().await;
    of_cluster.know(&key, Some(Arc::new(object)));
    while count().await <= before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::fs::remove_file(&socket).expect("it goes");
    while listed().await > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ports.tasks.abort_all();
}

/// Pods that run from what was kept need drivers though no cluster hears of them.
#[tokio::test(start_paused = true)]
async fn drivers_serve_kept_pods_before_the_cluster_hears_of_them() {
    for offline in [false, true] {
        let plugin = Fake::new("CSIPlugin", 0);
        let ports = ports(plugin.clone());
        let drivers = Drivers::default();
        let api = Direct::alone(Arc::new(jiff::Timestamp::now), 100).expect("an API");
        let (_identity, node) = tokio::sync::watch::channel(None);
        let (handle, keeper) = cluster::csi_node::new(cluster::csi_node::CsiNodeParts {
            node_name: "n1".to_owned(),
            api: Arc::new(api),
            registered: Arc::new(drivers.clone()),
            node,
            spread: Arc::new(|_| Duration::ZERO),
        });
        ports.tasks.spawn(keeper.run());
        let (_, objects) = object_cache::new();
        objects.expect_cluster();
        if offline {
            objects.fall_back(object_cache::Kept::new(), object_cache::KeptNode::default());
        }
        let seat = drivers.seat(Path::new("/registry/d.sock"));
        let done =
            register::register(&*ports.plugins, &drivers, &seat, Some(&handle), &objects).await;
        assert_eq!(done.ok().map(|done| done.announced), offline.then_some(false));
        assert_eq!(drivers.names().len(), usize::from(offline));
        assert_eq!(plugin.told().iter().all(Result::is_ok), offline, "it is told the same");
    }
}
