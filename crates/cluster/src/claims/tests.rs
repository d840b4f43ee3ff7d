//! Marks against a small API server.

use std::sync::Arc;

use api_client::{Api, Call, Patch};
use apiserver::direct::Direct;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Claims, Mark};

const PLACE: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("a time")
}

async fn stored(api: &Direct, status: Value) -> Value {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    api.call(Call::post(PLACE, claim)).await.expect("a claim");
    let at = format!("{PLACE}/data/status");
    api.call(Call::patch(&at, Patch::Merge, json!({"status": status}))).await.expect("a status")
}

fn api() -> Direct {
    Direct::alone(Arc::new(now), 100).expect("an API")
}

fn grows(state: &str) -> Value {
    json!({"phase": "Bound", "capacity": {"storage": "1Gi"},
        "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": state, "example.com/iops": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"},
            {"type": "ModifyingVolume", "status": "True"}]})
}

#[tokio::test]
async fn a_growth_is_marked_from_its_beginning_to_its_end() {
    let api = api();
    let claims = Claims::new(Arc::new(api.clone()));
    let claim = stored(&api, grows("NodeResizePending")).await;
    let begun = claims.mark(&claim, &Mark::Begun, now()).await.expect("it is marked");
    let states = &begun["status"]["allocatedResourceStatuses"];
    assert_eq!(states["storage"], "NodeResizeInProgress");
    assert_eq!(states["example.com/iops"], "NodeResizePending", "it is another's");
    assert_eq!(begun["status"]["capacity"]["storage"], "1Gi");
    let again = claims.mark(&begun, &Mark::Begun, now()).await.expect("it is marked");
    assert_eq!(again, begun, "nothing is written twice");

    let done = Mark::Done("2Gi".to_owned());
    let stale = claims.mark(&claim, &done, now()).await.expect_err("it has changed").to_string();
    assert!(stale.starts_with("patchPVCStatus failed to patch PVC \"data\": "), "{stale}");
    let end = claims.mark(&begun, &done, now()).await.expect("it is marked");
    assert_eq!(end["status"]["capacity"]["storage"], "2Gi");
    let states = json!({"example.com/iops": "NodeResizePending"});
    assert_eq!(end["status"]["allocatedResourceStatuses"], states);
    let conditions = end["status"]["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0]["type"], "ModifyingVolume");
    assert_eq!(claims.get("default", "data").await.expect("a claim"), end);
}

#[tokio::test]
async fn failures_are_told_once_and_whatever_else_has_changed() {
    let api = api();
    let claims = Claims::new(Arc::new(api.clone()));
    let old = stored(&api, grows("NodeResizePending")).await;
    let claim = claims.mark(&old, &Mark::Begun, now()).await.expect("it is marked");
    let failed = Mark::Failed("no room".to_owned());
    let told = claims.mark(&old, &failed, now()).await.expect("it is marked");
    let error = |claim: &Value| {
        let all = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|told| told["type"] == "NodeResizeError")
    };
    let expected = json!({"type": "NodeResizeError", "status": "True",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
        "message": "failed to expand pvc with no room"});
    assert_eq!(error(&told), Some(expected.clone()));
    assert_eq!(told["status"]["conditions"].as_array().map(Vec::len), Some(3));
    assert_ne!(told["metadata"]["resourceVersion"], claim["metadata"]["resourceVersion"]);
    let never = Mark::Infeasible("another reason".to_owned());
    let told = claims.mark(&told, &never, now()).await.expect("it is marked");
    assert_eq!(error(&told), Some(expected), "the first stays");
    let states = &told["status"]["allocatedResourceStatuses"];
    assert_eq!(states["storage"], "NodeResizeInfeasible");
}
