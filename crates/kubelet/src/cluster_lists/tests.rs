//! What was kept counts until the lists are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::{Api, ApiError, Call, Watching};
use apiserver::direct::Direct;
use async_trait::async_trait;
use cri::{ClientConfig, CriClient};
use jiff::Timestamp;
use kubelet_model::{DesiredPod, Source};
use serde_json::{Value, json};

use super::*;

/// An API server that remembers which lists were asked for.
struct Asked {
    api: Direct,
    paths: Mutex<Vec<String>>,
}

#[async_trait]
impl Api for Asked {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        self.paths.lock().unwrap().push(call.path.clone());
        self.api.call(call).await
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.api.watch(path).await
    }
}

#[tokio::test]
async fn services_without_an_address_are_not_asked_for() {
    let api = Direct::alone(Arc::new(Timestamp::now), 1000).unwrap();
    for (name, ip) in [("web", "10.0.0.7"), ("headless", "None")] {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"clusterIP": ip, "ports": [{"port": 80}]}});
        let made = api.call(Call::post("/api/v1/namespaces/default/services", service)).await;
        made.unwrap();
    }
    let api = Arc::new(Asked { api, paths: Mutex::default() });
    let nowhere = ClientConfig {
        runtime_endpoint: "unix:///nonexistent/runtime.sock".to_owned(),
        image_endpoint: None,
        request_timeout: FIRST_READ,
    };
    let ports = Ports {
        api: Some(Arc::clone(&api) as Arc<dyn Api>),
        ..Ports::around(Arc::new(CriClient::new(nowhere).unwrap()))
    };
    let lists = ClusterLists::start(&ports);
    lists.read().await;
    let services = lists.0.as_ref().unwrap().services.now().unwrap();
    let names: Vec<&str> = services.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["web"]);
    let paths = api.paths.lock().unwrap().clone();
    let selected = "/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone";
    assert!(paths.iter().any(|path| path.starts_with(selected)), "{paths:?}");
    ports.tasks.abort_all();
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_counts_until_the_lists_are_read() {
    let (of_services, services) = List::unread();
    let (of_handlers, handlers) = List::unread();
    let lists = ClusterLists(Some(Lists { services, handlers, kept: Arc::default() }));
    let pod = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"containers": []}});
    let pod = Arc::new(serde_json::from_value(pod).unwrap());
    let pod = DesiredPod::new(Source::Api, pod).unwrap();
    assert!(lists.service_variables(&pod).await.is_err());
    assert!(lists.runtime_handler("kata").await.is_err());
    let variables = vec![("A_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())];
    lists.fall_back(KeptLists {
        variables: BTreeMap::from([(pod.uid().clone(), variables.clone())]),
        handlers: BTreeMap::from([("kata".to_owned(), "kata-qemu".to_owned())]),
    });
    assert_eq!(lists.service_variables(&pod).await, Ok(variables));
    assert_eq!(lists.runtime_handler("kata").await.as_deref(), Ok("kata-qemu"));
    assert_eq!(lists.known_handler("kata").as_deref(), Some("kata-qemu"));
    assert!(lists.known_variables(&pod).is_none() && !lists.are_read());
    of_services.send_replace(Some(Arc::default()));
    of_handlers.send_replace(Some(Arc::default()));
    lists.read().await;
    assert!(lists.are_read());
    assert_eq!(lists.service_variables(&pod).await, Ok(Vec::new()), "the server's word counts");
    assert!(lists.runtime_handler("kata").await.is_err());
}
