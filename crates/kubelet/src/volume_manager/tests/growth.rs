//! Volumes of a cluster that grow, with a small API server and a driver that plays.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Call, Patch};
use kubelet_model::EventObject;
use plugin_apis::csi::NodeCapability;
use serde_json::{Value, json};
use tonic::Code;

use super::super::csi::driver_key;
use super::attach::{Joined, claim_key, claimant, ready, volume_key};
use super::claims::told;
use super::csi::Scripted;
use super::until;

const CLAIMS: &str = "/api/v1/namespaces/ns/persistentvolumeclaims";

/// A node that has joined, whose claim is stored at an API server.
struct Growing {
    node: Joined,
    driver: Arc<Scripted>,
}

impl Growing {
    async fn new(root: &Path) -> Self {
        let can = [NodeCapability::StageUnstageVolume, NodeCapability::ExpandVolume];
        let driver = Arc::new(Scripted::with(BTreeSet::from(can)));
        let node = Joined::new(root, Arc::clone(&driver));
        let this = Self { node, driver };
        this.ask(Call::post("/api/v1/namespaces", json!({"metadata": {"name": "ns"}}))).await;
        let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeName": "pv",
            "resources": {"requests": {"storage": "2Ki"}}});
        this.ask(Call::post(CLAIMS, json!({"metadata": {"name": "c"}, "spec": spec}))).await;
        let object = json!({"spec": {"attachRequired": false}});
        this.node.answer(&driver_key("d.example"), Some(object));
        this
    }

    async fn ask(&self, call: Call) -> Value {
        let api = self.node.ports.api.clone().expect("an API server");
        api.call(call).await.expect("an answer")
    }

    async fn claim(&self) -> Value {
        self.ask(Call::get(&format!("{CLAIMS}/c"))).await
    }

    /// The controllers say this of the claim, and the node hears of it and of the volume.
    async fn says(&self, status: Value, volume: &str) {
        let at = format!("{CLAIMS}/c/status");
        let mut status = status;
        status["phase"] = "Bound".into();
        self.ask(Call::patch(&at, Patch::Merge, json!({"status": status}))).await;
        self.hear(volume).await;
    }

    async fn hear(&self, volume: &str) {
        let claim = self.claim().await;
        let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": volume},
            "claimRef": {"namespace": "ns", "name": "c", "uid": claim["metadata"]["uid"]},
            "csi": {"driver": "d.example", "volumeHandle": "h"}}});
        self.node.answer(&volume_key(), Some(volume));
        self.node.answer(&claim_key(), Some(claim));
    }

    /// Sizes that the driver was asked for.
    fn asked(&self) -> Vec<String> {
        let calls = self.driver.calls().into_iter();
        let size =
            |call: String| Some(call.strip_prefix("expand ")?.rsplit(' ').next()?.to_owned());
        calls.filter_map(size).collect()
    }

    fn events(&self) -> Vec<(&'static str, &'static str, String)> {
        let all = self.node.recorder.all().into_iter();
        let kind = |object: &EventObject| match object {
            EventObject::Pod { .. } => "pod",
            EventObject::Claim { .. } => "claim",
            EventObject::Node(_) => "node",
            EventObject::PersistentVolume { .. } => "volume",
        };
        all.map(|event| (kind(&event.object), event.reason, event.message)).collect()
    }
}

/// It is the node's turn to have a volume of 1Ki fill 2Ki.
fn pending() -> Value {
    json!({"capacity": {"storage": "1Ki"}, "allocatedResources": {"storage": "2Ki"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}]})
}

async fn until_true(what: &str, mut is: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come to be");
}

#[tokio::test]
async fn a_volume_that_is_in_use_grows_and_its_claim_says_so() {
    let temp = tempfile::tempdir().expect("a directory");
    let growing = Growing::new(temp.path()).await;
    let one = claimant();
    growing.says(json!({"capacity": {"storage": "1Ki"}}), "1Ki").await;
    let volumes = growing.node.volumes(&one);
    volumes.want(&one);
    until(&volumes, one.uid(), ready).await;
    assert_eq!(growing.driver.calls(), ["stage", "publish"], "nothing grew");

    // Its controller is not done: the node waits for its turn.
    let mut early = pending();
    early["allocatedResourceStatuses"]["storage"] = "ControllerResizeInProgress".into();
    growing.says(early, "2Ki").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(growing.asked(), [""; 0]);
    growing.says(pending(), "2Ki").await;
    until_true("the growth", async || {
        growing.claim().await["status"]["capacity"]["storage"] == "2Ki"
    })
    .await;
    assert_eq!(growing.asked(), ["2048"]);
    let status = growing.claim().await["status"].clone();
    let nothing = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    assert!(nothing(&status["conditions"]), "{status:#}");
    assert!(status["allocatedResourceStatuses"].get("storage").is_none(), "{status:#}");
    let text = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n".to_owned();
    let reason = "FileSystemResizeSuccessful";
    let expected = [("pod", reason, text.clone()), ("claim", reason, text)];
    assert_eq!(growing.events(), expected);

    // What is as large as its claim says is left alone, by another life of the agent too.
    growing.hear("2Ki").await;
    let other = growing.node.volumes(&one);
    other.want(&one);
    until(&other, one.uid(), ready).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(growing.asked(), ["2048"]);
}

#[tokio::test]
async fn what_cannot_grow_is_told_and_then_used_as_it_is() {
    let temp = tempfile::tempdir().expect("a directory");
    let growing = Growing::new(temp.path()).await;
    let one = claimant();
    growing.says(pending(), "2Ki").await;
    let answers = [Code::Ok, Code::Ok, Code::OutOfRange];
    growing.driver.answers.lock().unwrap().extend(answers);
    let volumes = growing.node.volumes(&one);
    volumes.want(&one);
    let words = "MountVolume.Setup failed while expanding volume for volume \"pv\" : \
                 Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange";
    until(&volumes, one.uid(), told(words)).await;
    until(&volumes, one.uid(), ready).await;
    assert_eq!(growing.asked(), ["2048"], "once");
    let status = growing.claim().await["status"].clone();
    assert_eq!(status["allocatedResourceStatuses"]["storage"], "NodeResizeInfeasible");
    assert_eq!(status["capacity"]["storage"], "1Ki");
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let error = all.iter().find(|told| told["type"] == "NodeResizeError").expect("a condition");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("failed to expand pvc with Expander.NodeExpand"), "{message}");
    assert_eq!(growing.events().len(), 1, "the mount that failed: {:?}", growing.events());

    // The controllers try once more, with less; now it works.
    growing.says(pending(), "2Ki").await;
    until_true("the growth", async || {
        growing.claim().await["status"]["capacity"]["storage"] == "2Ki"
    })
    .await;
    assert_eq!(growing.asked(), ["2048", "2048"]);
}

#[tokio::test]
async fn a_failure_is_told_and_tried_again_and_no_pod_starts_before() {
    let temp = tempfile::tempdir().expect("a directory");
    let growing = Growing::new(temp.path()).await;
    let one = claimant();
    growing.says(pending(), "2Ki").await;
    growing.driver.answers.lock().unwrap().extend([Code::Ok, Code::Ok, Code::Internal]);
    let volumes = growing.node.volumes(&one);
    volumes.want(&one);
    until(&volumes, one.uid(), told("code = Internal")).await;
    let status = growing.claim().await["status"].clone();
    assert_eq!(status["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    until(&volumes, one.uid(), ready).await;
    assert_eq!(growing.asked(), ["2048", "2048"]);
    assert_eq!(growing.claim().await["status"]["capacity"]["storage"], "2Ki", "before it is ready");
    let reasons: Vec<_> = growing.events().into_iter().map(|(of, why, _)| (of, why)).collect();
    let grown = "FileSystemResizeSuccessful";
    assert_eq!(reasons, [("pod", "FailedMount"), ("pod", grown), ("claim", grown)]);
}
