//! Pods that are ignored because another has their name, and the event of it.

use std::sync::Arc;

use async_trait::async_trait;
use kubelet_model::{EventObject, EventType};

use super::super::start_with;
use super::mem_fs::MemFs;
use super::{expect_pods, manifest, ports};
use crate::ports::{Fetched, HttpFetch, HttpFetchError};
use crate::settings::Settings;

/// Kind, reason and message of every event about a pod, with its uid taken out.
fn told(recorder: &crate::events::Recorder) -> Vec<(EventType, &'static str, String)> {
    let events = recorder.all().into_iter();
    events
        .map(|event| {
            let EventObject::Pod { uid, .. } = &event.object else { panic!("about a pod") };
            (event.kind, event.reason, event.message.replace(uid.as_str(), "UID"))
        })
        .collect()
}

fn words(source: &str) -> String {
    format!(
        "Error validating pod a-n_default(UID) from {source} due to duplicate pod name \"a-n\", ignoring"
    )
}

#[tokio::test(start_paused = true)]
async fn of_two_files_one_is_ignored_and_told_of() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/one", manifest("a", "i1"));
    fs.put("/m/two", manifest("a", "i2"));
    let ports = ports(Arc::new(fs));
    let settings = Settings { static_pod_path: Some("/m".into()), ..Settings::for_node("n") };
    let (mut reader, _) = start_with(&settings, &ports);
    expect_pods(&mut reader, &["a-n=i1"]).await;
    assert_eq!(told(&ports.recorder), [(EventType::Warning, "FailedValidation", words("file"))]);
}

/// Serves one list.
struct Served(String);

#[async_trait]
impl HttpFetch for Served {
    async fn get(
        &self,
        _: &str,
        _: &[(String, String)],
        _: usize,
    ) -> Result<Fetched, HttpFetchError> {
        Ok(Fetched { status: 200, body: self.0.clone().into_bytes() })
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_in_a_list_one_is_ignored_and_told_of() {
    let pod = |image: &str| {
        let spec = serde_json::json!({"containers": [{"name": "app", "image": image}]});
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
    };
    let list =
        serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": [pod("i1"), pod("i2")]});
    let mut ports = ports(Arc::new(MemFs::default()));
    ports.http = Arc::new(Served(list.to_string()));
    let settings = Settings { static_pod_url: Some("http://h/".into()), ..Settings::for_node("n") };
    let (mut reader, _) = start_with(&settings, &ports);
    expect_pods(&mut reader, &["a-n=i1"]).await;
    assert_eq!(told(&ports.recorder), [(EventType::Warning, "FailedValidation", words("http"))]);
}
