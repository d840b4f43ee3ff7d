//! Requests that nobody would send in good faith: every one gets an answer.

use std::sync::Arc;

use apiserver::resources::RESOURCES;
use apiserver::{Api, Peer, User};
use bytes::Bytes;
use hyper::Request;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::in_process::api;

/// One request.
#[derive(Debug, Clone)]
struct Sent {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Value,
}

fn path() -> impl Strategy<Value = String> {
    let resource = prop::sample::select(RESOURCES.iter().collect::<Vec<_>>());
    let namespace =
        prop::sample::select(vec!["", "namespaces/default/", "namespaces/x/", "namespaces//"]);
    let name = prop::sample::select(vec!["", "/a", "/default", "/%00", "/..", "/a b"]);
    let part = prop::sample::select(vec![
        "",
        "/status",
        "/binding",
        "/eviction",
        "/resize",
        "/ephemeralcontainers",
        "/token",
        "/approval",
        "/finalize",
        "/status/x",
    ]);
    let query = prop::sample::select(vec![
        "",
        "?limit=1",
        "?limit=-1",
        "?continue=abc",
        "?fieldSelector=a",
        "?labelSelector=a+in+(",
        "?dryRun=All",
        "?gracePeriodSeconds=-5",
        "?gracePeriodSeconds=99999999999",
        "?watch=1",
        "?resourceVersion=9&resourceVersionMatch=Exact",
        "?fieldValidation=Strict",
        "?%zz=%",
        "?timeoutSeconds=18446744073709551615&watch=true",
    ]);
    (resource, namespace, name, part, query).prop_map(|(resource, namespace, name, part, query)| {
        let root = match resource.group {
            "" => "api".to_owned(),
            group => format!("apis/{group}"),
        };
        let name = name.replace(' ', "%20");
        format!("/{root}/{}/{namespace}{}{name}{part}{query}", resource.version, resource.plural)
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![
            "", "a", "Pod", "v1", "delete", "default", "/spec", "x/y", "1Gi"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "metadata",
            "name",
            "labels",
            "finalizers",
            "spec",
            "status",
            "containers",
            "image",
            "conditions",
            "type",
            "data",
            "stringData",
            "$patch",
            "$setElementOrder/containers",
            "$retainKeys",
            "op",
            "path",
            "from",
            "value",
            "target",
            "nodeName",
            "request",
            "rules",
            "roleRef",
            "subjects",
            "limits",
            "resources",
            "preconditions",
            "uid",
            "generateName",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

fn request() -> impl Strategy<Value = Sent> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "FOO"]);
    let content_type = prop::sample::select(vec![
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
    ]);
    let body = prop_oneof![
        value(),
        value().prop_map(|value| json!({"metadata": {"name": "a"}, "spec": value})),
        Just(
            json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "x"}]}})
        ),
    ];
    (method, path(), content_type, body).prop_map(|(method, path, content_type, body)| Sent {
        method,
        path,
        content_type,
        body,
    })
}

async fn code(api: &Arc<Api>, sent: &Sent) -> u16 {
    let peer = Peer { user: Some(User::new("admin", ["system:masters"])) };
    let request = Request::builder()
        .method(sent.method)
        .uri(&sent.path)
        .header("content-type", sent.content_type)
        .body(())
        .unwrap();
    let body = Bytes::from(sent.body.to_string());
    api.handle(&request.into_parts().0, body, &peer).await.status().as_u16()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_request_gets_an_answer(requests in prop::collection::vec(request(), 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let api = api();
            for sent in &requests {
                let code = code(&api, sent).await;
                prop_assert!(code < 500 || code == 504, "{code} for {sent:?}");
            }
            Ok(())
        })?;
    }
}
