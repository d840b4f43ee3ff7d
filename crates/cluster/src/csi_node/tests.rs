//! The keeper against an API in memory.

use std::collections::BTreeMap;

use api_client::{ApiError, Call, Watching, path};
use apiserver::direct::Direct;
use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;

/// An API that refuses what it is told to, some times.
struct Faulty {
    api: Direct,
    /// Part of `METHOD path`, and how often.
    faults: Mutex<Vec<(&'static str, u32)>>,
}

#[async_trait]
impl Api for Faulty {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        let words = format!("{} {}", call.method, call.path);
        let refused = self.faults.lock().unwrap().iter_mut().any(|(part, left)| {
            let hit = *left > 0 && words.contains(*part);
            *left -= u32::from(hit);
            hit
        });
        if refused {
            return Err(ApiError::Unusable("as the test wants".to_owned()));
        }
        self.api.call(call).await
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.api.watch(path).await
    }
}

#[derive(Default)]
struct Table(Mutex<BTreeMap<String, Driver>>);

impl Table {
    fn put(&self, name: &str, zone: &str) {
        let topology = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        let driver =
            Driver { name: name.to_owned(), node_id: "id".to_owned(), volumes_max: 5, topology };
        self.0.lock().unwrap().insert(name.to_owned(), driver);
    }
}

impl Registered for Table {
    fn driver(&self, name: &str) -> Option<Driver> {
        self.0.lock().unwrap().get(name).cloned()
    }
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

struct Setting {
    api: Arc<Faulty>,
    table: Arc<Table>,
    node: watch::Sender<Option<String>>,
    handle: CsiNodeHandle,
    keeper: Option<CsiNodeKeeper>,
}

impl Setting {
    fn new(faults: &[(&'static str, u32)]) -> Self {
        let clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let api = Direct::alone(clock, 100).expect("an API");
        let api = Arc::new(Faulty { api, faults: Mutex::new(faults.to_vec()) });
        let (table, (node, uid)) = (Arc::<Table>::default(), watch::channel(None));
        let (handle, keeper) = new(CsiNodeParts {
            node_name: "n1".to_owned(),
            api: Arc::clone(&api) as Arc<dyn Api>,
            registered: Arc::clone(&table) as Arc<dyn Registered>,
            node: uid,
            spread: Arc::new(|_| Duration::ZERO),
        });
        Self { api, table, node, handle, keeper: Some(keeper) }
    }

    async fn ask(&self, call: Call) -> Result<Value, ApiError> {
        self.api.api.call(call).await
    }

    async fn add_node(&self) -> String {
        let node = json!({"metadata": {"name": "n1"}});
        let node = self.ask(Call::post("/api/v1/nodes", node)).await.expect("a node");
        node["metadata"]["uid"].as_str().expect("a uid").to_owned()
    }

    async fn csi_node(&self) -> Value {
        // There may be none for a moment.
        self.ask(Call::get(&csi_path())).await.unwrap_or_default()
    }

    async fn node(&self) -> Value {
        self.ask(Call::get(&path("api/v1", "", &["nodes", "n1"]))).await.expect("a node")
    }

    /// Waits, while the keeper works.
    async fn until(&self, what: &str, is: impl AsyncFn() -> bool) {
        for _ in 0..10_000 {
            if is().await {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }
}

fn csi_path() -> String {
    path("apis/storage.k8s.io/v1", "", &["csinodes", "n1"])
}

/// Runs a test beside the keeper.
async fn with_keeper(mut setting: Setting, test: impl AsyncFnOnce(&Setting)) {
    let keeper = setting.keeper.take().expect("a keeper").run();
    tokio::select! { biased;
        () = keeper => panic!("the keeper ended"),
        () = test(&setting) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_announced_once_the_node_is_there_and_withdrawn_when_it_goes() {
    let setting = Setting::new(&[]);
    with_keeper(setting, async |setting| {
        setting.table.put("a", "z");
        assert_eq!(setting.handle.problem().borrow().as_deref(), Some(NOT_YET));
        let uid = setting.add_node().await;
        let early = setting.handle.announce("a");
        let (told, _) = tokio::join!(early, async {
            sleep(Duration::from_secs(5)).await;
            setting.node.send_replace(Some(uid.clone()));
        });
        assert_eq!(told, Ok(()));
        assert_eq!(*setting.handle.problem().borrow(), None);
        let made = setting.csi_node().await;
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
        let expected = json!([{"name": "a", "nodeID": "id", "topologyKeys": ["zone"],
            "allocatable": {"count": 5}}]);
        assert_eq!(made["spec"]["drivers"], expected);
        let node = setting.node().await;
        assert_eq!(node["metadata"]["annotations"][plan::NODE_ID], r#"{"a":"id"}"#);
        assert_eq!(node["metadata"]["labels"]["zone"], "z");

        // One that contradicts another is told why, and is not listed.
        setting.table.put("b", "elsewhere");
        let error = setting.handle.announce("b").await.unwrap_err().to_string();
        assert!(error.contains("detected topology value collision"), "{error}");
        assert_eq!(setting.csi_node().await["spec"]["drivers"], expected);

        setting.table.0.lock().unwrap().remove("a");
        setting.handle.withdraw("a");
        setting
            .until("it is listed no more", async || {
                let none = setting.csi_node().await["spec"]["drivers"] == json!([]);
                let node = setting.node().await;
                none && node["metadata"]["annotations"].get(plan::NODE_ID).is_none()
            })
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_node_makes_room_and_faults_are_survived() {
    let setting = Setting::new(&[("csinodes", 9), ("PUT", 3)]);
    with_keeper(setting, async |setting| {
        let mut foreign = plan::fresh("n1", "gone");
        foreign["spec"]["drivers"] = json!([{"name": "old", "nodeID": "x"}]);
        let all = path("apis/storage.k8s.io/v1", "", &["csinodes"]);
        setting.ask(Call::post(&all, foreign)).await.expect("made");
        setting.table.put("a", "z");
        let uid = setting.add_node().await;
        setting.node.send_replace(Some(uid.clone()));
        let mut problem = setting.handle.problem();
        let failed = problem.wait_for(|problem| {
            problem.as_ref().is_some_and(|text| text.contains("failed to initialize CSINode: "))
        });
        drop(failed.await.expect("told"));
        drop(problem.wait_for(Option::is_none).await.expect("made"));
        assert_eq!(setting.handle.announce("a").await, Ok(()));
        let made = setting.csi_node().await;
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
        assert_eq!(made["spec"]["drivers"].as_array().unwrap().len(), 1);

        // Another Node of the name: all is said of that one.
        setting.node.send_replace(Some("other".to_owned()));
        setting
            .until("it is the other's", async || {
                let made = setting.csi_node().await;
                made["metadata"]["ownerReferences"][0]["uid"] == "other"
                    && made["spec"]["drivers"][0]["name"] == "a"
            })
            .await;
    })
    .await;
}
