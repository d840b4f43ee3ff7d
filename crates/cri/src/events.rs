//! Runtime events: CRI's own, else containerd's.
//!
//! Asks GetContainerEvents first; a runtime that lacks it (containerd before
//! 1.7) is asked for its native events over the same connection.
//!
//! When to decide: a runtime that has the call sends nothing, not even
//! headers, until its first event, so its answer cannot be awaited. One that
//! lacks it says so at once. Hence the stream is given out after a short
//! settling time unless it failed by then, and it keeps the fall-back in hand:
//! a refusal that comes later still leads to containerd's events, or ends the
//! stream with the same error that would have been returned. Nothing is lost
//! while settling: the subscription is on its way before it begins.
//! Upstream: pkg/kubelet/pleg/evented.go; the fall-back is ours.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{self, Stream, StreamExt};
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use crate::answers::{self, NAMESPACE};
use crate::containerd::events_client::EventsClient;
use crate::containerd::{Envelope, SubscribeRequest, payloads};
use crate::error::{CallError, CallErrorKind};
use crate::port::{EventStream, ExitNote, RuntimeEvent, RuntimeEventKind};
use crate::v1;
use crate::v1::runtime_service_client::RuntimeServiceClient;

/// How long a refusal may take and still be returned instead of streamed.
const SETTLE: Duration = Duration::from_millis(250);

const TOPIC_CREATED: &str = "/containers/create";
const TOPIC_STARTED: &str = "/tasks/start";
const TOPIC_STOPPED: &str = "/tasks/exit";
const TOPIC_DELETED: &str = "/containers/delete";

/// Opens the event stream. See the module's description.
pub(crate) async fn follow(
    cri: RuntimeServiceClient<Channel>,
    containerd: EventsClient<Channel>,
) -> Result<EventStream, CallError> {
    let mut events = with_fallback(cri_events(cri), containerd_events(containerd)).peekable();
    let first = tokio::time::timeout(SETTLE, Pin::new(&mut events).peek()).await;
    match first {
        Ok(Some(Err(error))) => Err(error.clone()),
        _ => Ok(events.boxed()),
    }
}

/// `first`, or `second` if the runtime refuses `first` outright. Ends after
/// an error.
fn with_fallback(first: EventStream, second: EventStream) -> EventStream {
    let state = (Some(first), Some(second));
    stream::unfold(state, |(current, mut fallback)| async move {
        let mut current = current?;
        loop {
            match current.next().await? {
                Ok(event) => return Some((Ok(event), (Some(current), None))),
                Err(error) => match fallback.take() {
                    Some(second) if error.is_unimplemented() => {
                        tracing::debug!(%error, "no CRI events; trying containerd's own");
                        current = second;
                    }
                    _ => return Some((Err(error), (None, None))),
                },
            }
        }
    })
    .boxed()
}

/// Opens the stream when first polled; the wait for headers is part of it.
fn open<T: Send + 'static>(
    call: &'static str,
    reply: impl Future<Output = Result<Response<Streaming<T>>, Status>> + Send + 'static,
) -> impl Stream<Item = Result<T, CallError>> + Send + 'static {
    reply
        .map(|reply| match reply {
            Ok(response) => response.into_inner().left_stream(),
            Err(status) => stream::once(async { Err(status) }).right_stream(),
        })
        .flatten_stream()
        .map(move |item| item.map_err(|status| failed(call, status.into())))
}

fn failed(call: &'static str, kind: CallErrorKind) -> CallError {
    CallError { call, object: String::new(), kind }
}

const CRI_CALL: &str = "GetContainerEvents";

fn cri_events(mut client: RuntimeServiceClient<Channel>) -> EventStream {
    let reply = async move { client.get_container_events(v1::GetEventsRequest {}).await };
    open(CRI_CALL, reply).filter_map(async |item| item.and_then(from_cri).transpose()).boxed()
}

/// `None` for kinds this version of CRI does not know.
fn from_cri(event: v1::ContainerEventResponse) -> Result<Option<RuntimeEvent>, CallError> {
    use v1::ContainerEventType as Type;
    let kind = match Type::try_from(event.container_event_type) {
        Ok(Type::ContainerCreatedEvent) => RuntimeEventKind::Created,
        Ok(Type::ContainerStartedEvent) => RuntimeEventKind::Started,
        Ok(Type::ContainerStoppedEvent) => RuntimeEventKind::Stopped,
        Ok(Type::ContainerDeletedEvent) => RuntimeEventKind::Deleted,
        Err(_) => return Ok(None),
    };
    if event.container_id.is_empty() {
        let why = "an event's container_id is not set".to_owned();
        return Err(failed(CRI_CALL, CallErrorKind::Nonsense(why)));
    }
    let metadata = event.pod_sandbox_status.and_then(|status| status.metadata);
    let pod_uid = metadata.map(|metadata| metadata.uid).filter(|uid| !uid.is_empty());
    Ok(Some(RuntimeEvent { container_id: event.container_id, pod_uid, kind, exit: None }))
}

const CONTAINERD_CALL: &str = "containerd Subscribe";

fn containerd_events(mut client: EventsClient<Channel>) -> EventStream {
    // Filtered by topic too: image and snapshot events would only wake us.
    let topics = [TOPIC_CREATED, TOPIC_STARTED, TOPIC_STOPPED, TOPIC_DELETED];
    let filters = topics.map(|topic| format!("namespace=={NAMESPACE},topic==\"{topic}\""));
    let request = answers::in_namespace(SubscribeRequest { filters: filters.into() });
    let reply = async move { client.subscribe(request).await };
    open(CONTAINERD_CALL, reply)
        .map(|item| item.map_err(name_both_calls))
        .filter_map(async |item| item.and_then(from_containerd).transpose())
        .boxed()
}

/// The last word of a runtime without events should not speak of containerd only.
fn name_both_calls(error: CallError) -> CallError {
    if !error.is_unimplemented() {
        return error;
    }
    let message = "the runtime streams neither CRI events nor containerd's own".to_owned();
    failed(CRI_CALL, CallErrorKind::Answered { code: Code::Unimplemented, message })
}

/// `None` for events that mean nothing to the kubelet.
fn from_containerd(envelope: Envelope) -> Result<Option<RuntimeEvent>, CallError> {
    if envelope.namespace != NAMESPACE {
        return Ok(None);
    }
    let payload = envelope.event.unwrap_or_default().value;
    read_payload(&envelope.topic, &payload).map_err(|why| {
        let why = format!("event {}: {why}", envelope.topic);
        failed(CONTAINERD_CALL, CallErrorKind::Nonsense(why))
    })
}

fn read_payload(topic: &str, payload: &[u8]) -> Result<Option<RuntimeEvent>, String> {
    let mut note = None;
    let (decoded, kind) = match topic {
        TOPIC_CREATED => {
            (payloads::ContainerCreate::decode(payload).map(|p| p.id), RuntimeEventKind::Created)
        }
        TOPIC_STARTED => (
            payloads::TaskStart::decode(payload).map(|p| p.container_id),
            RuntimeEventKind::Started,
        ),
        TOPIC_STOPPED => match payloads::TaskExit::decode(payload) {
            // A process that exec ran, not the container.
            Ok(exit) if !exit.id.is_empty() && exit.id != exit.container_id => return Ok(None),
            exit => {
                note = exit.as_ref().ok().and_then(exit_note);
                (exit.map(|p| p.container_id), RuntimeEventKind::Stopped)
            }
        },
        TOPIC_DELETED => {
            (payloads::ContainerDelete::decode(payload).map(|p| p.id), RuntimeEventKind::Deleted)
        }
        _ => return Ok(None),
    };
    let container_id = decoded.map_err(|error| error.to_string())?;
    if container_id.is_empty() {
        return Err("the container's id is not set".to_owned());
    }
    Ok(Some(RuntimeEvent { container_id, pod_uid: None, kind, exit: note }))
}

/// `None` if the event does not say when.
fn exit_note(exit: &payloads::TaskExit) -> Option<ExitNote> {
    let at = exit.exited_at.as_ref()?;
    let finished_at = at.seconds.checked_mul(1_000_000_000)?.checked_add(i64::from(at.nanos))?;
    Some(ExitNote { code: i32::try_from(exit.exit_status).ok()?, finished_at })
}
