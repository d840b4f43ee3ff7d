//! Watches.

use apiserver::Settings;
use serde_json::{Value, json};

use crate::client::{MAPS, map, server};

#[tokio::test]
async fn changes_are_told_in_order() {
    let (server, mut client) = server(Settings::default()).await;
    client.post(MAPS, map("a", json!({}))).await;
    let mut events = client.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(events.word().await, "ADDED a");
    assert_eq!(events.word().await, "ADDED kube-root-ca.crt");
    let (_, b) = client.post(MAPS, map("b", json!({}))).await;
    client.patch(&format!("{MAPS}/b"), "merge", json!({"data": {"k": "v"}})).await;
    client.delete(&format!("{MAPS}/b"), Value::Null).await;
    assert_eq!(events.word().await, "ADDED b");
    assert_eq!(events.word().await, "MODIFIED b");
    let deleted = events.next().await.unwrap();
    assert_eq!(
        (&deleted["type"], &deleted["object"]["data"]["k"]),
        (&json!("DELETED"), &json!("v"))
    );
    let revision = b["metadata"]["resourceVersion"].as_str().unwrap();
    let mut again = client.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    assert_eq!(again.word().await, "MODIFIED b");
    assert_eq!(again.word().await, "DELETED b");
    server.stop().await;
    assert_eq!(again.word().await, "end");
}

#[tokio::test]
async fn a_selector_makes_objects_come_and_go() {
    let (_server, mut client) = server(Settings::default()).await;
    client.post(MAPS, map("a", json!({"on": "yes"}))).await;
    let mut events = client.watch(&format!("{MAPS}?watch=1&labelSelector=on")).await;
    assert_eq!(events.word().await, "ADDED a");
    let on = |value: Value| json!({"metadata": {"labels": {"on": value}}});
    client.patch(&format!("{MAPS}/a"), "merge", on(Value::Null)).await;
    client.patch(&format!("{MAPS}/a"), "merge", json!({"data": {"k": "v"}})).await;
    client.patch(&format!("{MAPS}/a"), "merge", on("no".into())).await;
    client.patch(&format!("{MAPS}/a"), "merge", on("yes".into())).await;
    client.delete(&format!("{MAPS}/a"), Value::Null).await;
    let gone = events.next().await.unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["metadata"]["labels"]),
        (&json!("DELETED"), &json!({"on": "yes"}))
    );
    for expected in ["ADDED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(events.word().await, expected);
    }
}

#[tokio::test]
async fn the_forgotten_past_is_refused() {
    let (server, mut client) = server(Settings::default()).await;
    client.post(MAPS, map("a", json!({}))).await;
    server.store().forget(u64::MAX);
    let mut events = client.watch(&format!("{MAPS}?watch=1&resourceVersion=3")).await;
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let message = error["object"]["message"].as_str().unwrap();
    assert!(message.starts_with("too old resource version: 3 ("), "{message}");
    assert_eq!(events.word().await, "end");
    let (code, ahead) = client.get(&format!("{MAPS}?resourceVersion=90000")).await;
    assert_eq!((code, ahead["reason"].as_str()), (504, Some("Timeout")));
}

#[tokio::test]
async fn what_is_there_ends_with_a_bookmark_and_so_does_the_watch() {
    let (server, mut client) = server(Settings::default()).await;
    client.post(MAPS, map("a", json!({}))).await;
    let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                 &resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let mut events = client.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(events.word().await, "ADDED a");
    assert_eq!(events.word().await, "ADDED kube-root-ca.crt");
    let mark = events.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    let annotations = &mark["object"]["metadata"]["annotations"];
    assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    client.post("/api/v1/nodes", node).await;
    let last = events.next().await.unwrap();
    assert_eq!(last["type"], "BOOKMARK");
    let revision = server.store().revision().to_string();
    assert_eq!(last["object"]["metadata"]["resourceVersion"], revision);
    assert_eq!(events.word().await, "end");
    let (code, _) = client.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await;
    assert_eq!(code, 400);
}
