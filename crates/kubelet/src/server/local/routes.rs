//! What each path of the local endpoint answers.

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{EventObject, Grace};
use serde::Deserialize;

use super::find::{Home, Refused};
use super::wire::{EventItem, EventsAnswer, PodItem, PodsAnswer, RemoveAnswer};
use super::{Local, logs, node, runtime, volumes, why};
use crate::events::Event;
use crate::status_manager::PodView;

/// Largest request: a command with its arguments.
const REQUEST_BYTES_MAX: usize = 256 << 10;

/// Everything the commands ask for.
pub fn router(local: Local) -> Router {
    Router::new()
        .route("/pods", get(pods))
        .route("/events", get(events))
        .route("/stats", get(runtime::stats))
        .route("/logs/{namespace}/{pod}/{container}", get(logs::logs))
        .route("/exec/{namespace}/{pod}/{container}", post(runtime::exec))
        .route("/remove/{namespace}/{pod}", post(remove))
        .route("/volumes", get(volumes::volumes))
        .route("/volumes/{uid}/clean", post(volumes::clean))
        .route("/why/{namespace}/{pod}", get(why::pod))
        .route("/why", get(node::node))
        .route("/manifest/{pod}", get(why::absent))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(local)
}

async fn pods(State(local): State<Local>) -> Json<PodsAnswer> {
    let mut items: Vec<PodItem> =
        local.view.statuses.all().into_iter().map(|view| item(&local, view)).collect();
    items.sort_by(|a, b| key(&a.pod).cmp(&key(&b.pod)));
    let (node, now) = (local.place.node_name.clone(), local.clock.wall());
    Json(PodsAnswer { node, now, items })
}

fn key(pod: &Pod) -> (Option<&str>, Option<&str>) {
    (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref())
}

fn item(local: &Local, view: PodView) -> PodItem {
    let progress = local.view.progress.get(&view.uid).unwrap_or_default();
    let mut pod = Pod::clone(&view.pod);
    pod.status = Some((*view.status).clone());
    PodItem {
        pod,
        in_flight: progress.in_flight(local.clock.mono()),
        pull: progress.pull().and_then(|pull| pull.state.brief()),
        ending: progress.ending.is_some(),
        doing: progress.doing.into_iter().map(|one| one.what).collect(),
    }
}

#[derive(Debug, Deserialize)]
struct EventsQuery {
    namespace: Option<String>,
    pod: Option<String>,
}

async fn events(
    State(local): State<Local>,
    Query(query): Query<EventsQuery>,
) -> Json<EventsAnswer> {
    let wanted = |event: &EventItem| {
        let pod = query.pod.as_ref().is_none_or(|pod| {
            let suffixed = format!("{pod}-{}", local.place.node_name);
            event.kind == "Pod" && (event.name == *pod || event.name == suffixed)
        });
        pod && query.namespace.as_ref().is_none_or(|namespace| event.namespace == *namespace)
    };
    let items: Vec<_> = local.view.recorder.all().into_iter().map(event_item).collect();
    let items = items.into_iter().filter(wanted).collect();
    Json(EventsAnswer { now: local.clock.wall(), items })
}

fn event_item(event: Event) -> EventItem {
    let (kind, namespace, name, field_path) = match event.object {
        EventObject::Node(name) => ("Node", String::new(), name, String::new()),
        EventObject::PersistentVolume { name, .. } => {
            ("PersistentVolume", String::new(), name, String::new())
        }
        EventObject::Pod { name, namespace, field_path, .. } => {
            ("Pod", namespace, name, field_path)
        }
        EventObject::Claim { name, namespace, .. } => {
            ("PersistentVolumeClaim", namespace, name, String::new())
        }
    };
    EventItem {
        kind: kind.to_owned(),
        namespace,
        name,
        field_path,
        severity: event.kind.as_str().to_owned(),
        reason: event.reason.to_owned(),
        message: event.message,
        count: event.count,
        first: event.first,
        last: event.last,
    }
}

#[derive(Debug, Deserialize)]
struct RemoveQuery {
    /// Only say what would be removed.
    #[serde(default)]
    dry_run: bool,
}

/// Removes the manifest that a pod came from, if the pod is all it holds.
async fn remove(
    State(local): State<Local>,
    Path((namespace, pod)): Path<(String, String)>,
    Query(query): Query<RemoveQuery>,
) -> Result<Json<RemoveAnswer>, Refused> {
    let view = local.find(&namespace, &pod)?;
    let path = match local.home(&view).await {
        Home::File { path, pods: 1, objects: 0, .. } => path,
        Home::File { path, pods, objects, .. } => {
            let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
            let objects = match objects {
                0 => String::new(),
                _ => ", and objects that others may use".to_owned(),
            };
            return Err(Refused::conflict(format!(
                "{} defines {pods}{objects}; take this one out of it with an editor, or \
                 remove the file if nothing else needs what it defines",
                path.display()
            )));
        }
        Home::Url(url) => {
            return Err(Refused::conflict(format!(
                "the pod comes from {url}; take it out there, and klet removes it at the next look"
            )));
        }
        Home::Nowhere { broken } if broken.is_empty() => {
            return Err(Refused::conflict(
                "no manifest has this pod any more: it is being removed already".to_owned(),
            ));
        }
        Home::Nowhere { broken } => {
            return Err(Refused::conflict(format!(
                "the pod's manifest was changed since and cannot be used, so it is not clear which to remove; \
                 mend or remove it by hand: {}",
                broken.join("; ")
            )));
        }
        Home::Unknown => {
            return Err(Refused::conflict("nobody knows where the pod came from".to_owned()));
        }
    };
    if !query.dry_run {
        local.fs.remove_file(&path).map_err(|error| {
            let text = format!("cannot remove {}: {error}", path.display());
            Refused(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        tracing::info!(file = %path.display(), pod, namespace, "manifest removed on request");
    }
    let spec = view.pod.spec.as_ref();
    Ok(Json(RemoveAnswer {
        file: path.display().to_string(),
        uid: view.uid.to_string(),
        grace_seconds: spec.map_or(Grace::DEFAULT_SECONDS, Grace::seconds_of),
        removed: !query.dry_run,
    }))
}
