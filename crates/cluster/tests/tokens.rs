//! Tokens of service accounts, from an API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Access, Api, ApiClient, Call};
use cluster::tokens::{BoundPod, TokenAsk, Tokens};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use testkit::api_server::{ApiOptions, TestApi};

const PODS: &str = "/api/v1/namespaces/default/pods";

struct Case {
    _dir: tempfile::TempDir,
    server: TestApi,
    admin: ApiClient,
    tokens: Tokens,
    /// Seconds by which the node's clock is ahead.
    ahead: Arc<AtomicI64>,
    ask: TokenAsk,
}

async fn case() -> Result<Case> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let access = Access::parse(&std::fs::read(server.admin_kubeconfig()?)?, dir.path())?;
    let admin = ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
    server.add("default", account)?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "n1", "serviceAccountName": "app",
            "containers": [{"name": "a", "image": "i"}]}});
    let pod = admin.call(Call::post(PODS, pod)).await?;
    let uid = pod["metadata"]["uid"].as_str().context("a uid")?.to_owned();
    let ahead = Arc::new(AtomicI64::new(0));
    let clock = {
        let ahead = Arc::clone(&ahead);
        Arc::new(move || {
            Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::Relaxed))
        })
    };
    let api = Arc::new(admin.clone()) as Arc<dyn Api>;
    let tokens = Tokens::new(api, clock, Arc::new(|_| Duration::ZERO));
    let ask = TokenAsk {
        namespace: "default".to_owned(),
        account: "app".to_owned(),
        audiences: Vec::new(),
        expiration_seconds: Some(3600),
        pod: Some(BoundPod { name: "web".to_owned(), uid }),
        account_uid: String::new(),
    };
    Ok(Case { _dir: dir, server, admin, tokens, ahead, ask })
}

/// Who the API server takes the holder of a token for.
async fn holder(admin: &ApiClient, token: &str) -> Result<Value> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    Ok(admin.call(Call::post(path, review)).await?["status"].take())
}

#[tokio::test]
async fn a_token_is_good_kept_and_renewed() -> Result<()> {
    let Case { _dir, admin, tokens, ahead, ask, .. } = &case().await?;
    let first = tokens.get(ask).await?;
    let status = holder(admin, &first.secret).await?;
    ensure!(status["authenticated"] == true, "{status}");
    ensure!(status["user"]["username"] == "system:serviceaccount:default:app", "{status}");
    ensure!(tokens.get(ask).await? == first, "it was kept");
    let due = tokens.next_refresh(ask).context("a time")?;
    let in_seconds = due.duration_since(Timestamp::now()).as_secs();
    ensure!((2860..=2880).contains(&in_seconds), "due in {in_seconds} s");
    ahead.store(2900, Ordering::Relaxed);
    let second = tokens.get(ask).await?;
    ensure!(second.secret != first.secret, "it was renewed");
    let vault = TokenAsk { audiences: vec!["vault".to_owned()], ..ask.clone() };
    let vault = tokens.get(&vault).await?;
    ensure!(holder(admin, &vault.secret).await?["authenticated"] != true, "it is for others");
    Ok(())
}

#[tokio::test]
async fn an_old_token_serves_until_it_ends() -> Result<()> {
    let Case { _dir, server, tokens, ahead, ask, .. } = &mut case().await?;
    let first = tokens.get(ask).await?;
    server.pause()?;
    ahead.store(3555, Ordering::Relaxed);
    ensure!(tokens.get(ask).await? == first, "it serves on");
    ahead.store(3575, Ordering::Relaxed);
    ensure!(tokens.get(ask).await? == first, "and on");
    // Soon after, before what has expired is forgotten.
    ahead.store(3603, Ordering::Relaxed);
    let error = tokens.get(ask).await.expect_err("it has ended").to_string();
    ensure!(error.contains("refresh failed: cannot reach the API server"), "{error}");
    ensure!(error.starts_with("token \"app\"/\"default\"/"), "{error}");
    server.resume()?;
    ensure!(tokens.get(ask).await?.secret != first.secret, "there is another");
    Ok(())
}

#[tokio::test]
async fn there_is_no_token_for_what_is_gone() -> Result<()> {
    let Case { _dir, admin, tokens, ask, .. } = &case().await?;
    tokens.get(ask).await?;
    admin.call(Call::delete(&format!("{PODS}/web"), json!({"gracePeriodSeconds": 0}))).await?;
    tokens.forget(ask);
    ensure!(tokens.next_refresh(ask).is_none());
    let error = tokens.get(ask).await.expect_err("its pod is gone").to_string();
    ensure!(error == "failed to fetch token: pods \"web\" not found", "{error}");
    let nobody = TokenAsk { account: "nobody".to_owned(), pod: None, ..ask.clone() };
    let error = tokens.get(&nobody).await.expect_err("nobody is there").to_string();
    ensure!(error == "failed to fetch token: serviceaccounts \"nobody\" not found", "{error}");
    Ok(())
}
