//! Objects that pods name, against an API server: real sockets, real TLS, real rules.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Access, Api, ApiClient, Call, Patch};
use cluster::objects::{
    self, Address, CLAIMS, CONFIG_MAPS, Listener, Reader, SECRETS, Settings, Strategy, Use, Wanted,
    config_object,
};
use jiff::Timestamp;
use kubelet_model::ConfigObject;
use serde_json::{Value, json};
use testkit::api_server::{ApiOptions, TestApi};
use tokio::sync::watch;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn client(kubeconfig: &Path) -> Result<ApiClient> {
    let dir = kubeconfig.parent().context("a directory")?;
    let access = Access::parse(&std::fs::read(kubeconfig)?, dir)?;
    Ok(ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?)
}

/// What is known of every object; absent ones are `None`.
struct Board(watch::Sender<BTreeMap<Address, Option<ConfigObject>>>);

impl Listener for Board {
    fn present(&self, at: &Address, object: Value) -> Result<(), String> {
        let key = at.key().ok_or("of no known kind")?;
        let object = config_object(&key, object)?;
        self.0.send_modify(|all| drop(all.insert(at.clone(), Some(object))));
        Ok(())
    }
    fn absent(&self, at: &Address) {
        self.0.send_modify(|all| drop(all.insert(at.clone(), None)));
    }
    fn forget(&self, at: &Address) {
        self.0.send_modify(|all| drop(all.remove(at)));
    }
}

struct Case {
    _dir: tempfile::TempDir,
    server: Option<TestApi>,
    admin: ApiClient,
    board: Arc<Board>,
    wanted: watch::Sender<Wanted>,
    reader: Reader,
}

impl Case {
    fn want(&self, wanted: &[&Address]) {
        let mut all = BTreeMap::new();
        for at in wanted {
            all.insert((*at).clone(), Use::Held);
        }
        self.wanted.send_replace(Arc::new(all));
    }

    /// Stops the server. Its clients go on meanwhile, or it would wait for them.
    async fn pause(&mut self) -> Result<()> {
        let mut server = self.server.take().context("a server")?;
        let paused = tokio::task::spawn_blocking(move || server.pause().map(|()| server));
        self.server = Some(paused.await??);
        Ok(())
    }

    fn server(&mut self) -> Result<&mut TestApi> {
        self.server.as_mut().context("a server")
    }

    /// Waits until an object has this value under `k`.
    async fn until_value(&self, at: &Address, value: &str) -> Result<()> {
        let has = |all: &BTreeMap<Address, Option<ConfigObject>>| {
            let object = all.get(at).and_then(Option::as_ref);
            object.and_then(|object| object.value("k")) == Some(value.as_bytes())
        };
        let mut board = self.board.0.subscribe();
        timeout(PATIENCE, board.wait_for(has)).await.context(format!("{at}: {value}"))??;
        Ok(())
    }

    async fn until_absent(&self, at: &Address) -> Result<()> {
        let mut board = self.board.0.subscribe();
        timeout(PATIENCE, board.wait_for(|all| all.get(at) == Some(&None))).await??;
        Ok(())
    }

    /// Reads until the answer is this one.
    async fn until_read(&self, at: &Address, expected: &str) -> Result<()> {
        let mut last = String::new();
        let answered = timeout(PATIENCE, async {
            while !last.starts_with(expected) {
                last = match self.reader.read(at).await {
                    Ok(()) => "ok".to_owned(),
                    Err(trouble) => trouble.to_string(),
                };
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let ended = answered.await;
        ensure!(ended.is_ok(), "{at}: {last}");
        Ok(())
    }
}

async fn run(user: &str, test: impl AsyncFnOnce(&mut Case) -> Result<()>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let admin = client(&server.admin_kubeconfig()?)?;
    let group = (user == "admin").then_some("system:masters");
    let kubeconfig = server.kubeconfig(user, group)?;
    let connect: objects::Connect =
        Arc::new(move || Arc::new(client(&kubeconfig).expect("it was written")) as Arc<dyn Api>);
    let (wanted, receiver) = watch::channel(Wanted::default());
    let board = Arc::new(Board(watch::Sender::new(BTreeMap::new())));
    let settings = Settings {
        strategy: Strategy::Watch,
        sync_frequency: Duration::from_secs(1),
        ttl: Arc::new(|| Duration::ZERO),
    };
    let listener = Arc::clone(&board) as Arc<dyn Listener>;
    let spread = Arc::new(|_| Duration::ZERO);
    let (objects, reader) = objects::new(connect, settings, receiver, listener, spread);
    let mut case = Case { _dir: dir, server: Some(server), admin, board, wanted, reader };
    tokio::select! {
        () = objects.run() => anyhow::bail!("it ended by itself"),
        tested = test(&mut case) => tested,
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"k": value}})
}

#[tokio::test]
async fn objects_appear_change_and_vanish() -> Result<()> {
    run("admin", async |case| {
        let a = Address::new(CONFIG_MAPS, "default", "a");
        let b = Address::new(CONFIG_MAPS, "default", "b");
        let s = Address::new(SECRETS, "default", "s");
        let c = Address::new(CLAIMS, "default", "c");
        case.admin.call(Call::post(MAPS, map("b", "other"))).await?;
        case.want(&[&a, &b, &s, &c]);
        case.until_read(&a, "configmap \"a\" not found").await?;
        case.until_read(&c, "persistentvolumeclaims \"c\" not found").await?;
        case.until_value(&b, "other").await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"k": "aHVudGVyMg=="}});
        case.admin.call(Call::post("/api/v1/namespaces/default/secrets", secret)).await?;
        case.until_value(&s, "hunter2").await?;
        case.admin.call(Call::post(MAPS, map("a", "1"))).await?;
        case.until_value(&a, "1").await?;
        case.until_read(&a, "ok").await?;
        let change = json!({"data": {"k": "2"}});
        case.admin.call(Call::patch(&format!("{MAPS}/a"), Patch::Merge, change)).await?;
        case.until_value(&a, "2").await?;
        case.admin.call(Call::delete(&format!("{MAPS}/a"), json!({}))).await?;
        case.until_absent(&a).await?;
        case.until_read(&a, "configmap \"a\" not found").await?;
        case.want(&[&b]);
        case.until_read(&a, "object \"default\"/\"a\" not registered").await?;
        let known: Vec<Address> = case.board.0.borrow().keys().cloned().collect();
        ensure!(known == [b], "{known:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_server_goes_and_comes_back_with_news() -> Result<()> {
    run("admin", async |case| {
        let a = Address::new(CONFIG_MAPS, "default", "a");
        let late = Address::new(CONFIG_MAPS, "default", "late");
        case.admin.call(Call::post(MAPS, map("a", "1"))).await?;
        case.want(&[&a]);
        case.until_value(&a, "1").await?;
        case.pause().await?;
        case.want(&[&a, &late]);
        let away = "failed to sync configmap cache: cannot reach the API server";
        case.until_read(&late, away).await?;
        case.until_read(&a, "ok").await?;
        case.server()?.resume()?;
        let change = json!({"data": {"k": "2"}});
        case.admin.call(Call::patch(&format!("{MAPS}/a"), Patch::Merge, change)).await?;
        case.until_value(&a, "2").await?;
        case.until_absent(&late).await?;
        // What happened meanwhile is forgotten by the server: it is listed anew.
        case.pause().await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        case.server()?.resume()?;
        case.admin.call(Call::delete(&format!("{MAPS}/a"), json!({}))).await?;
        case.server()?.store().forget(u64::MAX);
        case.until_absent(&a).await
    })
    .await
}

#[tokio::test]
async fn what_is_immutable_is_believed_for_good() -> Result<()> {
    run("admin", async |case| {
        let a = Address::new(CONFIG_MAPS, "default", "a");
        let mut fixed = map("a", "1");
        fixed["immutable"] = true.into();
        case.admin.call(Call::post(MAPS, fixed)).await?;
        case.want(&[&a]);
        case.until_value(&a, "1").await?;
        case.admin.call(Call::delete(&format!("{MAPS}/a"), json!({}))).await?;
        // Another object that is watched tells when the first would have been heard of.
        let b = Address::new(CONFIG_MAPS, "default", "b");
        case.want(&[&a, &b]);
        case.admin.call(Call::post(MAPS, map("b", "2"))).await?;
        case.until_value(&b, "2").await?;
        case.until_value(&a, "1").await?;
        case.until_read(&a, "ok").await
    })
    .await
}

#[tokio::test]
async fn whoever_may_not_read_is_told_so() -> Result<()> {
    run("somebody", async |case| {
        let s = Address::new(SECRETS, "default", "s");
        case.want(&[&s]);
        let forbidden = "failed to sync secret cache: secrets \"s\" is forbidden: \
            User \"somebody\" cannot list resource \"secrets\"";
        case.until_read(&s, forbidden).await
    })
    .await
}
