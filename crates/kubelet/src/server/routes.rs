//! What each path answers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use node_server::{Counted, Handlers, Requests, request_kind};

use super::claim_metrics;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::offline::Offline;
use crate::pleg::Observations;
use crate::pod_sources::UrlNews;
use crate::probe_manager::Probes;
use crate::progress::ProgressBoard;
use crate::status_manager::{PodView, Statuses};
use crate::volume_manager::Volumes;

/// What the endpoints look at.
#[derive(Clone)]
pub struct View {
    /// Pods and their statuses.
    pub statuses: Statuses,
    /// What the runtime holds.
    pub observations: Observations,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub recorder: Recorder,
    /// What probes have found.
    pub probes: Probes,
    /// What each worker is doing.
    pub progress: ProgressBoard,
    /// What is wrong with the URL that serves manifests.
    pub url_news: UrlNews,
    /// Everybody's volumes.
    pub volumes: Volumes,
    /// What the node does without its API server.
    pub offline: Offline,
}

/// `/healthz`: the agent's one thread turns; should a part that nothing works
/// without panic, the agent ends. Whether the runtime answers is told per pod
/// and in the log, not here: restarting the agent would not mend it.
pub fn health_router() -> Router {
    Router::new().route("/healthz", get(healthz))
}

/// The read-only port: `/healthz`, `/pods`, `/metrics`, `/metrics/probes`.
pub fn read_only_router(view: View) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/pods", get(pods))
        .route("/metrics", get(metrics))
        .route("/metrics/probes", get(probe_metrics))
        .layer(from_fn_with_state(view.metrics.requests.of_read_only(), counted))
        .with_state(view)
}

/// Counts a request until its answer is made; answers here are whole and short.
async fn counted(
    State(requests): State<Arc<dyn Requests>>,
    request: Request,
    next: Next,
) -> Response {
    let handlers = Handlers { debugging: false, ..Handlers::default() };
    let kind = request_kind(request.method(), request.uri().path(), &handlers);
    let _counted = Counted::begin(&requests, kind);
    next.run(request).await
}

async fn healthz() -> &'static str {
    "ok"
}

async fn pods(State(view): State<View>) -> Response {
    Json(pod_list(&view)).into_response()
}

/// Every pod with its status.
pub(super) fn pod_list(view: &View) -> List<Pod> {
    let items = view.statuses.all().into_iter().map(with_status).collect();
    List::<Pod> { items, ..Default::default() }
}

/// The pod as the API shows it.
fn with_status(view: PodView) -> Pod {
    let mut pod = Pod::clone(&view.pod);
    pod.status = Some((*view.status).clone());
    pod
}

async fn metrics(State(view): State<View>) -> Response {
    openmetrics(metrics_text(&view).await)
}

/// All metrics of the agent.
pub(super) async fn metrics_text(view: &View) -> String {
    let (sandboxes, containers) = view.observations.counts();
    view.metrics.count(sandboxes, containers);
    let mut text = view.metrics.text();
    let end = text.rfind("# EOF").unwrap_or(text.len());
    text.insert_str(end, &claim_metrics::text(&view.volumes).await);
    text
}

async fn probe_metrics(State(view): State<View>) -> Response {
    openmetrics(view.probes.metrics())
}

/// What Prometheus calls the format of the metrics.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn openmetrics(text: String) -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, OPENMETRICS)], text).into_response()
}
