//! The client against an API server: real sockets, real TLS, real certificates.
#![allow(clippy::disallowed_methods, reason = "tests are no part of the agent")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use api_client::{
    Access, Api, ApiClient, ApiError, Call, Change, Follower, News, Patch, Selection,
};
use apiserver::{StaticToken, User};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::api_server::{ApiOptions, TestApi};
use tokio::time::timeout;

const NODES: &str = "/api/v1/nodes";
const PATIENCE: Duration = Duration::from_secs(20);

fn client(kubeconfig: &Path) -> Result<ApiClient> {
    let dir = kubeconfig.parent().context("a directory")?;
    let access = Access::parse(&std::fs::read(kubeconfig)?, dir)?;
    Ok(ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?)
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn follower(client: &ApiClient) -> Follower {
    let selection = Selection { path: NODES.to_owned(), query: Vec::new() };
    Follower::new(Arc::new(client.clone()), selection, Arc::new(|_| Duration::ZERO))
}

async fn news(follower: &mut Follower) -> Result<News> {
    Ok(timeout(PATIENCE, follower.next()).await?)
}

#[tokio::test]
async fn objects_are_made_changed_watched_and_deleted() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let client = client(&server.admin_kubeconfig()?)?;
    let made = client.call(Call::post(NODES, node("n1"))).await?;
    let uid = made["metadata"]["uid"].as_str().context("a uid")?.to_owned();
    let again = client.call(Call::post(NODES, node("n1"))).await.expect_err("it is there");
    ensure!(again.is_conflict(), "{again:?}");

    let mut watch = client.watch("/api/v1/nodes?watch=true&resourceVersion=0").await?;
    let seen = timeout(PATIENCE, watch.next()).await?.context("an event")??;
    ensure!(seen.change == Change::Added && seen.object["metadata"]["uid"] == uid.as_str());
    let condition = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let path = "/api/v1/nodes/n1/status";
    let patched = client.call(Call::patch(path, Patch::Strategic, condition)).await?;
    ensure!(patched["status"]["conditions"][0]["type"] == "Ready", "{patched}");
    let seen = timeout(PATIENCE, watch.next()).await?.context("an event")??;
    ensure!(seen.change == Change::Modified && seen.object == patched, "{seen:?}");

    client.call(Call::delete("/api/v1/nodes/n1", json!({}))).await?;
    let gone = client.call(Call::get("/api/v1/nodes/n1")).await.expect_err("it is gone");
    ensure!(gone.is_not_found() && gone.to_string() == "nodes \"n1\" not found", "{gone:?}");
    Ok(())
}

#[tokio::test]
async fn a_follower_outlives_the_server_and_its_memory() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut server = TestApi::start(dir.path(), ApiOptions::default())?;
    let client = client(&server.admin_kubeconfig()?)?;
    client.call(Call::post(NODES, node("n1"))).await?;
    let mut follower = follower(&client);
    let News::All(all) = news(&mut follower).await? else { bail!("not all") };
    ensure!(all.len() == 1 && all[0]["metadata"]["name"] == "n1", "{all:?}");
    client.call(Call::post(NODES, node("n2"))).await?;
    let News::Put(second) = news(&mut follower).await? else { bail!("not put") };
    ensure!(second["metadata"]["name"] == "n2");

    server.pause()?;
    let News::Failing(error) = news(&mut follower).await? else { bail!("it is not there") };
    ensure!(matches!(error, ApiError::Unreachable { .. }), "{error:?}");
    server.resume()?;
    client.call(Call::post(NODES, node("n3"))).await?;
    let third = until_told(&mut follower).await?;
    ensure!(matches!(&third, News::Put(node) if node["metadata"]["name"] == "n3"), "{third:?}");

    // What lies too far back is listed anew.
    server.pause()?;
    let News::Failing(_) = news(&mut follower).await? else { bail!("it is not there") };
    server.resume()?;
    client.call(Call::delete("/api/v1/nodes/n1", json!({}))).await?;
    server.store().forget(u64::MAX);
    let News::All(all) = until_told(&mut follower).await? else { bail!("not all") };
    let names: Vec<&Value> = all.iter().map(|node| &node["metadata"]["name"]).collect();
    ensure!(names == ["n2", "n3"], "{names:?}");
    Ok(())
}

/// The first news that is no failure.
async fn until_told(follower: &mut Follower) -> Result<News> {
    loop {
        match news(follower).await? {
            News::Failing(_) => {}
            told => return Ok(told),
        }
    }
}

#[tokio::test]
async fn credentials_are_renewed_when_they_are_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let admin = User::new("admin", ["system:masters"]);
    let tokens = vec![StaticToken { token: "new".to_owned(), user: admin }];
    let server = TestApi::start(dir.path(), ApiOptions { tokens, ..ApiOptions::default() })?;
    std::fs::write(dir.path().join("ca.crt"), server.ca_pem())?;
    let kubeconfig = |user: Value| -> Result<_> {
        let config = json!({"current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster":
                {"server": server.url(), "certificate-authority": "ca.crt"}}],
            "users": [{"name": "u", "user": user}]});
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, config.to_string())?;
        client(&path)
    };
    let file = dir.path().join("token");
    std::fs::write(&file, "old")?;
    let by_file = kubeconfig(json!({"tokenFile": "token"}))?;
    let refused = by_file.call(Call::get(NODES)).await.expect_err("nobody knows it");
    ensure!(refused.code() == Some(401), "{refused:?}");
    std::fs::write(&file, "new\n")?;
    by_file.call(Call::get(NODES)).await?;

    // A program is asked once, and again when what it gave is refused.
    let script = "n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count; \
        printf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
        \"status\":{\"token\":\"%s\"}}' \"$(cat token)\"";
    let script = format!("cd {} && {script}", dir.path().display());
    let by_program = kubeconfig(json!({"exec": {"command": "sh", "args": ["-c", script],
        "apiVersion": "client.authentication.k8s.io/v1"}}))?;
    by_program.call(Call::get(NODES)).await?;
    by_program.call(Call::get(NODES)).await?;
    let asked = || std::fs::read_to_string(dir.path().join("count"));
    ensure!(asked()?.trim() == "1", "asked {} times", asked()?.trim());
    std::fs::write(&file, "old")?;
    by_program.reconnect().await;
    let refused = by_program.call(Call::get(NODES)).await.expect_err("nobody knows it");
    ensure!(refused.code() == Some(401) && asked()?.trim() == "3", "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_told_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let other = tempfile::tempdir()?;
    let stranger = TestApi::start(other.path(), ApiOptions::default())?;
    let text = std::fs::read_to_string(server.admin_kubeconfig()?)?;
    let mut access = Access::parse(text.as_bytes(), dir.path())?;
    access.server = stranger.url();
    let client = ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?;
    let error = client.call(Call::get(NODES)).await.expect_err("another authority");
    let ApiError::Unreachable { why, .. } = &error else { bail!("{error:?}") };
    ensure!(why.contains("certificate"), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_renewed_certificate_is_used_at_once_and_older_connections_end() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let given = Access::parse(&std::fs::read(server.admin_kubeconfig()?)?, dir.path())?;
    let (renewer, renewed) = api_client::renewed("there is none yet");
    let client = ApiClient::renewing(given, renewed, "klet-test", Arc::new(Timestamp::now))?;
    let error = client.call(Call::get(NODES)).await.expect_err("it has no certificate");
    ensure!(error == ApiError::Credentials("there is none yet".to_owned()), "{error:?}");
    let renew = |user: &str| -> Result<()> {
        let issued = server.authority().client(user, Some("system:masters"), Timestamp::now())?;
        let (certificate, key) = (issued.certificate.into_bytes(), issued.key.into_bytes());
        let identity = api_client::Identity { certificate, key };
        identity.check().map_err(anyhow::Error::msg)?;
        renewer.set(Ok(Arc::new(identity)));
        Ok(())
    };
    let who = async || -> Result<String> {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = client.call(Call::post(path, json!({}))).await?;
        Ok(answer["status"]["userInfo"]["username"].as_str().context("nobody")?.to_owned())
    };
    renew("first")?;
    assert_eq!(who().await?, "first");
    let mut watch = client.watch("/api/v1/nodes?watch=true").await?;
    renewer.set(Err("it expired".to_owned()));
    ensure!(client.call(Call::get(NODES)).await.is_err());
    ensure!(timeout(Duration::from_millis(100), watch.next()).await.is_err(), "it goes on");
    renew("second")?;
    assert_eq!(who().await?, "second");
    ensure!(timeout(PATIENCE, watch.next()).await?.is_none(), "it began as somebody else");
    Ok(())
}
