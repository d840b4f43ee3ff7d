//! Events written to an API server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Access, Api, ApiClient, Call};
use cluster::events::{self, Counts, EventReport, EventSink, EventWriter, Involved, Settings};
use jiff::Timestamp;
use kubelet_model::EventType;
use serde_json::{Value, json};
use testkit::api_server::{ApiOptions, TestApi};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);
const EVENTS: &str = "/api/v1/namespaces/default/events";

struct Case {
    _dir: tempfile::TempDir,
    server: TestApi,
    admin: ApiClient,
    sink: EventSink,
}

fn case() -> Result<(Case, EventWriter)> {
    let dir = tempfile::tempdir()?;
    let server = TestApi::start(dir.path(), ApiOptions::default())?;
    let access = Access::parse(&std::fs::read(server.admin_kubeconfig()?)?, dir.path())?;
    let admin = ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?;
    let settings = Settings { node_name: "n1".to_owned(), qps: 50, burst: 100 };
    let soon = Arc::new(|_| Duration::from_millis(300));
    let (sink, writer) = events::new(Arc::new(admin.clone()) as Arc<dyn Api>, settings, soon);
    Ok((Case { _dir: dir, server, admin, sink }, writer))
}

async fn all(admin: &ApiClient) -> Result<Vec<Value>> {
    let mut list = admin.call(Call::get(EVENTS)).await?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

impl Case {
    async fn until(&self, expected: Counts) -> Result<()> {
        let reached = timeout(PATIENCE, async {
            while self.sink.counts() != expected {
                sleep(Duration::from_millis(20)).await;
            }
        });
        reached.await.with_context(|| format!("{:?}", self.sink.counts()))
    }
}

fn counts(written: u64, failed: u64) -> Counts {
    Counts { written, dropped: 0, failed }
}

fn event(key: u64, namespace: &str, message: &str, count: u32) -> EventReport {
    let kind = if namespace.is_empty() { "Node" } else { "Pod" };
    let first = Timestamp::from_second(1_700_000_000).unwrap_or_default();
    let object = Involved {
        kind: kind.to_owned(),
        api_version: "v1".to_owned(),
        namespace: namespace.to_owned(),
        name: "n1".to_owned(),
        ..Involved::default()
    };
    EventReport {
        key,
        object,
        kind: EventType::Warning,
        reason: "BackOff".to_owned(),
        message: message.to_owned(),
        count,
        first,
        last: first + Duration::from_secs(u64::from(count)),
        annotations: Vec::new(),
    }
}

#[tokio::test]
async fn events_are_created_counted_and_created_again() -> Result<()> {
    let (case, writer) = case()?;
    let test = async {
        case.sink.push(event(1, "default", "Back-off", 1));
        case.sink.push(event(2, "", "Starting kubelet.", 1));
        case.until(counts(2, 0)).await?;
        let of_kind = |all: &[Value], kind: &str| {
            let found = all.iter().find(|event| event["involvedObject"]["kind"] == kind);
            found.cloned().with_context(|| format!("no event about a {kind}"))
        };
        let found = all(&case.admin).await?;
        let (pod, node) = (of_kind(&found, "Pod")?, of_kind(&found, "Node")?);
        ensure!(pod["count"] == 1 && pod["message"] == "Back-off", "{pod}");
        ensure!(pod["source"] == json!({"component": "kubelet", "host": "n1"}), "{pod}");
        ensure!(pod["reportingComponent"] == "kubelet" && pod["type"] == "Warning", "{pod}");
        ensure!(node["metadata"]["namespace"] == "default", "{node}");

        case.sink.push(event(1, "default", "Back-off", 2));
        case.sink.push(event(1, "default", "(combined from similar events): x", 3));
        case.until(counts(4, 0)).await?;
        let found = all(&case.admin).await?;
        ensure!(found.len() == 2, "{found:?}");
        let counted = of_kind(&found, "Pod")?;
        ensure!(counted["metadata"]["uid"] == pod["metadata"]["uid"], "the same event");
        ensure!(counted["count"] == 3 && counted["firstTimestamp"] == "2023-11-14T22:13:20Z");
        ensure!(counted["lastTimestamp"] == "2023-11-14T22:13:23Z", "{counted}");
        ensure!(counted["message"] == "(combined from similar events): x", "{counted}");

        let name = counted["metadata"]["name"].as_str().context("a name")?;
        case.admin.call(Call::delete(&format!("{EVENTS}/{name}"), json!({}))).await?;
        case.sink.push(event(1, "default", "Back-off", 4));
        case.until(counts(5, 0)).await?;
        let again = of_kind(&all(&case.admin).await?, "Pod")?;
        ensure!(again["count"] == 4 && again["metadata"]["name"] == name, "{again}");
        ensure!(again["metadata"]["uid"] != pod["metadata"]["uid"], "another event");

        // A namespace that is not there: refused once, and the next is written.
        case.sink.push(event(3, "nowhere", "x", 1));
        case.sink.push(event(4, "default", "y", 1));
        case.until(counts(6, 1)).await
    };
    tokio::select! {
        () = writer.run() => anyhow::bail!("it ended by itself"),
        tested = test => tested,
    }
}

#[tokio::test]
async fn events_wait_for_the_server_and_are_all_written_before_the_end() -> Result<()> {
    let (Case { _dir, mut server, admin, sink }, writer) = case()?;
    server.pause()?;
    for count in 1..=3 {
        sink.push(event(1, "default", "Back-off", count));
    }
    let left = sink.clone();
    let back = async {
        sleep(Duration::from_millis(100)).await;
        server.resume()?;
        // The writer ends once there are no more sinks, and nothing waits.
        drop(sink);
        while left.counts() != counts(3, 0) {
            sleep(Duration::from_millis(20)).await;
        }
        drop(left);
        Ok(())
    };
    let ((), resumed): ((), Result<()>) =
        timeout(PATIENCE, async { tokio::join!(writer.run(), back) }).await?;
    resumed?;
    let found = all(&admin).await?;
    ensure!(found.len() == 1 && found[0]["count"] == 3, "{found:?}");
    Ok(())
}
