//! Events from CRI, from containerd, from neither.

use std::sync::Arc;
use std::time::Duration;

use cri::containerd::{Envelope, SubscribeRequest, payloads};
use cri::{
    CallErrorKind, EventStream, ExitNote, Runtime, RuntimeEvent, RuntimeEventKind as Kind, v1,
};
use futures_util::StreamExt;
use prost::Message;
use tokio::sync::Notify;
use tonic::Status;

use crate::fake::{Does, Fake, Place};

fn event(container_id: &str, pod_uid: Option<&str>, kind: Kind) -> RuntimeEvent {
    let pod_uid = pod_uid.map(str::to_owned);
    RuntimeEvent { container_id: container_id.to_owned(), pod_uid, kind, exit: None }
}

async fn take(events: &mut EventStream, count: usize) -> Vec<RuntimeEvent> {
    let events = events.take(count).map(Result::unwrap).collect();
    tokio::time::timeout(Duration::from_secs(10), events).await.expect("too few events")
}

fn cri_event(id: &str, uid: &str, kind: i32) -> v1::ContainerEventResponse {
    let metadata = v1::PodSandboxMetadata { uid: uid.to_owned(), ..Default::default() };
    v1::ContainerEventResponse {
        container_id: id.to_owned(),
        container_event_type: kind,
        pod_sandbox_status: (!uid.is_empty())
            .then(|| v1::PodSandboxStatus { metadata: Some(metadata), ..Default::default() }),
        ..Default::default()
    }
}

fn envelope(namespace: &str, topic: &str, payload: impl Message) -> Envelope {
    let value = payload.encode_to_vec();
    Envelope {
        namespace: namespace.to_owned(),
        topic: topic.to_owned(),
        event: Some(prost_types::Any { type_url: String::new(), value }),
        ..Default::default()
    }
}

fn started(id: &str) -> Envelope {
    envelope("k8s.io", "/tasks/start", payloads::TaskStart { container_id: id.to_owned() })
}

#[tokio::test]
async fn cri_events_are_mapped() {
    let place = Place::new();
    let sent = [
        cri_event("a", "u1", 0),
        cri_event("a", "u1", 1),
        cri_event("a", "u1", 99),
        cri_event("a", "u1", 2),
        cri_event("b", "", 3),
    ];
    let fake =
        Fake::default().on("GetContainerEvents", Does::stream(sent)).on("Subscribe", Does::Hang);
    let _server = fake.serve(&place.socket);
    let mut events = place.client().events().await.unwrap();
    let expected = [
        event("a", Some("u1"), Kind::Created),
        event("a", Some("u1"), Kind::Started),
        event("a", Some("u1"), Kind::Stopped),
        event("b", None, Kind::Deleted),
    ];
    assert_eq!(take(&mut events, 4).await, expected);
    assert_eq!(fake.requests::<SubscribeRequest>("Subscribe").len(), 0);
}

/// grpc-go sends headers with the first message only.
#[tokio::test]
async fn a_quiet_runtime_does_not_hold_up_the_caller() {
    let place = Place::new();
    let go = Arc::new(Notify::new());
    let later = Does::stream([cri_event("a", "", 1)]).after(&go);
    let _server = Fake::default().on("GetContainerEvents", later).serve(&place.socket);
    let client = place.client();
    let opened = tokio::time::timeout(Duration::from_secs(10), client.events()).await;
    let mut events = opened.expect("waits for the first event").unwrap();
    go.notify_one();
    assert_eq!(take(&mut events, 1).await, [event("a", None, Kind::Started)]);
}

#[tokio::test]
async fn containerd_events_stand_in() {
    let place = Place::new();
    let id = || "c1".to_owned();
    let exit = |process: &str| payloads::TaskExit {
        container_id: id(),
        id: process.to_owned(),
        exit_status: 3,
        exited_at: Some(prost_types::Timestamp { seconds: 5, nanos: 7 }),
    };
    let sent = [
        envelope("k8s.io", "/containers/create", payloads::ContainerCreate { id: id() }),
        envelope("k8s.io", "/tasks/start", payloads::TaskStart { container_id: id() }),
        envelope("k8s.io", "/tasks/exit", exit("exec-7")),
        envelope("moby", "/tasks/start", payloads::TaskStart { container_id: "other".to_owned() }),
        envelope("k8s.io", "/images/create", payloads::ContainerCreate { id: "image".to_owned() }),
        envelope("k8s.io", "/tasks/exit", exit("c1")),
        envelope("k8s.io", "/containers/delete", payloads::ContainerDelete { id: id() }),
    ];
    let fake = Fake::default().on("Subscribe", Does::stream(sent));
    let _server = fake.serve(&place.socket);
    let mut events = place.client().events().await.unwrap();
    let expected = [Kind::Created, Kind::Started, Kind::Stopped, Kind::Deleted];
    let mut told = take(&mut events, 4).await;
    // How it ended is told long before the runtime's own records say so.
    let note = ExitNote { code: 3, finished_at: 5_000_000_007 };
    assert_eq!(told[2].exit.take(), Some(note));
    assert_eq!(told, expected.map(|kind| event("c1", None, kind)));
    let asked = fake.requests::<SubscribeRequest>("Subscribe").remove(0);
    assert!(asked.filters.iter().all(|filter| filter.starts_with("namespace==k8s.io,")));
}

#[tokio::test]
async fn a_late_refusal_still_falls_back() {
    let place = Place::new();
    let go = Arc::new(Notify::new());
    let refusal = Does::Fail(Status::unimplemented("unknown method")).after(&go);
    let _server = Fake::default()
        .on("GetContainerEvents", refusal)
        .on("Subscribe", Does::stream([started("c1")]))
        .serve(&place.socket);
    let mut events = place.client().events().await.unwrap();
    go.notify_one();
    assert_eq!(take(&mut events, 1).await, [event("c1", None, Kind::Started)]);
}

#[tokio::test]
async fn neither_kind_is_unimplemented() {
    let place = Place::new();
    let _server = Fake::default().serve(&place.socket);
    let error = place.client().events().await.err().expect("a stream out of nothing");
    assert!(error.is_unimplemented(), "{error}");
    assert!(error.to_string().contains("neither"), "{error}");
}

#[tokio::test]
async fn other_failures_do_not_fall_back() {
    let place = Place::new();
    let fake = Fake::default()
        .on("GetContainerEvents", Does::Fail(Status::internal("broken")))
        .on("Subscribe", Does::stream([started("c1")]));
    let server = fake.serve(&place.socket);
    let client = place.client();
    let error = client.events().await.err().expect("no error");
    assert_eq!(error.reason_text(), "broken");
    assert_eq!(fake.requests::<SubscribeRequest>("Subscribe").len(), 0);
    drop(server);
    let error = client.events().await.err().expect("no error");
    assert!(error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_stream_ends_after_its_error() {
    let place = Place::new();
    let sent = [cri_event("a", "", 0), cri_event("", "", 1), cri_event("b", "", 1)];
    let _server = Fake::default().on("GetContainerEvents", Does::stream(sent)).serve(&place.socket);
    let events: Vec<_> = place.client().events().await.unwrap().collect().await;
    assert_eq!(events.len(), 2);
    let error = events[1].as_ref().unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Nonsense(_)), "{error}");
}

#[tokio::test]
async fn a_crash_ends_the_stream() {
    let place = Place::new();
    let quiet = Fake::default().on("GetContainerEvents", Does::stream([cri_event("a", "", 0)]));
    let server = quiet.serve(&place.socket);
    let mut events = place.client().events().await.unwrap();
    take(&mut events, 1).await;
    drop(server);
    let error = events.next().await.unwrap().unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(events.next().await.is_none());
}
