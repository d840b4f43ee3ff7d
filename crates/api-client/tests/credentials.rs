//! Certificates that change while a client uses them: in files, and from a program.
#![allow(clippy::disallowed_methods, reason = "tests are no part of the agent")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Access, Api, ApiClient, Call};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::api_server::{ApiOptions, TestApi};
use tokio::time::timeout;

/// Files are looked at every ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);
const VERSION: &str = "client.authentication.k8s.io/v1";

/// A server, and a client of it whose clock the test can set ahead.
struct World {
    dir: TempDir,
    server: TestApi,
    ahead_secs: Arc<AtomicI64>,
}

impl World {
    fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let server = TestApi::start(dir.path(), ApiOptions::default())?;
        std::fs::write(dir.path().join("ca.crt"), server.ca_pem())?;
        Ok(Self { dir, server, ahead_secs: Arc::default() })
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn client(&self, user: Value) -> Result<ApiClient> {
        let config = json!({"current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster":
                {"server": self.server.url(), "certificate-authority": "ca.crt"}}],
            "users": [{"name": "u", "user": user}]});
        let access = Access::parse(config.to_string().as_bytes(), self.dir.path())?;
        let ahead = Arc::clone(&self.ahead_secs);
        let clock = move || {
            let ahead = SignedDuration::from_secs(ahead.load(Ordering::SeqCst));
            Timestamp::now().saturating_add(ahead).expect("no overflow")
        };
        Ok(ApiClient::new(access, "klet-test", Arc::new(clock))?)
    }

    fn issue(&self, user: &str) -> Result<(String, String)> {
        let masters = Some("system:masters");
        let issued = self.server.authority().client(user, masters, Timestamp::now())?;
        Ok((issued.certificate, issued.key))
    }
}

fn put(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(&new, path)?)
}

async fn who(client: &ApiClient) -> Result<String> {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = client.call(Call::post(path, json!({}))).await?;
    Ok(answer["status"]["userInfo"]["username"].as_str().context("nobody")?.to_owned())
}

#[tokio::test]
async fn files_that_are_exchanged_are_used_and_older_connections_end() -> Result<()> {
    let world = World::start()?;
    let (certificate, key) = (world.file("own.crt"), world.file("own.key"));
    let first = world.issue("first")?;
    put(&certificate, &first.0)?;
    put(&key, &first.1)?;
    let files = json!({"client-certificate": certificate, "client-key": key});
    let client = world.client(files)?;
    assert_eq!(who(&client).await?, "first");
    let mut watch = client.watch("/api/v1/nodes?watch=true").await?;

    // One file comes after the other, and nobody asks anything: half a pair is no reason
    // to leave, nor to fail.
    let second = world.issue("second")?;
    put(&certificate, &second.0)?;
    ensure!(timeout(Duration::from_secs(12), watch.next()).await.is_err(), "it goes on");
    assert_eq!(who(&client).await?, "first");
    put(&key, &second.1)?;
    ensure!(timeout(PATIENCE, watch.next()).await?.is_none(), "it began as somebody else");
    assert_eq!(who(&client).await?, "second");

    // The same pair written once more is no news.
    let mut watch = client.watch("/api/v1/nodes?watch=true").await?;
    put(&certificate, &second.0)?;
    put(&key, &second.1)?;
    ensure!(timeout(Duration::from_secs(12), watch.next()).await.is_err(), "it is the same");
    Ok(())
}

#[tokio::test]
async fn a_program_gives_certificates_until_they_expire() -> Result<()> {
    let world = World::start()?;
    let answer = |user: &str, until: &str| -> Result<()> {
        let (certificate, key) = world.issue(user)?;
        let answer = json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": {
            "clientCertificateData": certificate, "clientKeyData": key,
            "expirationTimestamp": until}});
        put(&world.file("answer"), &answer.to_string())
    };
    let hour = Timestamp::now() + SignedDuration::from_hours(1);
    answer("first", &hour.to_string())?;
    let script = format!("cd {} && echo >>asked && cat answer", world.dir.path().display());
    let exec = json!({"command": "sh", "args": ["-c", script], "apiVersion": VERSION});
    let client = world.client(json!({"exec": exec}))?;
    let asked = || Ok::<_, std::io::Error>(std::fs::read(world.file("asked"))?.len());
    assert_eq!(who(&client).await?, "first");
    let mut watch = client.watch("/api/v1/nodes?watch=true").await?;
    answer("second", "2099-01-01T00:00:00Z")?;
    assert_eq!((who(&client).await?.as_str(), asked()?), ("first", 1), "it is good for an hour");

    world.ahead_secs.store(3601, Ordering::SeqCst);
    assert_eq!((who(&client).await?.as_str(), asked()?), ("second", 2));
    ensure!(timeout(PATIENCE, watch.next()).await?.is_none(), "it began as somebody else");
    assert_eq!((who(&client).await?.as_str(), asked()?), ("second", 2));
    Ok(())
}
