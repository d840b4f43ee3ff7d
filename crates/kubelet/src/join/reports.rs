//! What comes of the node's object, for the agent's other parts.

use std::sync::Arc;

use api_client::ApiClient;
use async_trait::async_trait;
use cluster::events::{EventReport, Involved};
use cluster::node::{NodeEvent, NodeHandle, Reports};
use cri::Runtime;
use kubelet_model::{EventObject, EventType};
use tokio::sync::watch;

use crate::events::{Event, NodeEvents};
use crate::node_shutdown::ShutdownReader;
use crate::pleg::RuntimeStateReader;

/// Tells events, the runtime and the client.
pub(super) struct NodeReports {
    pub(super) events: NodeEvents,
    pub(super) client: ApiClient,
    pub(super) runtime: Arc<dyn Runtime>,
}

#[async_trait]
impl Reports for NodeReports {
    fn event(&self, event: NodeEvent) {
        match event.kind {
            EventType::Normal => self.events.normal(event.reason, event.message),
            EventType::Warning => self.events.warn(event.reason, event.message),
        }
    }

    /// Nothing waits to be attached: only volumes that the node reaches by itself are
    /// mounted.
    fn volumes_reported(&self, _: &[String]) {}

    async fn pod_networks(&self, networks: &str) -> Result<(), String> {
        let answer = self.runtime.update_runtime_config(networks).await;
        answer.map_err(|error| error.to_string())
    }

    async fn reconnect(&self) {
        self.client.reconnect().await;
    }
}

/// An event as it is written to the API server.
pub(super) fn event(key: u64, event: &Event) -> EventReport {
    let object = match event.object.clone() {
        EventObject::Node(name) => Involved {
            kind: "Node".to_owned(),
            // As upstream: it may not know its uid yet.
            uid: name.clone(),
            name,
            ..Involved::default()
        },
        EventObject::Pod { uid, name, namespace, field_path } => Involved {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            uid: uid.as_str().to_owned(),
            name,
            namespace,
            field_path,
            ..Involved::default()
        },
    };
    EventReport {
        key,
        object,
        kind: event.kind,
        reason: event.reason.to_owned(),
        message: event.message.clone(),
        count: event.count,
        first: event.first,
        last: event.last,
        annotations: Vec::new(),
    }
}

/// Tells the uid of the node's object, for as long as it is there and stays.
pub(super) async fn tell_identity(handle: NodeHandle, identity: watch::Sender<Option<String>>) {
    let mut node = handle.node();
    loop {
        let uid = node.borrow_and_update().as_ref().and_then(|node| {
            let going = node.object()["metadata"]["deletionTimestamp"].is_string();
            (!going).then(|| node.uid().to_owned())
        });
        identity.send_if_modified(|known| {
            let news = *known != uid;
            *known = uid;
            news
        });
        if node.changed().await.is_err() {
            return;
        }
    }
}

/// The node's status tells that the machine is about to go: a change is written at once.
pub(super) async fn poke_on_shutdown(handle: NodeHandle, mut shutting_down: ShutdownReader) {
    loop {
        shutting_down.changed().await;
        handle.poke();
    }
}

/// The node's status tells whether the runtime is usable: a change is written at once.
pub(super) async fn poke_on_change(handle: NodeHandle, mut runtime: RuntimeStateReader) {
    let mut known = runtime.current_and_update();
    loop {
        runtime.changed().await;
        let now = runtime.current_and_update();
        let same = now.problem == known.problem && now.network_problem == known.network_problem;
        if !same {
            handle.poke();
        }
        known = now;
    }
}
