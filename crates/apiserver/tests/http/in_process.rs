//! The API without a socket, under a clock that a test owns.

use std::sync::Arc;
use std::time::Duration;

use apiserver::auth::{Authenticator, Authorizer, TokenIssuer};
use apiserver::http_api::{ApiParts, system_randomness};
use apiserver::{Api, Peer, Store, User};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

/// An API whose clock stands still.
pub fn api() -> Arc<Api> {
    let store = Arc::new(Store::new(100));
    let issuer = TokenIssuer::generate("https://here").unwrap();
    let api = Api::new(ApiParts {
        authenticator: Authenticator::new(issuer, Vec::new(), Arc::clone(&store)),
        authorizer: Authorizer::new(Arc::clone(&store)),
        store,
        clock: Arc::new(|| Timestamp::from_second(1000).unwrap()),
        ca_pem: String::new(),
        mounts_tokens: false,
        random: system_randomness(),
    });
    api.bootstrap().unwrap();
    Arc::new(api)
}

async fn send(
    api: &Arc<Api>,
    method: &str,
    path: &str,
    body: Value,
) -> apiserver::http_api::Response {
    let peer = Peer { user: Some(User::new("admin", ["system:masters"])) };
    let (head, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
    api.handle(&head, Bytes::from(body.to_string()), &peer).await
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_tells_its_revision_every_minute() {
    let api = api();
    let path = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=150";
    let mut body = send(&api, "GET", path, json!({})).await.into_body();
    let start = Instant::now();
    let mut heard = Vec::new();
    let map = json!({"metadata": {"name": "a0"}});
    send(&api, "POST", "/api/v1/namespaces/default/configmaps", map).await;
    while let Some(frame) = body.frame().await {
        let line: Value = serde_json::from_slice(frame.unwrap().data_ref().unwrap()).unwrap();
        let revision = line["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        heard.push((start.elapsed().as_secs(), line["type"].clone(), revision));
        let map = json!({"metadata": {"name": format!("a{}", heard.len())}});
        let made = send(&api, "POST", "/api/v1/namespaces/default/configmaps", map).await;
        assert_eq!(made.status(), 201);
    }
    let first = api.store().revision() - 3;
    let expected: Vec<(u64, Value, String)> = [(60, first), (120, first + 1), (150, first + 2)]
        .map(|(second, revision)| (second, json!("BOOKMARK"), revision.to_string()))
        .to_vec();
    assert_eq!(heard, expected);
    assert_eq!(start.elapsed(), Duration::from_secs(150));
}

/// A client that knows more than the server, as after a restored backup, is told nothing:
/// upstream's watch cache waits for what the client knows.
#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_is_silent_until_then() {
    let api = api();
    let maps = "/api/v1/namespaces/default/configmaps";
    let future = api.store().revision() + 2;
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=150";
    let path = format!("{maps}?{query}&resourceVersion={future}");
    for (made, heard) in [(0, 0), (2, 0), (3, 1)] {
        let mut body = send(&api, "GET", &path, json!({})).await.into_body();
        let missing = future + made - 2 - api.store().revision();
        for number in 0..missing {
            let map = json!({"metadata": {"name": format!("m{made}{number}")}});
            assert_eq!(send(&api, "POST", maps, map).await.status(), 201);
        }
        let mut changes = 0;
        while let Some(frame) = body.frame().await {
            let line: Value = serde_json::from_slice(frame.unwrap().data_ref().unwrap()).unwrap();
            changes += usize::from(line["type"] == "ADDED");
            assert!(heard > 0, "{line}");
        }
        assert_eq!(changes, heard, "{made} made");
    }
    let now = api.store().revision();
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{maps}?{query}&{initial}&resourceVersion={}", now + 1);
    let mut body = send(&api, "GET", &path, json!({})).await.into_body();
    let line = body.frame().await.unwrap().unwrap();
    let line: Value = serde_json::from_slice(line.data_ref().unwrap()).unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(504)));
}

#[tokio::test]
async fn objects_carry_the_time_of_the_clock() {
    let api = api();
    let node = json!({"metadata": {"name": "n1"}});
    let made = send(&api, "POST", "/api/v1/nodes", node).await;
    let bytes = made.into_body().collect().await.unwrap().to_bytes();
    let made: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(made["metadata"]["creationTimestamp"], "1970-01-01T00:16:40Z");
}
