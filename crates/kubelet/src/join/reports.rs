//! What comes of the node's object, for the agent's other parts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cluster::certificates::CertificateState;
use cluster::events::{EventReport, Involved};
use cluster::node::{NodeEvent, NodeHandle, Reports};
use cri::Runtime;
use kubelet_model::{EventObject, EventType, PodUid};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::member::Reconnect;
use crate::admission::{NodeNewsWriter, NodeView};
use crate::events::{Event, NodeEvents};
use crate::node_shutdown::ShutdownReader;
use crate::pleg::RuntimeStateReader;
use crate::ports::{Clock, Jitter};
use crate::volume_manager::attach::Attachments;

/// How soon the server is asked again for the Node.
const NODE_RETRY: Duration = Duration::from_secs(2);

/// Tells events, the runtime and the connection.
pub(super) struct NodeReports {
    pub(super) events: NodeEvents,
    pub(super) reconnect: Reconnect,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) attachments: Attachments,
}

#[async_trait]
impl Reports for NodeReports {
    fn event(&self, event: NodeEvent) {
        match event.kind {
            EventType::Normal => self.events.normal(event.reason, event.message),
            EventType::Warning => self.events.warn(event.reason, event.message),
        }
    }

    fn volumes_reported(&self, volumes: &[String]) {
        self.attachments.reported(volumes);
    }

    async fn pod_networks(&self, networks: &str) -> Result<(), String> {
        let answer = self.runtime.update_runtime_config(networks).await;
        answer.map_err(|error| error.to_string())
    }

    async fn reconnect(&self) {
        (self.reconnect)().await;
    }
}

/// An event as it is written to the API server; `revision` tells that of a pod there.
pub(super) fn event(
    key: u64,
    event: &Event,
    revision: &dyn Fn(&PodUid) -> Option<String>,
) -> EventReport {
    let object = match event.object.clone() {
        EventObject::Node(name) => Involved {
            kind: "Node".to_owned(),
            api_version: "v1".to_owned(),
            // Without a uid, as upstream: it may not be known yet.
            name,
            ..Involved::default()
        },
        EventObject::PersistentVolume { name, uid } => Involved {
            kind: "PersistentVolume".to_owned(),
            api_version: "v1".to_owned(),
            uid,
            name,
            ..Involved::default()
        },
        EventObject::Pod { uid, name, namespace, field_path } => Involved {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            // One of a file has none.
            resource_version: revision(&uid).unwrap_or_default(),
            uid: uid.as_str().to_owned(),
            name,
            namespace,
            field_path,
        },
        EventObject::Claim { uid, name, namespace } => Involved {
            kind: "PersistentVolumeClaim".to_owned(),
            api_version: "v1".to_owned(),
            uid,
            name,
            namespace,
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

/// Tells admission of the Node, and asks the server for it when admission does. A server
/// that does not answer is asked again: pods wait, and what runs goes on.
pub(super) async fn tell_admission(handle: NodeHandle, mut news: NodeNewsWriter, jitter: Jitter) {
    let (mut node, mut retry_at) = (handle.node(), None);
    let mut said = String::new();
    loop {
        let known = node.borrow_and_update().as_ref().map(|node| NodeView::read(node.object()));
        news.know(known);
        let ask = async {
            if let Some(at) = retry_at {
                sleep_until(at).await;
            }
            news.asked().await
        };
        let asked = tokio::select! { biased;
            changed = node.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            ask = ask => ask,
        };
        retry_at = match handle.fresh().await {
            Err(error) if !error.is_not_found() => {
                let text = error.to_string();
                if text != said {
                    tracing::warn!(error = text, "cannot get the Node object; pods wait for it");
                    said = text;
                }
                Some(Instant::now() + jitter.spread(NODE_RETRY))
            }
            // That there is none is an answer, too.
            Ok(_) | Err(_) => {
                said.clear();
                let latest = node.borrow_and_update().clone();
                news.know(latest.map(|node| NodeView::read(node.object())));
                news.answer(asked);
                None
            }
        };
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
/// So is that it has been away for too long.
pub(super) async fn poke_on_change(
    handle: NodeHandle,
    mut runtime: RuntimeStateReader,
    clock: Arc<dyn Clock>,
) {
    let mut known = runtime.troubles(clock.mono());
    loop {
        let wait = known.next.map(|at| at.since(clock.mono()));
        tokio::select! { biased;
            () = runtime.changed() => {}
            () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
        let now = runtime.troubles(clock.mono());
        if (&now.runtime, &now.network) != (&known.runtime, &known.network) {
            handle.poke();
        }
        known = now;
    }
}

/// What the Node says of its labels and of attached volumes, for those who mount them.
pub(super) async fn tell_attached(handle: NodeHandle, attachments: Attachments) {
    let mut node = handle.node();
    loop {
        let latest = node.borrow_and_update().clone();
        // While there is no Node, what it said before holds.
        if let Some(latest) = latest {
            attachments.node_says(&latest.labels(), &latest.volumes_attached());
        }
        if node.changed().await.is_err() {
            return;
        }
    }
}

/// The cluster attaches a volume once the node's status tells that it is in use.
pub(super) async fn poke_on_use(handle: NodeHandle, attachments: Attachments) {
    let mut changes = attachments.in_use_changes();
    while changes.changed().await.is_ok() {
        handle.poke();
    }
}

/// The same for what keeps the node from being ready for volumes.
pub(super) async fn poke_on_problem(
    handle: NodeHandle,
    mut problem: watch::Receiver<Option<String>>,
) {
    while problem.changed().await.is_ok() {
        handle.poke();
    }
}

/// The node's status tells how its certificate came about: a change is written at once.
pub(super) async fn poke_on_certificate(
    handle: NodeHandle,
    mut state: watch::Receiver<CertificateState>,
) {
    let mut known = state.borrow_and_update().warning();
    while state.changed().await.is_ok() {
        let now = state.borrow_and_update().warning();
        if now != known {
            handle.poke();
            known = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_about_the_node_has_no_uid() {
        let (events, recorder) = NodeEvents::for_test();
        events.normal("Starting", "Starting kubelet.");
        let report = event(7, &recorder.all()[0], &|_| Some("9".to_owned()));
        let expected = Involved {
            kind: "Node".to_owned(),
            api_version: "v1".to_owned(),
            name: "n".to_owned(),
            ..Involved::default()
        };
        assert_eq!((report.key, report.object), (7, expected));
    }

    #[test]
    fn an_event_about_a_pod_names_the_version_that_the_server_has() {
        let (_, recorder) = NodeEvents::for_test();
        for uid in ["u", "static"] {
            let object = EventObject::Pod {
                uid: PodUid::new(uid),
                name: "web".to_owned(),
                namespace: "ns".to_owned(),
                field_path: "spec.containers{app}".to_owned(),
            };
            recorder.record(&object, EventType::Normal, "Started", "Container started".to_owned());
        }
        let revision = |uid: &PodUid| (uid.as_str() == "u").then(|| "9".to_owned());
        let told = recorder.all().into_iter().map(|one| {
            let Involved { uid, resource_version, field_path, .. } =
                event(1, &one, &revision).object;
            format!("{uid} {resource_version} {field_path}")
        });
        let told: Vec<String> = told.collect();
        assert_eq!(told, ["u 9 spec.containers{app}", "static  spec.containers{app}"]);
    }
}
