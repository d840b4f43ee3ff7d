//! Objects: create, read, list, change, delete.

use apiserver::Settings;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Client, MAPS, PODS, map, pod, server};

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_object_lives_and_dies() {
    let (server, mut client) = server(Settings::default()).await;
    let (code, made) = client.post(MAPS, map("a", json!({"x": "1"}))).await;
    assert_eq!(code, 201, "{made}");
    let (code, again) = client.post(MAPS, map("a", json!({}))).await;
    assert_eq!((code, again["reason"].as_str()), (409, Some("AlreadyExists")));
    assert_eq!(again["message"], r#"configmaps "a" already exists"#);
    assert_eq!(client.get(&format!("{MAPS}/a")).await, (200, made.clone()));
    let mut changed = made.clone();
    changed["data"] = json!({"k": "v"});
    let (code, stored) = client.put(&format!("{MAPS}/a"), changed.clone()).await;
    assert_eq!((code, stored["data"]["k"].as_str()), (200, Some("v")));
    changed["data"] = json!({"k": "w"});
    let (code, stale) = client.put(&format!("{MAPS}/a"), changed).await;
    assert_eq!((code, stale["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(client.put(&format!("{MAPS}/a"), stored.clone()).await, (200, stored));
    let wrong = json!({"preconditions": {"uid": "other"}});
    assert_eq!(client.delete(&format!("{MAPS}/a"), wrong).await.0, 409);
    let (code, status) = client.delete(&format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, status["status"].as_str()), (200, Some("Success")));
    let (code, gone) = client.get(&format!("{MAPS}/a")).await;
    assert_eq!((code, gone["details"]["name"].as_str()), (404, Some("a")));
    server.stop().await;
}

#[tokio::test]
async fn lists_are_chosen_from_and_read_in_pages_of_one_moment() {
    let (server, mut client) = server(Settings::default()).await;
    for (name, tier) in [("a", "1"), ("b", "2"), ("c", "1")] {
        client.post(MAPS, map(name, json!({"tier": tier}))).await;
    }
    let (_, one) = client.get(&format!("{MAPS}?labelSelector=tier%3D1")).await;
    assert_eq!(names(&one), ["a", "c"]);
    let (_, two) = client.get(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await;
    assert_eq!(names(&two), ["b"]);
    assert_eq!(client.get(&format!("{MAPS}?fieldSelector=data.x%3Db")).await.0, 400);
    let (_, page) = client.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(
        (names(&page), page["metadata"]["remainingItemCount"].as_i64()),
        (vec!["a", "b"], Some(2))
    );
    client.delete(&format!("{MAPS}/c"), Value::Null).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = client.get(&format!("{MAPS}?limit=5&continue={token}")).await;
    assert_eq!(names(&rest), ["c", "kube-root-ca.crt"]);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    server.store().forget(u64::MAX);
    let (code, gone) = client.get(&format!("{MAPS}?limit=5&continue={token}")).await;
    assert_eq!((code, gone["reason"].as_str()), (410, Some("Expired")));
    let (code, ahead) = client.get(&format!("{MAPS}?resourceVersion=100000")).await;
    assert_eq!((code, ahead["reason"].as_str()), (504, Some("Timeout")));
}

#[tokio::test]
async fn patches_and_the_status_of_a_pod() {
    let (_server, mut client) = server(Settings::default()).await;
    assert_eq!(client.post(PODS, pod("web", "n1")).await.0, 201);
    let web = format!("{PODS}/web");
    let condition = |word: &str| json!({"type": word, "status": "True"});
    let status = |value: Value| json!({"status": value, "spec": {"nodeName": "n2"}});
    let (code, patched) = client
        .patch(
            &format!("{web}/status"),
            "strategic-merge",
            status(json!({"conditions": [condition("A")]})),
        )
        .await;
    assert_eq!((code, patched["spec"]["nodeName"].as_str()), (200, Some("n1")));
    let more = status(json!({"conditions": [condition("B")], "phase": "Running"}));
    let (_, patched) = client.patch(&format!("{web}/status"), "strategic-merge", more).await;
    assert_eq!(patched["status"]["conditions"].as_array().unwrap().len(), 2);
    let (_, merged) = client
        .patch(
            &web,
            "merge",
            json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}}),
        )
        .await;
    assert_eq!(merged["status"]["phase"], "Running");
    assert_eq!(merged["metadata"]["labels"]["a"], "b");
    let (code, _) =
        client.patch(&web, "json", json!([{"op": "remove", "path": "/metadata/labels/a"}])).await;
    assert_eq!(code, 200);
    let (code, refused) = client.patch(&web, "merge", json!({"spec": {"nodeName": "n2"}})).await;
    assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")));
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"c": "d"}}});
    assert_eq!(client.patch(&web, "merge", stale).await.0, 409);
    assert_eq!(client.patch(&web, "apply", json!({})).await.0, 415);
    let path = format!("{web}?fieldValidation=Strict");
    let (code, strict) = client.patch(&path, "merge", json!({"spec": {"nodeNam": "x"}})).await;
    assert_eq!(code, 400);
    assert!(strict["message"].as_str().unwrap().contains(r#"unknown field "spec.nodeNam""#));
}

#[tokio::test]
async fn a_pod_on_a_node_ends_in_two_steps() {
    let (_server, mut client) = server(Settings::default()).await;
    client.post(PODS, pod("web", "n1")).await;
    let web = format!("{PODS}/web");
    let (code, marked) = client.delete(&web, json!({"gracePeriodSeconds": 7})).await;
    assert_eq!((code, marked["metadata"]["deletionGracePeriodSeconds"].as_i64()), (200, Some(7)));
    assert_eq!(client.get(&web).await.0, 200);
    let uid = marked["metadata"]["uid"].clone();
    let confirm = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(client.delete(&web, confirm).await.0, 200);
    assert_eq!(client.get(&web).await.0, 404);
    client.post(PODS, pod("evicted", "n1")).await;
    let (code, _) = client.post(&format!("{PODS}/evicted/eviction"), json!({})).await;
    assert_eq!(code, 201);
    let (_, evicted) = client.get(&format!("{PODS}/evicted")).await;
    assert_eq!(evicted["metadata"]["deletionGracePeriodSeconds"], 30);
}

#[tokio::test]
async fn namespaces_hold_and_leases_come_to_be() {
    let (_server, mut client) = server(Settings::default()).await;
    let missing = "/api/v1/namespaces/missing/configmaps";
    assert_eq!(client.post(missing, map("a", json!({}))).await.0, 404);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    assert_eq!(client.post("/api/v1/namespaces", namespace).await.0, 201);
    assert_eq!(client.post("/api/v1/namespaces/x/pods", pod("web", "n1")).await.0, 201);
    let (_, ending) = client.delete("/api/v1/namespaces/x", Value::Null).await;
    assert_eq!(ending["status"]["phase"], "Terminating");
    assert_eq!(client.post("/api/v1/namespaces/x/configmaps", map("a", json!({}))).await.0, 403);
    assert_eq!(client.get("/api/v1/namespaces/x/serviceaccounts/default").await.0, 404);
    client.delete("/api/v1/namespaces/x/pods/web", json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(client.get("/api/v1/namespaces/x").await.0, 404);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
    assert_eq!(client.put(&format!("{leases}/n1"), lease.clone()).await.0, 422);
    let (code, made) = client.post(leases, lease).await;
    assert_eq!((code, made["kind"].as_str()), (201, Some("Lease")));
}

#[tokio::test]
async fn http_1_limits_and_other_forms() {
    let (server, _) = server(Settings::default()).await;
    let now = server.api().now();
    let admin = server.authority().client("admin", Some("system:masters"), now).unwrap();
    let mut client = Client::connect(&server, Some(&admin), false).await;
    let mut large = map("large", json!({}));
    large["data"] = json!({"x": "y".repeat(3 << 20)});
    assert_eq!(client.post(MAPS, large).await.0, 413);
    let mut client = Client::connect(&server, Some(&admin), false).await;
    let response = client.send(Method::POST, MAPS, "application/yaml", "a: b").await;
    assert_eq!(response.status(), 415);
    let mut client = Client::connect(&server, Some(&admin), false).await;
    let (_, version) = client.get("/version").await;
    assert_eq!(version["minor"], "36");
    assert_eq!(client.get("/apis/nope/v1").await.0, 404);
}
